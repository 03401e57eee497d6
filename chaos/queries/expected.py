"""The orders that were written, and what the stores must have at a position."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from chaos.queries.program import GROUPS, ORDERS, PARTITIONS, USERS, group_of
from headrace.brokers.log import RawRecord, TopicLog
from headrace.records import RecordMetadata
from headrace.serdes.partitioner import partition_for_key

Position = tuple[int, ...]
"""For each partition of the input the next order that is not reflected."""


@dataclass(frozen=True)
class Stores:
    """The entries of both stores at a position."""

    position: Position
    sums: Mapping[str, Mapping[str, int]]
    """By store the sum of each key."""


@dataclass
class Orders:
    """All orders that were written, in the order of their offsets."""

    _orders: list[list[tuple[str, int]]] = field(
        default_factory=lambda: [[] for _ in range(PARTITIONS)]
    )
    _known: list[Stores] = field(
        default_factory=lambda: [Stores((0,) * PARTITIONS, {USERS: {}, GROUPS: {}})]
    )
    _held: threading.Lock = field(default_factory=threading.Lock)
    _writing: threading.Lock = field(default_factory=threading.Lock)

    @property
    def ends(self) -> Position:
        """How many orders each partition has."""
        with self._held:
            return tuple(map(len, self._orders))

    def write(self, log: TopicLog, orders: Iterable[tuple[str, int]]) -> list[RecordMetadata]:
        """Write orders, by user and amount. They are noted before: readers compare at once."""
        written = [*orders]
        numbers = [partition_for_key(user.encode(), PARTITIONS) for user, _ in written]
        records: list[RawRecord] = [
            (ORDERS, partition, 1, user.encode(), amount.to_bytes(8), None)
            for partition, (user, amount) in zip(numbers, written, strict=True)
        ]
        with self._writing:
            expected = []
            with self._held:
                for partition, order in zip(numbers, written, strict=True):
                    expected.append((partition, len(self._orders[partition])))
                    self._orders[partition].append(order)
            placed = log.append(records)
            found = [(partition, offset) for _, partition, offset in placed]
            assert found == expected, "nobody else writes orders"
        return placed

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
        users, groups = dict(base.sums[USERS]), dict(base.sums[GROUPS])
        for partition, (start, end) in enumerate(zip(base.position, wanted, strict=True)):
            for user, amount in self._orders[partition][start:end]:
                users[user] = users.get(user, 0) + amount
                group = group_of(amount)
                groups[group] = groups.get(group, 0) + amount
        return Stores(wanted, {USERS: users, GROUPS: groups})


def _is_below(position: Position, other: Position) -> bool:
    return all(a <= b for a, b in zip(position, other, strict=True))


def position_of(position: Mapping[str, Sequence[int]]) -> Sequence[int]:
    """Return the position in the input of a snapshot record."""
    return position.get(ORDERS, ())
