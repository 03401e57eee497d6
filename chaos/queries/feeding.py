"""Writes orders all the time, reads its own writes, and follows the snapshot records."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import httpx

from chaos.queries.expected import Orders
from chaos.queries.judging import Judge
from chaos.queries.prices import Prices, rate
from chaos.queries.processes import Kept
from chaos.queries.program import APPLICATION, GROUPS, STORES, group_of
from chaos.queries.reading import USER_COUNT, user_name
from chaos.queries.worker import AskingWorker, Worker
from headrace.brokers.log import TopicLog, TopicPartition
from headrace.errors import UnknownTopicError
from headrace.queries.client import QueryClient
from headrace.queries.problems import QueryProblemError
from headrace.queries.tokens import Token
from headrace.records import RecordMetadata
from headrace.runtime.snapshots import decode_snapshot
from headrace.topology.naming import snapshots_name

_MOST_AMOUNT = 1_000
_MOST_PRICES = 4
_RATES = 0.05
"""The share of steps that write a rate."""
_WAIT_MS = "5000"
_CLIENT_TIMEOUT = "10s"
_SLOW_SECONDS = 2.0


def random_order(chance: Random) -> tuple[str, int]:
    """Return a user and an amount."""
    return user_name(chance.randrange(USER_COUNT)), chance.randint(1, _MOST_AMOUNT)


class Feeder(Worker):
    """Writes a few orders and prices at a time, and a rate now and then.

    While the rates are quiet, the application holds orders back.
    """

    def __init__(
        self,
        orders: Orders,
        prices: Prices,
        log: TopicLog,
        over: threading.Event,
        on_error: Callable[[BaseException], None],
    ) -> None:
        super().__init__("feeder", over, on_error, 0.03)
        self._orders, self._prices, self._log = orders, prices, log
        self._chance = Random("feeder")  # repeatable

    def step(self) -> None:
        count = self._chance.randint(1, 12)
        self._orders.write(self._log, [random_order(self._chance) for _ in range(count)])
        self._prices.write(self._log, self._chance.randint(1, _MOST_PRICES))
        if self._chance.random() < _RATES:
            user = user_name(self._chance.randrange(USER_COUNT))
            self._log.append([rate(user, self._orders.clock)])


class OwnWriter(AskingWorker):
    """Writes an order, and reads all of its stores behind it until it is seen (Q5).

    It asks with a `QueryClient`, as users do, or with a position in the request.

    Args:
        number: Decides what it writes.
        orders: All orders.
        log: Where it writes.
        judge: Compares.
        instances: The instances to ask.
        over: Set when it should stop.
        on_error: Called with an error that nobody expects.
        count: After so many orders that all writers have seen, it is slower.
        seconds: In which time it must see its order.
    """

    def __init__(
        self,
        number: int,
        orders: Orders,
        log: TopicLog,
        judge: Judge,
        instances: Sequence[Kept],
        over: threading.Event,
        on_error: Callable[[BaseException], None],
        *,
        count: int,
        seconds: float,
    ) -> None:
        super().__init__(f"own-writes-{number}", judge, instances, over, on_error, 0.01)
        self._orders, self._log = orders, log
        self._count, self._seconds = count, seconds
        self._http = httpx.Client(trust_env=False)
        names = [each.name for each in instances]
        self._chance.shuffle(names)
        self._client = QueryClient(names, timeout=_CLIENT_TIMEOUT, http=self._http)

    def close(self) -> None:
        super().close()
        self._http.close()

    def step(self) -> None:
        if self._judge.counts["own write"] >= self._count:
            self._over.wait(_SLOW_SECONDS)
        user, amount = random_order(self._chance)
        [record] = self._orders.write(self._log, [(user, amount)])
        reads = [(store, group_of(amount) if store == GROUPS else user) for store in STORES]
        see = self._chance.choice([self._see, self._see_with_client])
        until = time.monotonic() + self._seconds
        while not see(record, reads):
            if self._over.is_set():
                return
            if time.monotonic() > until:
                text = f"the order {record} was not seen in {self._seconds:.0f} s"
                self._judge.report("Q5", text)
                return

    def _see(self, record: RecordMetadata, reads: Sequence[tuple[str, str]]) -> bool:
        """Read each store behind an order; return whether all have answered."""
        params = {"min_position": "{}:{}:{}".format(*record), "wait_ms": _WAIT_MS}
        token: Token | None = None
        for store, key in reads:
            instance = self._any().name
            path = f"stores/{store}/keys/{key}"
            reply = self._asker.ask(instance, path, params, allowed=frozenset({409}))
            if reply is None:
                return False
            found = reply.json if reply.status == 200 else None
            token = reply.token
            self._check(record, token, reply.position, {(store, key): found})
        assert token is not None, "there are stores"
        self._judge.note_answer("own write", token)
        return True

    def _see_with_client(self, record: RecordMetadata, reads: Sequence[tuple[str, str]]) -> bool:
        """Read all stores at one snapshot; return whether the client got all answers."""
        view = self._client.snapshot(after=record)
        try:
            found = {(store, key): view.store(store).get(key) for store, key in reads}
        except QueryProblemError as problem:
            if problem.code.status not in (409, 410, 503):
                self._judge.report("Q6", f"a client was refused: {problem}")
            self._judge.counts[f"refused {problem.code.status}"] += 1
            return False
        token = view.token
        assert token is not None, "read"
        position = self._position_of(token, reads[0])
        if position is None:
            return False
        self._check(record, token, position, found)
        self._judge.note_answer("own write", token)
        self._judge.note_answer("own write with client", token)
        return True

    def _position_of(
        self, token: Token, read: tuple[str, str]
    ) -> Mapping[str, Sequence[int]] | None:
        """Return the position of a snapshot; None: it is not known, and no longer kept."""
        known = self._judge.position_of(token)
        if known is not None:
            return known
        store, key = read
        instance = self._any().name
        params = {"snapshot": str(token)}
        gone = frozenset({410})
        reply = self._asker.ask(instance, f"stores/{store}/keys/{key}", params, allowed=gone)
        return None if reply is None else reply.position

    def _check(
        self,
        record: RecordMetadata,
        token: Token,
        position: Mapping[str, Sequence[int]],
        found: Mapping[tuple[str, str], Any],
    ) -> None:
        stores = self._judge.stores_at(token, position)
        if stores is None:
            return
        if stores.position[record.partition] <= record.offset:
            self._judge.report("Q5", f"the order {record} is not reflected at {token}")
        for (store, key), value in found.items():
            expected = stores.sums[store].get(key)
            self._judge.compare(f"{store} {key} behind a write", token, value, expected)


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
