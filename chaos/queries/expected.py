"""The orders that were written, and what the stores must have at a position."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from chaos.queries.program import (
    GAP_MS,
    GROUPS,
    OPEN,
    ORDERS,
    PARTITIONS,
    RATED,
    RETENTION_MS,
    STORES,
    USERS,
    WINDOW_MS,
    closes,
    group_of,
    rate_of,
)
from headrace.brokers.log import RawRecord, TopicLog
from headrace.records import RecordMetadata
from headrace.serdes.partitioner import partition_for_key

Position = tuple[int, ...]
"""For each partition of the input the next order that is not reflected."""


ORDER_MS = 5
"""The time from one order to the next."""


@dataclass(frozen=True)
class Stores:
    """The entries of the stores with one value for each key, at a position."""

    position: Position
    sums: Mapping[str, Mapping[str, int]]
    """By store the sum of each key."""


class Order(NamedTuple):
    """An order of one user."""

    offset: int
    timestamp: int
    amount: int


@dataclass
class Orders:
    """All orders that were written, in the order of their offsets.

    No order of a partition is earlier than the one before, so none is late.
    """

    _orders: list[list[tuple[str, int]]] = field(
        default_factory=lambda: [[] for _ in range(PARTITIONS)]
    )
    _times: list[list[int]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    _by_user: defaultdict[str, list[Order]] = field(default_factory=lambda: defaultdict(list))
    _known: list[Stores] = field(
        default_factory=lambda: [Stores((0,) * PARTITIONS, {store: {} for store in STORES})]
    )
    _clock: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    _held: threading.Lock = field(default_factory=threading.Lock)
    _writing: threading.Lock = field(default_factory=threading.Lock)

    @property
    def ends(self) -> Position:
        """Return how many orders each partition has."""
        with self._held:
            return tuple(map(len, self._orders))

    @property
    def clock(self) -> int:
        """The timestamp of the newest order."""
        return self._clock

    def write(self, log: TopicLog, orders: Iterable[tuple[str, int]]) -> list[RecordMetadata]:
        """Write orders, by user and amount. They are noted before: readers compare at once."""
        written = [*orders]
        numbers = [partition_for_key(user.encode(), PARTITIONS) for user, _ in written]
        records: list[RawRecord] = []
        with self._writing:
            expected = []
            with self._held:
                for partition, order in zip(numbers, written, strict=True):
                    expected.append((partition, len(self._orders[partition])))
                    records.append(self._note(partition, *order))
            placed = log.append(records)
            found = [(partition, offset) for _, partition, offset in placed]
            assert found == expected, "nobody else writes orders"
        return placed

    def _note(self, partition: int, user: str, amount: int) -> RawRecord:
        self._clock += ORDER_MS
        self._by_user[user].append(Order(len(self._orders[partition]), self._clock, amount))
        self._orders[partition].append((user, amount))
        self._times[partition].append(self._clock)
        return ORDERS, partition, self._clock, user.encode(), amount.to_bytes(8), None

    def at(self, position: Sequence[int]) -> Stores | None:
        """Return what the stores must have; None: the position has orders that nobody wrote."""
        wanted = tuple(max(0, each) for each in position)
        if len(wanted) != PARTITIONS:
            return None
        with self._held:
            index = bisect_right(self._known, sum(wanted), key=lambda each: sum(each.position))
            while index > 0 and not _is_below(self._known[index - 1].position, wanted):
                index -= 1
            base = self._known[index - 1] if index else self._known[0]
            if base.position == wanted:
                return base
            if not _is_below(wanted, tuple(map(len, self._orders))):
                return None
            found = self._added(base, wanted)
            self._known.insert(index, found)
            return found

    def _added(self, base: Stores, wanted: Position) -> Stores:
        users, groups, opened = (dict(base.sums[store]) for store in (USERS, GROUPS, OPEN))
        for partition, (start, end) in enumerate(zip(base.position, wanted, strict=True)):
            for user, amount in self._orders[partition][start:end]:
                users[user] = users.get(user, 0) + amount
                group = group_of(amount)
                groups[group] = groups.get(group, 0) + amount
                if closes(amount):
                    opened.pop(user, None)
                else:
                    opened[user] = opened.get(user, 0) + amount
        rated = {user: total * rate_of(user) for user, total in users.items()}
        return Stores(wanted, {USERS: users, GROUPS: groups, OPEN: opened, RATED: rated})

    def windows(self, user: str, position: Position) -> list[tuple[int, int, int]]:
        """Return start, end and sum of the windows of a user that have not expired."""
        history, newest = self._history(user, position)
        sums: dict[int, int] = {}
        for _, timestamp, amount in history:
            start = timestamp - timestamp % WINDOW_MS
            sums[start] = sums.get(start, 0) + amount
        oldest = newest - newest % WINDOW_MS - RETENTION_MS + 1
        return [(at, at + WINDOW_MS, total) for at, total in sums.items() if at >= oldest]

    def sessions(self, user: str, position: Position) -> list[tuple[int, int, int]]:
        """Return start, end and sum of the sessions of a user that have not expired."""
        history, newest = self._history(user, position)
        found: list[tuple[int, int, int]] = []
        for _, timestamp, amount in history:
            if found and timestamp - found[-1][1] <= GAP_MS:
                start, _, total = found[-1]
                found[-1] = start, timestamp, total + amount
            else:
                found.append((timestamp, timestamp, amount))
        oldest = newest - RETENTION_MS + 1
        return [each for each in found if each[1] >= oldest]

    def version(self, user: str, position: Position, as_of: int) -> tuple[int, int] | None:
        """Return the amount of a user that was valid at a time, and since when."""
        history, _ = self._history(user, position)
        valid = [order for order in history if order.timestamp <= as_of]
        return (valid[-1].amount, valid[-1].timestamp) if valid else None

    def recent_time(self, position: Sequence[int], back_ms: int) -> int:
        """Return a time so long before the newest order below a position."""
        with self._held:
            found = zip(self._times, position, strict=True)
            newest = [times[end - 1] for times, end in found if end > 0]
            # Before the first order, an application may have reflected rates and prices.
            return max(newest, default=self._clock) - back_ms

    def _history(self, user: str, position: Position) -> tuple[list[Order], int]:
        """Return the orders of a user below a position that may be seen, and the partition's time.

        A session may begin long before it ends, so it returns more than the retention.
        """
        partition = partition_for_key(user.encode(), PARTITIONS)
        with self._held:
            orders, end = self._by_user.get(user, []), position[partition]
            newest = self._times[partition][end - 1] if end > 0 else -1
            last = bisect_left(orders, (end,))
            first = bisect_left(
                orders, newest - 2 * RETENTION_MS, hi=last, key=lambda order: order.timestamp
            )
            return orders[first:last], newest


def _is_below(position: Position, other: Position) -> bool:
    return all(a <= b for a, b in zip(position, other, strict=True))


def position_of(position: Mapping[str, Sequence[int]]) -> Sequence[int]:
    """Return the position of a snapshot record in the orders."""
    return position.get(ORDERS, ())
