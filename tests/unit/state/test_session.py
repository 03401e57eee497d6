"""Session stores: every fetch, in Kafka's order, and what the retention hides."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import StateStoreError
from headrace.serdes import Serdes
from headrace.state.maps import MemorySegments
from headrace.state.segmented_entries import ExpiringEntries, Expiry
from headrace.state.session import (
    SessionEntries,
    session_by_time,
    session_in_memory_by_time,
)
from headrace.state.store_times import EntryTimes
from headrace.windows.window import Window, Windowed

RETENTION = 5000


class Opened:
    """A store and what it counted as too late."""

    def __init__(
        self, *, persistent: bool = True, time_first: bool = False, retention: int = RETENTION
    ) -> None:
        self.refused = 0
        self.data: MemorySegments[Any, Any] = MemorySegments()
        by_time = session_by_time if persistent else session_in_memory_by_time
        entries = ExpiringEntries(
            self.data,
            EntryTimes(),
            Expiry(retention, persistent=persistent),
            self._refuse,
            by_time=by_time if time_first else None,
        )
        self.store = SessionEntries("s", Serdes.string(), Serdes.long(), entries)

    def _refuse(self) -> None:
        self.refused += 1

    def put(self, *rows: tuple[str, int, int, int]) -> None:
        """Put values under a key, from a start to an end."""
        for key, value, start, end in rows:
            self.store.put(session(key, start, end), value)


def session(key: str, start: int, end: int) -> Windowed[str]:
    return Windowed(key, Window(start, end))


def sessions(found: Any) -> list[tuple[str, int, int]]:
    return [(windowed.key, windowed.window.start, windowed.window.end) for windowed, _ in found]


ROWS = [("a", 1, 10, 10), ("a", 2, 500, 1000), ("a", 3, 1500, 2000), ("a", 4, 2500, 3000)]


def test_sessions_are_found_by_when_they_end_and_start() -> None:
    opened = Opened()
    opened.put(*ROWS, ("b", 5, 500, 1000))

    assert sessions(opened.store.find_sessions("a", 0, 1000)) == [
        ("a", 10, 10),
        ("a", 500, 1000),
    ]
    assert sessions(opened.store.find_sessions("a", 400, 600)) == [("a", 500, 1000)]
    assert sessions(opened.store.backward_find_sessions("a", 1000, 1500)) == [
        ("a", 1500, 2000),
        ("a", 500, 1000),
    ]


def test_the_sessions_of_a_key_come_by_time_both_ways() -> None:
    opened = Opened()
    opened.put(*ROWS, ("b", 5, 500, 1000))

    found = list(opened.store.fetch("a"))

    assert [value for _, value in found] == [1, 2, 3, 4]
    assert list(opened.store.backward_fetch("a")) == found[::-1]


def test_one_session_is_found_by_its_exact_start_and_end() -> None:
    opened = Opened()
    opened.put(*ROWS)

    assert opened.store.fetch_session("a", 500, 1000) == 2
    assert opened.store.fetch_session("a", 500, 999) is None
    assert opened.store.fetch_session("b", 500, 1000) is None


def test_a_range_of_keys_may_be_open_at_either_end() -> None:
    opened = Opened()
    opened.put(("b", 1, 0, 5), ("a", 2, 20, 25), ("c", 3, 0, 5))
    keys = [("a", 20, 25), ("b", 0, 5), ("c", 0, 5)]

    assert sessions(opened.store.all()) == keys
    assert sessions(opened.store.backward_all()) == keys[::-1]
    assert sessions(opened.store.fetch_range("b", None)) == keys[1:]
    assert sessions(opened.store.fetch_range(None, "b")) == keys[:2]
    assert sessions(opened.store.backward_fetch_range("a", "b")) == keys[1::-1]
    assert sessions(opened.store.fetch_range("c", "a")) == []


def test_a_store_in_memory_is_ordered_by_end_then_key_then_latest_start() -> None:
    opened = Opened(persistent=False)
    opened.put(("b", 1, 0, 5), ("a", 2, 20, 25), ("c", 3, 0, 5), ("b", 4, 3, 5))
    ordered = [("b", 3, 5), ("b", 0, 5), ("c", 0, 5), ("a", 20, 25)]

    assert sessions(opened.store.all()) == ordered
    assert sessions(opened.store.backward_all()) == ordered[::-1]
    assert sessions(opened.store.fetch("b")) == ordered[:2]


def test_putting_again_replaces_and_putting_none_or_removing_deletes() -> None:
    opened = Opened()
    opened.put(("a", 1, 0, 5), ("a", 2, 0, 5), ("b", 3, 0, 5), ("c", 4, 0, 5))

    opened.store.put(session("b", 0, 5), None)
    opened.store.remove(session("c", 0, 5))
    opened.store.remove(session("d", 0, 5))

    assert list(opened.store.all()) == [(session("a", 0, 5), 2)]


@pytest.mark.parametrize("persistent", [True, False])
def test_a_session_that_ended_the_retention_ago_is_not_seen(persistent: bool) -> None:
    opened = Opened(persistent=persistent)

    opened.put(("a", 1, 0, 100), ("a", 2, 0, 101), ("b", 3, 5100, 5100))

    assert sessions(opened.store.fetch("a")) == [("a", 0, 101)]
    assert opened.store.fetch_session("a", 0, 100) is None


def test_a_late_session_is_counted_in_memory_and_in_a_dropped_segment() -> None:
    on_disk, in_memory = Opened(), Opened(persistent=False)
    for opened in (on_disk, in_memory):
        opened.put(("b", 1, 130_000, 130_000), ("a", 2, 0, 124_000), ("a", 3, 0, 50_000))

    assert (on_disk.refused, in_memory.refused) == (1, 2)


def test_removing_moves_the_time_of_a_persistent_store_only() -> None:
    on_disk, in_memory = Opened(), Opened(persistent=False)
    for opened in (on_disk, in_memory):
        opened.put(("a", 1, 0, 100))

        opened.store.remove(session("b", 9000, 9000))

    assert sessions(on_disk.store.all()) == []
    assert sessions(in_memory.store.all()) == [("a", 0, 100)]


def test_expired_entries_are_dropped_a_segment_at_a_time() -> None:
    opened = Opened()

    for end in range(0, 600_000, 1000):
        opened.put(("a", 1, end, end))

    assert opened.data.numbers() == [9]


def test_sessions_that_closed_come_by_end_then_start_then_key() -> None:
    opened = Opened(time_first=True)
    opened.put(("b", 1, 0, 5), ("a", 2, 3, 5), ("a", 3, 0, 5), ("c", 4, 9, 9), ("d", 5, 0, 10))

    found = sessions(opened.store.scan_ends(5, 9))

    assert found == [("a", 0, 5), ("b", 0, 5), ("a", 3, 5), ("c", 9, 9)]


def test_sessions_past_the_retention_are_still_emitted_from_a_persistent_store_only() -> None:
    on_disk = Opened(time_first=True)
    in_memory = Opened(time_first=True, persistent=False)
    for opened in (on_disk, in_memory):
        opened.put(("a", 1, 0, 5), ("b", 2, 9000, 9000))

    assert sessions(on_disk.store.scan_ends(0, 10)) == [("a", 0, 5)]
    assert sessions(in_memory.store.scan_ends(0, 10)) == []


def test_operations_find_sessions_as_they_are_stored() -> None:
    opened = Opened()
    opened.put(*ROWS)

    ((start, end, stored),) = opened.store.find("a", 400, 600)

    assert (start, end, opened.store.value_of(stored)) == (500, 1000, 2)


def test_a_key_of_none_is_refused() -> None:
    with pytest.raises(StateStoreError, match="the key None"):
        Opened().store.put(Windowed(None, Window(0, 1)), 1)  # type: ignore[arg-type]
    with pytest.raises(StateStoreError, match="the key None"):
        Opened().store.fetch(None)  # type: ignore[arg-type]


def test_the_partition_of_a_session_follows_from_the_bytes_of_its_key() -> None:
    assert Opened().store.encoded_key("a") == b"a"
