"""The kills of a campaign: which process ends how, and what continues in its place."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from random import Random
from typing import Protocol

from confluent_kafka.admin import AdminClient

from chaos.queries.asking import Asker
from chaos.queries.judging import MOST_BEHIND, Judge
from chaos.queries.processes import Kept, Site
from chaos.queries.program import APPLICATION, PARTITIONS, STORES, USERS
from chaos.queries.reading import USER_COUNT, user_name
from chaos.queries.running import HALF_WRITTEN, NOT_RECORDED
from headrace.queries.tokens import Token, token_of
from headrace.topology.naming import changelog_topic
from tests.kafka_broker import RunningBroker

INSTANCE, DRIVER, BROKER = "instance", "application", "broker"
HAND_OVER, ORDERLY = "hand-over", "orderly hand-over"
"""A standby takes over from a leader that is killed, or that ends in order."""
STOPPED, STOPPED_LEADER = "stopped instance", "stopped leader"
"""A process stands still, and continues when all others have gone on without it."""
KINDS = (
    *(INSTANCE, HALF_WRITTEN, STOPPED, HAND_OVER, BROKER),
    *(NOT_RECORDED, STOPPED_LEADER, INSTANCE, ORDERLY, DRIVER),
)
"""The kinds of kills, in the order in which a campaign makes them."""
_COORDINATOR = ("__consumer_offsets", 0)
"""The partition whose leader coordinates all groups of these brokers."""
_METADATA_SECONDS = 10.0
_SESSION_SECONDS = 60.0
"""How long the session of a leader lasts at most."""


class Await(Protocol):
    """Waits for something, ``more`` seconds than usual, and reports it if it does not come."""

    def __call__(self, is_so: Callable[[], bool], what: str, /, *, more: float = 0.0) -> None: ...


class Kills:
    """Kills one process after the other, and starts what must continue.

    Args:
        site: Makes processes.
        instances: The instances.
        brokers: The brokers of a cluster; none: no broker is killed.
        judge: Knows the newest snapshot.
        chance: Chooses.
        wait: Waits.
        stop_seconds: For how long a process stands still.
        kinds: The kinds of kills, in their order.
    """

    def __init__(
        self,
        site: Site,
        instances: Sequence[Kept],
        brokers: Sequence[RunningBroker],
        judge: Judge,
        chance: Random,
        wait: Await,
        stop_seconds: float,
        kinds: Sequence[str],
    ) -> None:
        self.application = site.application()
        """The process that leads."""
        self.standby: Kept | None = None
        """The process that waits to lead."""
        self.done: dict[str, int] = {}
        """How many kills there were, by kind."""
        self._site, self._instances, self._brokers = site, instances, brokers
        self._judge, self._chance, self._await = judge, chance, wait
        self._stop_seconds = stop_seconds
        self._kinds = kinds

    @property
    def processes(self) -> list[Kept]:
        """The processes that should live."""
        applications = [self.application, *([self.standby] if self.standby else [])]
        return [*applications, *self._instances]

    def kill(self, number: int) -> str:
        """Kill a process, start what must continue, and return the kind of the kill."""
        kind = self._kinds[number % len(self._kinds)]
        self.done[kind] = self.done.get(kind, 0) + 1
        match kind:
            case "instance":
                self._restart(self._chance.choice(self._instances))
            case "application":
                self._restart(self.application)
            case "broker":
                self._kill_broker()
            case "stopped instance":
                self._stop_instance(self._chance.choice(self._instances))
            case "stopped leader":
                self._stop_leader()
            case "hand-over" | "orderly hand-over":
                self._hand_over(is_orderly=kind == ORDERLY)
            case _:
                self._site.die_at(kind)
                leader = self.application
                self._await(lambda: not leader.is_up(), f"the application to die {kind}")
                self._restart(leader)
        return kind

    def _restart(self, process: Kept) -> None:
        process.kill()
        process.start()

    def _stop_instance(self, instance: Kept) -> None:
        """Stop an instance while the application makes snapshots."""
        since = self._number()
        instance.stand_still(self._site.nobody_writes)
        self._pass_time()
        self._await(lambda: self._number() > since + MOST_BEHIND, "snapshots without an instance")
        newest = self._judge.newest
        instance.resume()
        if newest is not None:
            self._ask_woken(instance, token_of(newest))

    def _ask_woken(self, instance: Kept, newest: Token) -> None:
        """Ask an instance before it has caught up: with a minimum it is right, or refuses (Q4)."""
        params = {"min_snapshot": str(newest), "wait_ms": "0"}
        with closing(Asker(self._judge)) as asker:
            for user in map(user_name, range(USER_COUNT)):
                path = f"stores/{USERS}/keys/{user}"
                reply = asker.ask(instance.name, path, params, allowed=frozenset({409}))
                stores = None if reply is None else self._judge.stores_at(*reply[1:3])
                if reply is None or stores is None:
                    continue
                if not reply.token.is_at_least(newest):
                    text = f"{instance.name} woke, and answered {reply.token} for {newest}"
                    self._judge.report("Q4", text)
                found = reply.json if reply.status == 200 else None
                self._judge.compare(path, reply.token, found, stores.sums[USERS].get(user))
                self._judge.note_answer("woken", reply.token)

    def _stop_leader(self) -> None:
        """Stop the leader until another one leads; it must end, or stand by."""
        leader = self.application
        standby, epoch = self._stand_by() if self._site.has_sessions else (leader, -1)
        leader.stand_still(self._site.nobody_writes)
        if standby is not leader:
            self._site.end_session()
            self.application, self.standby = standby, None
            led = "a snapshot of a leader that did not wait for the one before"
            self._await(lambda: self._is_led_after(epoch), led, more=_SESSION_SECONDS)
        self._pass_time()
        said = leader.size()
        leader.resume()
        if standby is not leader:
            self._await(
                lambda: not leader.is_up() or self._site.stands_by(leader, said),
                "the old leader to end",
            )
            leader.kill()

    def _pass_time(self) -> None:
        until = time.monotonic() + self._stop_seconds
        self._await(lambda: time.monotonic() >= until, "time to pass", more=self._stop_seconds)

    def _number(self) -> int:
        newest = self._judge.newest
        return -1 if newest is None else newest.snapshot

    def _stand_by(self) -> tuple[Kept, int]:
        """Start a process that waits to lead; return it with the epoch of the leader."""
        # Before it starts, so that an error on the way ends it, too.
        self.standby = standby = self._site.application()
        standby.start()
        self._await(lambda: self._site.stands_by(standby), "a process that stands by")
        before = self._judge.newest
        return standby, -1 if before is None else before.leader_epoch

    def _hand_over(self, *, is_orderly: bool) -> None:
        leader = self.application
        standby, epoch = self._stand_by()
        self.application, self.standby = standby, None
        if is_orderly:
            code = leader.stop()
            if code != 0:
                text = f"{leader.name} ended with {code}: {leader.last_output()}"
                self._judge.report("Q11", text)
        else:
            leader.kill()
        self._await(lambda: self._is_led_after(epoch), "a snapshot of the new leader")

    def _is_led_after(self, epoch: int) -> bool:
        newest = self._judge.newest
        return newest is not None and newest.leader_epoch > epoch

    def _kill_broker(self) -> None:
        """Kill the broker that coordinates groups, or leads a changelog partition, by turns.

        It starts again when others do that.
        """
        topic, partition = _COORDINATOR
        if self.done[BROKER] % 2 == 0:
            topic = changelog_topic(APPLICATION, self._chance.choice(STORES))
            partition = self._chance.randrange(PARTITIONS)
        address = ",".join(broker.address for broker in self._brokers)
        admin = AdminClient({"bootstrap.servers": address})

        def leader() -> int:
            found = admin.list_topics(topic, _METADATA_SECONDS).topics[topic].partitions
            return found[partition].leader

        def are_in_sync() -> bool:
            topics = admin.list_topics(timeout=_METADATA_SECONDS).topics.values()
            each = [name for topic in topics for name in topic.partitions.values()]
            return all(len(name.isrs) == len(name.replicas) for name in each)

        self._await(are_in_sync, "all replicas to be in sync")
        lost = leader()
        broker = self._brokers[lost - 1]
        broker.kill()
        before = self._judge.newest
        self._await(lambda: leader() not in (lost, -1), f"another leader of {topic}:{partition}")
        self._await(lambda: self._judge.newest != before, "a snapshot without the broker")
        broker.start()
        broker.await_ready()
        self._await(are_in_sync, "all replicas to be in sync again")
