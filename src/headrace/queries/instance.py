"""An instance: keeps copies of shards up to date in the background, for readers in any thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Protocol

from headrace.brokers.log import TopicPartition
from headrace.brokers.opening import open_log
from headrace.brokers.sessions import Broker
from headrace.config import StreamsConfig
from headrace.errors import BrokerError, StreamsError
from headrace.home import ApplicationHome
from headrace.queries.copy.copy_progress import ApplierLimits
from headrace.queries.copy.database import Database
from headrace.queries.copy.layout import CopyLayout, Shard
from headrace.queries.copy.reader import CopyReader
from headrace.queries.copy.views import KeptSnapshots
from headrace.queries.copy_facts import (
    CopyFacts,
    facts_of,
    lags_of,
    problem_of_copy,
    problem_of_shard,
)
from headrace.queries.instance_files import InstanceFiles
from headrace.queries.members import MemberStatus, shard_name
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.runtime.snapshots import SnapshotRecord

_STEP_SECONDS = 0.01
_PAUSE_SECONDS = 0.5
"""How long the applier waits after the broker did not answer."""
_RESTART_SECONDS = 1.0
_STALLED_SECONDS = 60.0
"""After this time without a step the applier counts as stopped; one question may take 30 s."""
_CLOSE_SECONDS = 30.0

_log = logging.getLogger("headrace")


class CopiedApplication(Protocol):
    """What an instance needs to know of an application."""

    @property
    def application_id(self) -> str:
        """The application."""
        ...

    @property
    def layout(self) -> CopyLayout:
        """Its queryable stores."""
        ...

    @property
    def snapshots_topic(self) -> str:
        """The topic of its snapshot records."""
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
    """

    def __init__(
        self,
        catalog: CopiedApplication,
        config: StreamsConfig,
        open_broker: Callable[[], Broker] | None = None,
        *,
        name: str | None,
        database: Database | None = None,
        restarts: bool = False,
    ) -> None:
        self.catalog = catalog
        self.name = name
        self.snapshots = KeptSnapshots()
        """The snapshots that readers may ask for."""
        self._config = config
        self._open_broker = open_broker or (lambda: open_log(config))
        self._given = database
        self._restarts = restarts
        self._facts = CopyFacts()
        self._failure: Exception | None = None
        self._stepped_at = time.monotonic()
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._listening = threading.Lock()
        self._closing = threading.Event()
        self._applier: threading.Thread | None = None
        self._files: InstanceFiles | None = None

    def start(self) -> None:
        """Open the copy, and follow the application in the background.

        Raises:
            QueryError: Another instance of the same name runs.
            BrokerError: The log does not answer.
        """
        broker = self._open_broker()
        try:
            database = self._open_database(broker)
        except BaseException:
            broker.close()
            self._close_files()
            raise
        label = self.name or "private"
        self._applier = threading.Thread(
            target=self._run, args=(broker, database), name=f"applier-{label}", daemon=True
        )
        self._applier.start()

    def close(self) -> None:
        """Stop following, and close the copy."""
        self._closing.set()
        if self._applier is not None:
            self._applier.join(_CLOSE_SECONDS)
        self.snapshots.clear()
        self._close_files()

    def newest_record(self) -> SnapshotRecord | None:
        """Return the newest snapshot record that was read."""
        return self._facts.record

    def problem(self) -> QueryProblemError | None:
        """Return why no shard can answer; None: some may."""
        if self._failure is not None or self._is_stalled():
            reason = self._failure or "it makes no progress"
            return QueryProblemError(
                ProblemCode.STORE_NOT_READY, f"The applier of this instance has stopped: {reason}."
            )
        return problem_of_copy(self._facts, self.catalog.application_id)

    def shard_problem(self, shard: Shard) -> QueryProblemError | None:
        """Return why a shard cannot answer; None: it can."""
        return self.problem() or problem_of_shard(self._facts, shard)

    def failure(self) -> Exception | None:
        """Return the error with which the applier has stopped; None: it works."""
        return self._failure

    def is_ready(self) -> bool:
        """Return whether all shards that the instance should have are ready."""
        return self._facts.is_ready and self._failure is None and not self._is_stalled()

    def is_shard_ready(self, shard: Shard) -> bool:
        """Return whether a shard is shown, and not far behind."""
        return shard in self._facts.ready and self._failure is None and not self._is_stalled()

    def lags(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return of each changelog partition the end that readers see, and the newest one."""
        facts = self._facts
        shown = {shard: self.snapshots.newest_of(shard) for shard in facts.kept}
        ends = {shard: each.record for shard, each in shown.items() if each is not None}
        return lags_of(facts, self.catalog.layout, ends)

    def status(self) -> MemberStatus:
        """Return what the instance tells others about itself."""
        facts = self._facts
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
            at=_now(),
        )

    def members(self) -> Mapping[str, MemberStatus]:
        """Return the instances that are known, this one included."""
        return {self.name or "": self.status()}

    def placement(self) -> Mapping[Shard, tuple[str, ...]]:
        """Return the instances that should have each shard, the first to ask first."""
        record = self._facts.record
        if record is None:
            return {}
        return dict.fromkeys(self._shards(record), (self.name or "",))

    def note_status(self, status: MemberStatus) -> None:
        """Remember what another instance says about itself."""

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

    def _is_stalled(self) -> bool:
        return time.monotonic() - self._stepped_at > _STALLED_SECONDS

    def _shards(self, record: SnapshotRecord) -> list[Shard]:
        layout = self.catalog.layout
        return [
            shard
            for of_globals in (True, False)
            for shard in layout.shards(record, of_globals=of_globals)
        ]

    def _open_database(self, broker: Broker) -> Database:
        if self._given is not None:
            return self._given
        if self._files is None:
            home = ApplicationHome.of(self._config, broker.cluster_id())
            self._files = InstanceFiles(home, self.name)
        return self._files.open()

    def _close_files(self) -> None:
        if self._files is not None:
            self._files.close()

    def _run(self, broker: Broker, database: Database) -> None:
        opened: tuple[Broker, Database] | None = (broker, database)
        while not self._closing.is_set():
            try:
                if opened is None:
                    broker = self._open_broker()
                    database = self._open_database(broker)
                opened = None
                self._follow(broker, database)
            except Exception as error:
                _log.exception("The applier of instance %s has stopped.", self.name)
                self._failure = error
                self._facts = CopyFacts()
                self.snapshots.clear()
                self._notify()
                if not self._restarts:
                    return
                self._closing.wait(_RESTART_SECONDS)

    def _follow(self, broker: Broker, database: Database) -> None:
        """Follow the application until the instance is closed, or something fails."""
        try:
            reader = CopyReader(
                broker,
                self.catalog.layout,
                self.catalog.snapshots_topic,
                database,
                _now(),
                self._limits(broker),
                self.snapshots,
            )
            is_away = False
            while not self._closing.is_set():
                try:
                    reader.step(_now())
                    self._keep(reader)
                    is_away = False
                except BrokerError as error:
                    _log.log(
                        logging.DEBUG if is_away else logging.WARNING,
                        "Instance %s cannot read, and answers from what it has: %s",
                        self.name,
                        error,
                    )
                    is_away = True
                self._publish(reader)
                self._closing.wait(_PAUSE_SECONDS if is_away else _STEP_SECONDS)
        finally:
            self.snapshots.clear()
            for close in (database.close, broker.close):
                with suppress(StreamsError):
                    close()

    def _limits(self, broker: Broker) -> ApplierLimits:
        is_exact = self._config.processing_guarantee == "exactly_once_v2"
        return ApplierLimits(
            # Without transactions nothing but records takes an offset.
            marker_offsets=0 if broker.is_local or not is_exact else 1,
            allows_more=not is_exact,
            delete_retention_ms=int(
                self._config.topic.get("delete.retention.ms", ApplierLimits.delete_retention_ms)
            ),
        )

    def _keep(self, reader: CopyReader) -> None:
        """Keep the shards of the newest record; those of before stay until it is known."""
        record = reader.applier.newest
        if record is not None and reader.applier.problem is None:
            self._keep_shards(reader, self._shards(record))

    def _keep_shards(self, reader: CopyReader, shards: Iterable[Shard]) -> None:
        wanted = frozenset(shards)
        if wanted != reader.applier.kept:
            reader.applier.keep(wanted)
            reader.step(_now())

    def _publish(self, reader: CopyReader) -> None:
        self._stepped_at = time.monotonic()
        self._failure = None
        facts = facts_of(reader.applier)
        if facts != self._facts:
            self._facts = facts
            self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            try:
                listener()
            except Exception:
                _log.exception("A listener of instance %s has failed.", self.name)


def _now() -> int:
    return time.time_ns() // 1_000_000
