"""Writes orders all the time, reads its own writes, and follows the snapshot records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random

from chaos.queries.expected import Orders
from chaos.queries.judging import Judge
from chaos.queries.processes import Kept
from chaos.queries.program import APPLICATION, ORDERS, STORES, USERS, group_of
from chaos.queries.reading import USER_COUNT, user_name
from chaos.queries.worker import AskingWorker, Worker
from headrace.brokers.log import TopicLog, TopicPartition
from headrace.errors import UnknownTopicError
from headrace.runtime.snapshots import decode_snapshot
from headrace.topology.naming import snapshots_name

_MOST_AMOUNT = 1_000
_WAIT_MS = "5000"


def random_order(chance: Random) -> tuple[str, int]:
    """Return a user and an amount."""
    return user_name(chance.randrange(USER_COUNT)), chance.randint(1, _MOST_AMOUNT)


class Feeder(Worker):
    """Writes a few orders at a time."""

    def __init__(
        self,
        orders: Orders,
        log: TopicLog,
        over: threading.Event,
        on_error: Callable[[BaseException], None],
    ) -> None:
        super().__init__("feeder", over, on_error, 0.03)
        self._orders, self._log = orders, log
        self._chance = Random("feeder")  # repeatable

    def step(self) -> None:
        count = self._chance.randint(1, 12)
        self._orders.write(self._log, [random_order(self._chance) for _ in range(count)])


class OwnWriter(AskingWorker):
    """Writes an order, and reads both stores behind it (Q5)."""

    def __init__(
        self,
        number: int,
        orders: Orders,
        log: TopicLog,
        judge: Judge,
        instances: Sequence[Kept],
        over: threading.Event,
        on_error: Callable[[BaseException], None],
    ) -> None:
        super().__init__(f"own-writes-{number}", judge, instances, over, on_error, 0.05)
        self._orders, self._log = orders, log

    def step(self) -> None:
        user, amount = random_order(self._chance)
        [(_, partition, offset)] = self._orders.write(self._log, [(user, amount)])
        params = {"min_position": f"{ORDERS}:{partition}:{offset}", "wait_ms": _WAIT_MS}
        for store in STORES:
            key = user if store == USERS else group_of(amount)
            instance = self._chance.choice(self._instances).name
            path = f"stores/{store}/keys/{key}"
            reply = self._asker.ask(instance, path, params, allowed=frozenset({409}))
            stores = None if reply is None else self._judge.stores_at(reply.token, reply.position)
            if reply is None or stores is None:
                continue
            if stores.position[partition] <= offset:
                text = f"order {partition}:{offset} is not reflected at {reply.token}"
                self._judge.report("Q5", text)
            found = reply.json if reply.status == 200 else None
            self._judge.compare(f"{store} {key}", reply.token, found, stores.sums[store][key])
            self._judge.note_answer("own write", reply.token)


class Follower(Worker):
    """Reads the snapshots topic, as instances do."""

    def __init__(
        self,
        log: TopicLog,
        judge: Judge,
        over: threading.Event,
        on_error: Callable[[BaseException], None],
    ) -> None:
        super().__init__("follower", over, on_error, 0.03)
        self._log, self._judge = log, judge
        self._name = TopicPartition(snapshots_name(APPLICATION), 0)
        self._next = 0

    def step(self) -> None:
        with suppress(UnknownTopicError):
            end = self._log.end_offsets([self._name])[self._name]
            for records in self._log.read(self._name, self._next, end):
                for record in records:
                    if record.value is not None:
                        self._judge.note_record(decode_snapshot(record.value))
            self._next = max(self._next, end)
