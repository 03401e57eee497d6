"""An instance: copies of shards that follow an application, for readers in any thread."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from headrace.brokers.log import TopicPartition
from headrace.brokers.opening import open_log
from headrace.brokers.sessions import Broker
from headrace.config import StreamsConfig
from headrace.queries.catalog import Catalog
from headrace.queries.copy.database import Database
from headrace.queries.copy.layout import Shard
from headrace.queries.copy_facts import lags_of, problem_of_copy, problem_of_shard
from headrace.queries.copy_thread import CopyThread, now_ms
from headrace.queries.known_members import KnownMembers, Placement
from headrace.queries.members import MemberStatus, shard_name
from headrace.queries.membership import Membership
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.transfer.exporting import export_shard
from headrace.queries.transfer.fetching import ShardSource
from headrace.runtime.snapshots import SnapshotRecord
from headrace.topology.naming import queries_name

_ASK_SECONDS = 1.0
"""How often an instance asks the others, and for how long it waits for an answer."""
_PLACE_MS = 200
"""How often the placement is computed at most."""
_CLOSE_SECONDS = 5.0
_STANDBYS = 1
"""``num.standby.replicas`` of instances, unless it is set."""

_log = logging.getLogger("headrace")


class StatusTransport(Protocol):
    """Asks other instances for their state."""

    async def status(self, member: str, /) -> MemberStatus:
        """Return what a member says about itself; any error: it does not answer."""
        ...


class Instance:
    """Copies of the shards of an application that follow its snapshots.

    Args:
        catalog: The application and its stores.
        config: Its settings.
        open_broker: Opens the log; by default the one of the settings.
        name: ``application.server``; None: a private copy of all shards, in a temporary folder.
        database: Where the copy is kept, in place of files.
        restarts: Whether the applier restarts after a failure.
        transport: Asks other instances for their state, in an event loop of its own.
        source: Asks other instances for shards; None: all come from the changelogs.
    """

    def __init__(
        self,
        catalog: Catalog,
        config: StreamsConfig,
        open_broker: Callable[[], Broker] | None = None,
        *,
        name: str | None,
        database: Database | None = None,
        restarts: bool = False,
        transport: StatusTransport | None = None,
        source: ShardSource | None = None,
    ) -> None:
        self.catalog = catalog
        self.name = name
        opener = open_broker or (lambda: open_log(config))
        self._copy = CopyThread(
            catalog,
            config,
            opener,
            name=name,
            database=database,
            restarts=restarts,
            choose=self._choose,
            on_change=self._notify,
            source=None if transport is None or name is None else source,
            holders=self._holders,
        )
        self.snapshots = self._copy.snapshots
        """The snapshots that readers may ask for."""
        is_set = "num_standby_replicas" in config.given
        standbys = config.num_standby_replicas if is_set else _STANDBYS
        self._known = KnownMembers(name or "", catalog.layout, standbys)
        self._knowing = threading.Lock()
        self._run = secrets.token_hex(8)
        self._status_numbers = itertools.count(1)
        self._placement: Placement | None = None
        self._placed_at = 0
        self._membership: Membership | None = None
        if name is None:
            self._known.set_members([""], now_ms())
        else:
            self._membership = Membership(
                opener,
                queries_name(catalog.application_id),
                catalog.snapshots_topic,
                name,
                self._set_members,
            )
        self._transport = transport
        self._asking = threading.Thread(target=self._ask, name=f"peers-{name}", daemon=True)
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._listening = threading.Lock()
        self._closing = threading.Event()
        self._has_new_members = threading.Event()

    def start(self) -> None:
        """Open the copy, follow the application and join the other instances, in the background.

        Raises:
            QueryError: Another instance of the same name runs on this machine.
            BrokerError: The log does not answer, or the name is no address.
        """
        self._copy.start()
        if self._membership is not None:
            self._membership.start()
        if self._transport is not None:
            self._asking.start()

    def close(self) -> None:
        """Leave the other instances, stop following, and close the copy."""
        self._closing.set()
        self._has_new_members.set()
        if self._membership is not None:
            self._membership.close()
        self._copy.close()
        if self._asking.is_alive():
            self._asking.join(_CLOSE_SECONDS)

    def newest_record(self) -> SnapshotRecord | None:
        """Return the newest snapshot record that was read."""
        return self._copy.facts.record

    def problem(self) -> QueryProblemError | None:
        """Return why no shard can answer; None: some may."""
        failure = self.failure()
        if failure is not None or not self._copy.is_alive():
            reason = failure or "its applier makes no progress."
            return QueryProblemError(
                ProblemCode.STORE_NOT_READY, f"Instance {self.name!r} has stopped: {reason}"
            )
        return problem_of_copy(self._copy.facts, self.catalog.application_id)

    def shard_problem(self, shard: Shard) -> QueryProblemError | None:
        """Return why a shard cannot answer; None: it can."""
        return self.problem() or problem_of_shard(self._copy.facts, shard)

    def failure(self) -> Exception | None:
        """Return the error with which the instance has stopped; None: it works."""
        taken = self._membership.failure if self._membership is not None else None
        return taken or self._copy.failure

    def is_ready(self) -> bool:
        """Return whether it is a member, and all shards that it should have are ready."""
        facts, placement = self._copy.facts, self._placement
        return (
            facts.record is not None
            and facts.problem is None
            and self._known.is_member
            and placement is not None
            and facts.ready >= placement.placed
            and self.failure() is None
            and self._copy.is_alive()
        )

    def is_shard_ready(self, shard: Shard) -> bool:
        """Return whether a shard is shown, and not far behind."""
        return shard in self._copy.facts.ready and self._copy.is_alive()

    def lags(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return of each changelog partition the end that readers see, and the newest one."""
        facts = self._copy.facts
        shown = {shard: self.snapshots.newest_of(shard) for shard in facts.kept}
        ends = {shard: each.record for shard, each in shown.items() if each is not None}
        return lags_of(facts, self.catalog.layout, ends)

    def status(self) -> MemberStatus:
        """Return what the instance says to others about itself."""
        number = next(self._status_numbers)
        facts = self._copy.facts
        return MemberStatus(
            name=self.name or "",
            history=None if facts.record is None else facts.record.history,
            snapshot=None if facts.record is None else facts.record.snapshot,
            shards={shard_name(shard): number for shard, number in sorted(facts.shown.items())},
            ready=tuple(
                shard_name(shard) for shard in sorted(facts.ready) if self.is_shard_ready(shard)
            ),
            is_ready=self.is_ready(),
            layout=self.catalog.layout.digest,
            run=self._run,
            number=number,
        )

    def members(self) -> Mapping[str, MemberStatus]:
        """Return what each known instance said last, this one included."""
        with self._knowing:
            return {**self._known.statuses(), self.name or "": self.status()}

    def placement(self) -> Mapping[Shard, tuple[str, ...]]:
        """Return the instances to ask for each shard, the best first.

        Instances that should have the shard come first, then others that have it ready.
        """
        return {} if self._placement is None else self._placement.shards

    def note_status(self, status: MemberStatus) -> None:
        """Remember what another instance says about itself."""
        if status.name == self.name:
            return
        with self._knowing:
            is_new = self._known.note(status, now_ms())
        if is_new:
            self._notify()

    def add_listener(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call a function, from any thread, after each change of what readers can see.

        Returns:
            A function that removes the listener.
        """
        with self._listening:
            self._listeners = (*self._listeners, callback)

        def remove() -> None:
            with self._listening:
                self._listeners = tuple(each for each in self._listeners if each is not callback)

        return remove

    def export_shard(self, shard: Shard) -> Iterator[bytes]:
        """Return the bytes of a shard at its newest snapshot, for another instance.

        Raises:
            QueryProblemError: The shard is not ready.
        """
        problem = self.shard_problem(shard)
        if problem is not None:
            raise problem
        shown = self.snapshots.newest_of(shard)
        assert shown is not None, "a ready shard is shown"
        return export_shard(self.catalog.layout, shown, shard)

    def _notify(self) -> None:
        for listener in self._listeners:
            try:
                listener()
            except Exception:
                _log.exception("A listener of instance %s has failed.", self.name)

    def _set_members(self, names: frozenset[str]) -> None:
        with self._knowing:
            is_new = self._known.members != names
            self._known.set_members(names, now_ms())
            self._placed_at = 0
        if is_new:
            self._has_new_members.set()
            self._notify()

    def _holders(self, shard: Shard) -> list[str] | None:
        """Return the peers that have a ready copy of a shard; None: some have not answered yet."""
        record = self.newest_record()
        with self._knowing:
            if record is None or self._known.awaits_answers(now_ms()):
                return None
            return self._known.holders(shard, record, now_ms())

    def _choose(self, record: SnapshotRecord, kept: frozenset[Shard]) -> frozenset[Shard] | None:
        """Return the shards to keep; None: it is not known yet."""
        now = now_ms()
        with self._knowing:
            if not self._known.is_known:
                return None
            placement = self._placement
            if (
                placement is None
                or now - self._placed_at >= _PLACE_MS
                or len(placement.shards) != self.catalog.layout.shard_count(record)
            ):
                self._placed_at = now
                self._known.note(self.status(), now)
                self._placement = placement = self._known.placement(record, kept, now)
            return placement.kept

    def _ask(self) -> None:
        """Ask the other instances every second, and new ones at once, until it is closed."""
        with asyncio.Runner() as runner:
            while not self._closing.is_set():
                self._has_new_members.clear()
                with self._knowing:
                    peers = self._known.peers
                runner.run(self._ask_all(peers))
                self._has_new_members.wait(_ASK_SECONDS)

    async def _ask_all(self, peers: list[str]) -> None:
        async def ask(peer: str) -> None:
            assert self._transport is not None, "the thread was started"
            try:
                status = await asyncio.wait_for(self._transport.status(peer), _ASK_SECONDS)
            except Exception as error:  # a peer may answer anything
                _log.debug("Instance %s does not answer: %s", peer, error)
            else:
                if status.name == peer:
                    self.note_status(status)

        await asyncio.gather(*map(ask, peers))
