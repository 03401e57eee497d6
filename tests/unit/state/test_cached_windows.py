"""The record cache of window and session stores."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.records import NO_HEADERS, Headers, ValueAndTimestamp
from headrace.serdes import Serdes
from headrace.state.cache import CacheBudget
from headrace.state.cached_windows import CachedSession, CachedWindow
from headrace.state.maps import MemorySegments
from headrace.state.segmented_entries import ExpiringEntries, Expiry
from headrace.state.store_times import EntryTimes
from headrace.state.window import window_by_time
from headrace.windows.window import Window, Windowed

LARGE = 10**6
RETENTION = 50


class Cached:
    """A cached store of either kind, the entries behind it, and what went downstream."""

    def __init__(
        self,
        *,
        max_bytes: int = LARGE,
        persistent: bool = True,
        timestamped: bool = True,
        time_first: bool = False,
        old_values: bool = True,
    ) -> None:
        self.data: MemorySegments[Any, Any] = MemorySegments()
        self.holder: Any = SimpleNamespace(record=None, timestamp=-1)
        self.emitted: list[tuple[Any, ...]] = []
        self.entries = ExpiringEntries(
            self.data,
            EntryTimes(),
            Expiry(RETENTION, persistent=persistent, keeps_boundary=time_first),
            lambda: None,
            by_time=window_by_time if time_first else None,
        )
        cache = CacheBudget(max_bytes, self.holder)
        lists = Serdes.list_of(Serdes.long())
        self.windows: CachedWindow[str, Any] = CachedWindow(
            "w",
            Serdes.string(),
            lists,
            self.entries,
            {},
            cache=cache,
            size_ms=10,
            timestamped=timestamped,
            time_first=time_first,
        )
        self.sessions: CachedSession[str, Any] = CachedSession(
            "s", Serdes.string(), lists, self.entries, cache=cache
        )
        for store in (self.windows, self.sessions):
            store.on_flush(self._emit, old_values=old_values)

    def _emit(self, *change: Any) -> None:
        self.emitted.append(change)

    def changes(self) -> list[tuple[Any, ...]]:
        """Return key, new and old value of what went downstream."""
        return [change[:3] for change in self.emitted]


def window(key: str, start: int) -> Windowed[str]:
    return Windowed(key, Window(start, start + 10))


def session(key: str, start: int, end: int) -> Windowed[str]:
    return Windowed(key, Window(start, end))


def starts(found: Any) -> list[tuple[str, int]]:
    return [(windowed.key, windowed.window.start) for windowed, _ in found]


# -- windows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("time_first", [False, True])
def test_a_write_is_held_back_and_can_be_read(time_first: bool) -> None:
    cached = Cached(time_first=time_first)

    cached.windows.write("a", 10, [1], 12)

    assert cached.windows.read("a", 10) == ([1], 12)
    assert cached.windows.read("a", 20) is None
    assert cached.windows.fetch("a", 10) == ValueAndTimestamp([1], 12)
    assert (cached.data.numbers(), cached.emitted) == ([], [])


@pytest.mark.parametrize("time_first", [False, True])
def test_a_flush_emits_each_window_once_with_what_the_store_had(time_first: bool) -> None:
    cached = Cached(time_first=time_first)
    cached.windows.write("a", 10, [1], 12)
    cached.windows.flush()

    cached.windows.write("b", 10, [2], 13)
    cached.windows.write("a", 10, [1, 2], 14, Headers([("h", b"1")]))
    cached.windows.write("a", 10, [1, 2, 3], 15)
    cached.windows.flush()

    assert cached.emitted == [
        (window("a", 10), [1], None, 12, NO_HEADERS),
        (window("b", 10), [2], None, 13, NO_HEADERS),
        (window("a", 10), [1, 2, 3], [1], 15, NO_HEADERS),
    ]
    assert cached.windows.read("a", 10) == ([1, 2, 3], 15)


def test_a_window_that_is_deleted_before_it_was_written_is_not_mentioned() -> None:
    cached = Cached()
    cached.windows.write("a", 10, [1], 12)

    cached.windows.write("a", 10, None, 13)
    cached.windows.flush()

    assert cached.emitted == []
    assert cached.windows.fetch("a", 10) is None


def test_a_window_that_was_written_is_deleted_at_the_next_flush() -> None:
    cached = Cached(old_values=False)
    cached.windows.write("a", 10, [1], 12)
    cached.windows.flush()

    cached.windows.write("a", 10, None, 13)

    assert cached.windows.read("a", 10) is None
    assert list(cached.windows.all()) == []
    cached.windows.flush()
    assert cached.changes()[1:] == [(window("a", 10), None, [1])]


def test_scans_see_what_is_held_laid_over_what_is_stored() -> None:
    cached = Cached()
    for key, start in (("a", 10), ("a", 20), ("b", 10)):
        cached.windows.write(key, start, [1], start)
    cached.windows.flush()

    cached.windows.write("a", 20, None, 20)
    cached.windows.write("a", 15, [2], 15)
    cached.windows.write("c", 0, [3], 0)

    assert starts(cached.windows.all()) == [("a", 10), ("a", 15), ("b", 10), ("c", 0)]
    assert [start for start, _ in cached.windows.backward_fetch("a", 0, 30)] == [15, 10]
    assert [start for start, _ in cached.windows.fetch("a", 15, 15)] == [15]
    assert starts(cached.windows.fetch_range("b", None, 0, 30)) == [("b", 10), ("c", 0)]
    assert starts(cached.windows.fetch_range(None, "a", 12, 30)) == [("a", 15)]
    assert starts(cached.windows.fetch_range("c", "a", 0, 30)) == []


@pytest.mark.parametrize(
    "options", [{"time_first": True}, {"persistent": False}], ids=["by time", "in memory"]
)
def test_stores_by_time_stay_so_behind_a_cache(options: Any) -> None:
    cached = Cached(**options)
    cached.windows.write("a", 20, [1], 20)
    cached.windows.flush()

    cached.windows.write("b", 10, [2], 10)
    cached.windows.write("c", 30, [3], 30)

    assert starts(cached.windows.all()) == [("b", 10), ("a", 20), ("c", 30)]
    assert starts(cached.windows.scan_times(15, 30)) == [("a", 20), ("c", 30)]
    assert [start for start, _ in cached.windows.fetch("b", 0, 30)] == [10]
    assert [start for start, _ in cached.windows.fetch("d", 0, 30)] == []


def test_the_store_behind_learns_of_a_new_time_only_at_a_flush() -> None:
    cached = Cached()
    cached.windows.write("a", 10, [1], 10)
    cached.windows.flush()

    cached.windows.write("b", 100, [2], 100)

    assert cached.entries.time == 10
    cached.windows.flush()
    assert cached.entries.time == 100


def test_a_cached_entry_is_visible_whatever_its_age() -> None:
    cached = Cached()
    cached.windows.write("a", 10, [1], 10)
    cached.windows.write("b", 100, [2], 100)

    cached.windows.flush()

    assert cached.entries.get(10, (b"a", 10)) is None
    assert cached.windows.read("a", 10) == ([1], 10)


def test_a_scan_gives_copies_that_may_be_changed() -> None:
    cached = Cached()
    cached.windows.write("a", 10, [1], 12)

    ((_, stored),) = cached.windows.scan_key("a", 0, 20)
    cached.windows.value_of(stored).append(2)

    assert cached.windows.timestamp_of(stored) == 12
    assert cached.windows.read("a", 10) == ([1], 12)


def test_the_next_update_does_not_change_a_forwarded_value() -> None:
    cached = Cached()
    cached.windows.write("a", 10, [1], 12)
    cached.windows.flush()

    found = cached.windows.read("a", 10)
    assert found is not None
    found[0].append(2)

    assert cached.changes() == [(window("a", 10), [1], None)]


def test_a_cached_store_of_plain_values_keeps_no_timestamps() -> None:
    cached = Cached(timestamped=False)

    cached.windows.put("a", [1], 10)
    cached.windows.flush()
    cached.windows.put("a", [2], 20)

    assert [value for _, value in cached.windows.all()] == [[1], [2]]
    assert cached.windows.fetch("a", 20) == [2]


def test_a_full_cache_writes_the_window_used_longest_ago_and_all_other_changes() -> None:
    cached = Cached(max_bytes=250)

    for start in (10, 20, 30):
        cached.windows.write("a", start, [1], start)

    assert [key.window.start for key, *_ in cached.changes()] == [10, 20, 30]
    assert [value.value for _, value in cached.windows.all()] == [[1], [1], [1]]


# -- sessions -----------------------------------------------------------------------------------


def test_a_session_that_replaces_itself_is_one_update() -> None:
    cached = Cached()
    cached.sessions.write("a", 0, 5, [1])
    cached.sessions.flush()

    cached.sessions.discard("a", 0, 5)
    cached.sessions.write("a", 0, 5, [2])
    cached.sessions.flush()

    assert cached.changes() == [
        (session("a", 0, 5), [1], None),
        (session("a", 0, 5), [2], [1]),
    ]


def test_a_session_that_grew_is_a_deletion_and_an_update() -> None:
    cached = Cached()
    cached.sessions.write("a", 0, 5, [1])
    cached.sessions.flush()

    cached.sessions.discard("a", 0, 5)
    cached.sessions.write("a", 0, 9, [2])
    cached.sessions.flush()

    assert cached.changes()[1:] == [
        (session("a", 0, 5), None, [1]),
        (session("a", 0, 9), [2], None),
    ]
    assert cached.sessions.fetch_session("a", 0, 5) is None
    assert cached.sessions.fetch_session("a", 0, 9) == [2]


def test_sessions_are_found_in_the_cache_and_behind_it() -> None:
    cached = Cached()
    cached.sessions.write("a", 0, 5, [1])
    cached.sessions.write("b", 0, 5, [2])
    cached.sessions.flush()
    cached.sessions.write("a", 20, 25, [3])

    held_and_stored = cached.sessions.find("a", 0, 30)

    assert [(start, end) for start, end, _ in held_and_stored] == [(0, 5), (20, 25)]
    assert [cached.sessions.value_of(stored) for *_, stored in held_and_stored] == [[1], [3]]
    assert cached.sessions.find("c", 0, 30) == []
    assert starts(cached.sessions.backward_fetch("a")) == [("a", 20), ("a", 0)]
    assert starts(cached.sessions.all()) == [("a", 0), ("a", 20), ("b", 0)]
    assert starts(cached.sessions.fetch_range("a", None)) == [("a", 0), ("a", 20), ("b", 0)]
    assert starts(cached.sessions.fetch_range(None, "a")) == [("a", 0), ("a", 20)]
    assert starts(cached.sessions.fetch_range("b", "a")) == []
    assert cached.sessions.fetch_session("a", 1, 5) is None


def test_a_session_in_the_cache_counts_until_it_is_forgotten() -> None:
    cached = Cached(max_bytes=200)

    for end in (0, 10, 20):
        cached.sessions.write("a", end, end, [1])

    assert [key.window.end for key, *_ in cached.changes()] == [0, 10, 20]
    assert [value for _, value in cached.sessions.fetch("a")] == [[1], [1], [1]]
