"""Ordered maps that forget: by use, and by time."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.records import ValueAndTimestamp
from headrace.serdes import Serdes
from headrace.state.key_value import KeyValue, TimestampedKeyValue
from headrace.state.lru_and_ttl import LeastRecentlyUsed, TtlMap
from headrace.state.maps import MemoryMap
from headrace.state.store_times import LruTimes


class Clock:
    """A stream time that a test sets."""

    now = 0

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def lru(capacity: int = 2) -> KeyValue[str, int]:
    entries = LeastRecentlyUsed(MemoryMap(), LruTimes(), capacity)
    return KeyValue("s", Serdes.string(), Serdes.long(), entries)


def test_the_key_used_least_recently_is_forgotten() -> None:
    store = lru()
    store.put_all([("a", 1), ("b", 2)])

    store.get("a")
    store.put("c", 3)

    assert list(store.all()) == [("a", 1), ("c", 3)]
    assert store.approximate_num_entries() == 2


def test_a_key_that_is_put_again_counts_as_used() -> None:
    store = lru()
    store.put_all([("a", 1), ("b", 2), ("a", 3), ("c", 4)])

    assert list(store.reverse_all()) == [("c", 4), ("a", 3)]


def test_a_deleted_key_makes_room() -> None:
    store = lru()
    store.put_all([("a", 1), ("b", 2)])

    assert (store.delete("a"), store.get("a"), store.delete("a")) == (1, None, None)
    store.put("c", 3)

    assert list(store.range("b", "c")) == [("b", 2), ("c", 3)]


def test_the_order_of_use_survives_with_the_entries() -> None:
    data: MemoryMap[Any, Any] = MemoryMap()
    times = LruTimes()
    first = LeastRecentlyUsed(data, times, 2)
    first.put(b"a", b"1")
    first.put(b"b", b"2")
    first.get(b"a")

    second = LeastRecentlyUsed(data, times, 2)
    second.put(b"c", b"3")

    assert list(second.scan()) == [(b"a", b"1"), (b"c", b"3")]


def test_an_entry_is_gone_when_its_time_is_over(clock: Clock) -> None:
    entries = TtlMap(MemoryMap(), 10, clock)
    entries.put(b"a", b"1")

    clock.now = 9
    before = entries.get(b"a")
    clock.now = 10

    assert (before, entries.get(b"a"), entries.get(b"x")) == (b"1", None, None)
    assert (list(entries.scan()), len(entries)) == ([], 0)


def test_a_put_restarts_the_lifetime_of_an_entry(clock: Clock) -> None:
    entries = TtlMap(MemoryMap(), 10, clock)
    entries.put(b"a", b"1")
    entries.put(b"b", b"2")

    clock.now = 5
    entries.put(b"a", b"3")
    clock.now = 12

    assert list(entries.scan()) == [(b"a", b"3")]


def test_the_next_write_removes_expired_entries(clock: Clock) -> None:
    data: MemoryMap[Any, Any] = MemoryMap()
    entries = TtlMap(data, 10, clock)

    for clock.now in range(1000):
        entries.put(b"%d" % clock.now, b"")

    assert len(data) == 20  # each entry stands in two orders


def test_entries_with_a_timestamp_expire_too(clock: Clock) -> None:
    entries = TtlMap(MemoryMap(), 10, clock)
    store = TimestampedKeyValue("s", Serdes.string(), Serdes.long(), entries)
    store.put("a", ValueAndTimestamp(1, 77))

    before = store.get("a")
    clock.now = 10

    assert (before, store.get("a")) == (ValueAndTimestamp(1, 77), None)


def test_the_ends_of_a_range_are_those_of_what_is_left(clock: Clock) -> None:
    entries = TtlMap(MemoryMap(), 10, clock)
    entries.put(b"a", b"1")
    clock.now = 5
    entries.put(b"b", b"2")
    entries.put(b"c", b"3")

    clock.now = 11

    assert (entries.first(b"a", b"x"), entries.last(b"a", b"x")) == ((b"b", b"2"), (b"c", b"3"))
    assert list(entries.scan(b"b", b"c", reverse=True)) == [(b"b", b"2")]
    assert entries.pop(b"b") == b"2"
