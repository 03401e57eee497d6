"""The record cache of key-value stores: which entries it holds, until when, in which order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headrace.records import NO_HEADERS, ConsumerRecord, Headers, ValueAndTimestamp
from headrace.serdes import Serdes
from headrace.state.cache import CacheBudget, CachedTimestampedKeyValue
from headrace.state.maps import MemoryMap

LARGE = 10**6


class Cached:
    """A cached store, what is in the map below it, and what went downstream."""

    def __init__(self, max_bytes: int = LARGE, *, old_values: bool = True) -> None:
        self.data: MemoryMap[bytes, Any] = MemoryMap()
        self.holder: Any = SimpleNamespace(record=None, timestamp=-1)
        self.cache = CacheBudget(max_bytes, self.holder)
        self.emitted: list[tuple[Any, ...]] = []
        self.store = self.opened()
        self.store.on_flush(lambda *change: self.emitted.append(change), old_values=old_values)

    def opened(self, name: str = "s") -> CachedTimestampedKeyValue[str, str]:
        data = self.data if name == "s" else MemoryMap[bytes, Any]()
        text = Serdes.string()
        return CachedTimestampedKeyValue(name, text, text, data, cache=self.cache)

    def changes(self) -> list[tuple[Any, ...]]:
        """Return key, new and old value of what went downstream."""
        return [change[:3] for change in self.emitted]


def test_a_write_is_held_back_and_can_be_read() -> None:
    cached = Cached()

    cached.store.write("a", "1", 5)

    assert cached.store.read("a") == ("1", 5)
    assert cached.store.get("a") == ValueAndTimestamp("1", 5)
    assert (len(cached.data), cached.emitted) == (0, [])


def test_a_flush_writes_the_last_value_of_each_key_in_the_order_of_the_last_writes() -> None:
    cached = Cached()
    for key, value in (("a", "1"), ("b", "2"), ("c", "3"), ("a", "4")):
        cached.store.write(key, value, 0)

    cached.store.flush()

    assert cached.changes() == [("b", "2", None), ("c", "3", None), ("a", "4", None)]
    assert [key for key, _ in cached.data.scan()] == [b"a", b"b", b"c"]


def test_a_second_flush_has_nothing_to_say() -> None:
    cached = Cached()
    cached.store.write("a", "1", 0)
    cached.store.flush()
    cached.emitted.clear()

    cached.store.flush()

    assert cached.emitted == []


def test_the_old_value_is_the_one_of_the_last_flush() -> None:
    cached = Cached()
    cached.store.write("a", "1", 0)
    cached.store.flush()
    cached.store.write("a", "2", 0)
    cached.store.write("a", "3", 0)

    cached.store.flush()

    assert cached.changes() == [("a", "1", None), ("a", "3", "1")]


def test_a_deletion_is_written_and_emitted() -> None:
    cached = Cached()
    cached.store.write("a", "1", 0)
    cached.store.flush()
    cached.store.write("a", None, 0)

    held = cached.store.read("a")
    cached.store.flush()

    assert held is None
    assert cached.changes()[1:] == [("a", None, "1")]
    assert len(cached.data) == 0


def test_a_key_that_came_and_went_is_neither_written_nor_emitted() -> None:
    cached = Cached()
    cached.store.write("a", "1", 0)
    cached.store.write("a", None, 0)

    cached.store.flush()

    assert (cached.emitted, len(cached.data)) == ([], 0)


def test_a_deletion_of_nothing_is_not_emitted_without_old_values_either() -> None:
    cached = Cached(old_values=False)
    cached.store.write("a", None, 0)

    cached.store.flush()

    assert cached.emitted == []


def test_time_and_headers_are_those_of_the_last_update() -> None:
    cached = Cached()
    headers = Headers([("h", b"2")])
    cached.store.write("a", "1", 9, Headers([("h", b"1")]))
    cached.store.write("a", "2", 4, headers)

    cached.store.flush()

    assert cached.emitted == [("a", "2", None, 4, headers)]


def test_downstream_sees_the_record_of_the_last_update() -> None:
    cached = Cached()
    seen: list[Any] = []
    cached.store.on_flush(lambda *_: seen.append(cached.holder.record))
    first, last, now = (ConsumerRecord("t", 0, n, 0, None, None) for n in range(3))
    for record in (first, last):
        cached.holder.record = record
        cached.store.write("a", "1", 0)
    cached.holder.record = now

    cached.store.flush()

    assert seen == [last]
    assert cached.holder.record is now


def test_the_record_of_the_task_comes_back_although_downstream_fails() -> None:
    cached = Cached()

    def fail(*_: Any) -> None:
        raise ValueError

    cached.store.on_flush(fail)
    cached.store.write("a", "1", 0)
    cached.holder.record = now = ConsumerRecord("t", 0, 0, 0, None, None)

    try:
        cached.store.flush()
    except ValueError:
        failed = True

    assert failed
    assert cached.holder.record is now


def test_a_full_cache_evicts_the_least_recently_used_entry() -> None:
    cached = Cached(max_bytes=250)
    for key in "abc":
        cached.store.write(key, "1" * 20, 0)
    cached.store.read("a")

    cached.store.write("d", "1" * 20, 0)

    assert cached.cache.used_bytes <= 250
    assert cached.changes()[0][0] == "b"


def test_larger_values_take_more_room() -> None:
    small, large = Cached(), Cached()

    small.store.write("a", "1", 0)
    large.store.write("a", "1" * 1000, 0)

    assert large.cache.used_bytes - small.cache.used_bytes == 999


def test_a_cache_smaller_than_an_entry_holds_nothing_back() -> None:
    cached = Cached(max_bytes=1)

    cached.store.write("a", "1", 0)
    cached.store.write("a", "2", 0)

    assert cached.changes() == [("a", "1", None), ("a", "2", "1")]
    assert cached.cache.used_bytes == 0


def test_stores_of_a_task_share_the_room() -> None:
    cached = Cached(max_bytes=200)
    other = cached.opened("other")
    other.write("a", "1" * 100, 0)

    cached.store.write("b", "1" * 100, 0)

    assert cached.changes() == [("b", "1" * 100, None)]


def test_an_entry_read_from_below_is_decoded_once() -> None:
    cached = Cached()
    cached.data.put(b"a", (b"1", 7))

    first, second = cached.store.read("a"), cached.store.read("a")

    assert first == second == ("1", 7)
    assert cached.store.read("x") is None
    assert cached.store.get("x") is None


def test_a_read_is_not_a_change() -> None:
    cached = Cached()
    cached.data.put(b"a", (b"1", 7))
    cached.store.read("a")

    cached.store.flush()

    assert cached.emitted == []


def test_a_scan_merges_what_is_held_with_what_is_below() -> None:
    cached = Cached()
    for key in ("a", "b", "d", "e"):
        cached.data.put(key.encode(), (b"old", 1))
    cached.store.write("b", "new", 2)
    cached.store.write("c", "new", 2)
    cached.store.write("d", None, 2)
    cached.store.read("e")

    old, new = ValueAndTimestamp("old", 1), ValueAndTimestamp("new", 2)
    everything = [("a", old), ("b", new), ("c", new), ("e", old)]
    assert list(cached.store.all()) == everything
    assert list(cached.store.reverse_all()) == everything[::-1]
    assert list(cached.store.range("b", "d")) == everything[1:3]
    assert list(cached.store.range("d", "b")) == []


def test_a_written_entry_is_still_found_after_the_flush() -> None:
    cached = Cached()
    cached.store.write("a", "1", 5)
    cached.store.flush()

    assert cached.store.read("a") == ("1", 5)
    assert list(cached.store.all()) == [("a", ValueAndTimestamp("1", 5))]


def test_a_change_made_to_a_value_after_the_flush_stays_with_its_maker() -> None:
    data: MemoryMap[bytes, Any] = MemoryMap()
    cache = CacheBudget(LARGE, SimpleNamespace(record=None, timestamp=-1))
    lists: Any = Serdes.json(list)
    store: CachedTimestampedKeyValue[str, list[int]] = CachedTimestampedKeyValue(
        "s", Serdes.string(), lists, data, cache=cache
    )
    emitted: list[list[int]] = []
    store.on_flush(lambda _key, new, *_: emitted.append(new))
    store.write("a", [1], 0)
    store.flush()

    emitted[0].append(99)

    assert store.read("a") == ([1], 0)


def test_a_store_without_a_listener_only_writes() -> None:
    cached = Cached()
    store = cached.opened()
    store.write("a", "1", 5, NO_HEADERS)
    store.write("b", None, 5, NO_HEADERS)

    store.flush()

    assert list(cached.data.scan()) == [(b"a", (b"1", 5))]
