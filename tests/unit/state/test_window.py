"""Window stores: every fetch, in Kafka's order, and what the retention hides."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.durations import MAX_MS
from headrace.errors import StateStoreError
from headrace.records import ValueAndTimestamp
from headrace.serdes import Serdes
from headrace.state.maps import MemorySegments
from headrace.state.segmented_entries import ExpiringEntries, Expiry
from headrace.state.store_times import WindowTimes
from headrace.state.window import WindowEntries, window_by_time
from headrace.windows.window import Window, Windowed

RETENTION = 50
SIZE = 10


class Opened:
    """A store, what it counted as too late, and what it remembers."""

    def __init__(
        self,
        *,
        persistent: bool = True,
        timestamped: bool = False,
        retain_duplicates: bool = False,
        time_first: bool = False,
        retention: int = RETENTION,
        size: int = SIZE,
    ) -> None:
        self.refused = 0
        self.data: MemorySegments[Any, Any] = MemorySegments()
        self.times = WindowTimes()
        self.options: dict[str, Any] = {
            "size_ms": size,
            "timestamped": timestamped,
            "retain_duplicates": retain_duplicates,
            "time_first": time_first,
        }
        self.expiry = Expiry(
            retention, persistent=persistent, keeps_boundary=time_first and persistent
        )
        self.store = self.open()

    def open(self) -> WindowEntries[str, Any]:
        """Return the store over what an earlier one left."""
        by_time = window_by_time if self.options["time_first"] else None
        entries = ExpiringEntries(self.data, self.times, self.expiry, self._refuse, by_time=by_time)
        text, number = Serdes.string(), Serdes.long()
        return WindowEntries("w", text, number, entries, self.times, **self.options)

    def _refuse(self) -> None:
        self.refused += 1

    def put(self, *rows: tuple[str, int, int]) -> None:
        """Put values under a key, at a start."""
        for key, value, start in rows:
            self.store.put(key, value, start)


def windows(found: Any) -> list[tuple[str, int, Any]]:
    return [(windowed.key, windowed.window.start, value) for windowed, value in found]


ROWS = [("a", 1, 0), ("a", 2, 10), ("b", 3, 10), ("a", 4, 25)]


def test_one_window_is_found_by_its_start() -> None:
    opened = Opened()
    opened.put(*ROWS)

    assert opened.store.fetch("a", 10) == 2
    assert opened.store.fetch("a", 11) is None
    assert opened.store.fetch("c", 10) is None


def test_the_windows_of_a_key_come_by_time_both_ways_with_both_bounds_included() -> None:
    opened = Opened()
    opened.put(*ROWS)

    assert list(opened.store.fetch("a", 10, 25)) == [(10, 2), (25, 4)]
    assert list(opened.store.backward_fetch("a", 0, 10)) == [(10, 2), (0, 1)]
    assert list(opened.store.fetch("a", 20, 10)) == []


def test_a_time_may_be_a_datetime() -> None:
    opened = Opened()
    opened.put(("a", 1, 5))

    assert list(opened.store.fetch("a", datetime(1970, 1, 1, tzinfo=UTC), 9)) == [(5, 1)]


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (None, None, ["a", "a", "a", "b"]),
        ("b", None, ["b"]),
        (None, "a", ["a", "a", "a"]),
        ("a", "b", ["a", "a", "a", "b"]),
        ("b", "a", []),
    ],
)
def test_a_range_of_keys_may_be_open_at_either_end(
    first: str | None, last: str | None, expected: list[str]
) -> None:
    opened = Opened()
    opened.put(*ROWS)

    found = [key for key, *_ in windows(opened.store.fetch_range(first, last, 0, 100))]

    assert found == expected
    backward = opened.store.backward_fetch_range(first, last, 0, 100)
    assert [key for key, *_ in windows(backward)] == expected[::-1]


def test_a_range_of_keys_leaves_out_windows_that_start_at_other_times() -> None:
    opened = Opened()
    opened.put(*ROWS)

    assert windows(opened.store.fetch_range("a", "b", 5, 20)) == [("a", 10, 2), ("b", 10, 3)]


def test_a_persistent_store_is_ordered_by_key_then_time() -> None:
    opened = Opened()
    opened.put(*ROWS)
    ordered = [("a", 0, 1), ("a", 10, 2), ("a", 25, 4), ("b", 10, 3)]

    assert windows(opened.store.all()) == ordered
    assert windows(opened.store.backward_all()) == ordered[::-1]
    assert windows(opened.store.fetch_all(5, 25)) == ordered[1:]
    assert windows(opened.store.backward_fetch_all(5, 10)) == [("b", 10, 3), ("a", 10, 2)]


@pytest.mark.parametrize("options", [{"persistent": False}, {"time_first": True}])
def test_a_store_in_memory_or_by_time_is_ordered_by_time_then_key(options: Any) -> None:
    opened = Opened(**options)
    opened.put(*ROWS)
    ordered = [("a", 0, 1), ("a", 10, 2), ("b", 10, 3), ("a", 25, 4)]

    assert windows(opened.store.all()) == ordered
    assert windows(opened.store.backward_all()) == ordered[::-1]
    assert windows(opened.store.fetch_range("a", "b", 5, 25)) == ordered[1:]


def test_segments_come_before_keys() -> None:
    opened = Opened(retention=200_000)
    opened.put(("b", 1, 10), ("a", 2, 150_000), ("c", 3, 20))

    assert [key for key, *_ in windows(opened.store.all())] == ["b", "c", "a"]
    assert [key for key, *_ in windows(opened.store.backward_all())] == ["a", "c", "b"]
    assert list(opened.store.backward_fetch("b", 0, 200_000)) == [(10, 1)]


@pytest.mark.parametrize("time_first", [False, True])
def test_a_segment_in_which_nothing_was_put_is_passed_over(time_first: bool) -> None:
    opened = Opened(retention=200_000, time_first=time_first)
    opened.put(("a", 1, 10), ("a", 2, 250_000))

    assert [start for start, _ in opened.store.fetch("a", 0, 300_000)] == [250_000]
    opened.put(("a", 3, 60_000))
    assert [start for start, _ in opened.store.backward_fetch("a", 0, 300_000)] == [
        250_000,
        60_000,
    ]
    assert [start for _, start, _ in windows(opened.store.all())] == [60_000, 250_000]


def test_a_window_shows_its_end_and_the_last_one_is_cut_where_time_ends() -> None:
    opened = Opened(retention=MAX_MS, size=MAX_MS)
    opened.put(("a", 1, 7))

    assert [key for key, _ in opened.store.all()] == [Windowed("a", Window(7, MAX_MS))]


def test_putting_again_replaces_and_putting_none_deletes() -> None:
    opened = Opened()
    opened.put(("a", 1, 0), ("a", 2, 0), ("b", 3, 0))

    opened.store.put("b", None, 0)
    opened.store.put("c", None, 0)

    assert windows(opened.store.all()) == [("a", 0, 2)]


@pytest.mark.parametrize(
    ("options", "boundary"),
    [({}, None), ({"persistent": False}, None), ({"time_first": True}, 1)],
)
def test_a_window_as_old_as_the_retention_is_seen_only_by_a_persistent_store_by_time(
    options: Any, boundary: int | None
) -> None:
    opened = Opened(**options)

    opened.put(("a", 1, 20), ("a", 2, 21), ("b", 3, 70))

    assert opened.store.fetch("a", 20) == boundary
    assert opened.store.fetch("a", 21) == 2
    assert len(list(opened.store.fetch("a", 0, 100))) == (1 if boundary is None else 2)


def test_a_late_put_into_a_persistent_store_is_silent_while_its_segment_is_there() -> None:
    opened = Opened()
    opened.put(("b", 1, 70))

    opened.put(("a", 2, 20))

    assert (opened.store.fetch("a", 20), opened.refused) == (None, 0)


def test_a_put_into_a_dropped_segment_is_counted() -> None:
    opened = Opened()
    opened.put(("a", 1, 0), ("b", 2, 130_000))

    opened.put(("a", 3, 59_999))
    opened.store.put("a", None, 59_999)

    assert opened.refused == 2
    assert opened.data.numbers() == [2]


def test_a_segment_is_dropped_when_its_last_window_is_as_old_as_the_retention() -> None:
    opened = Opened()
    opened.put(("a", 1, 59_999), ("b", 2, 60_049))
    assert opened.data.numbers() == [0, 1]

    opened.put(("b", 3, 60_050))

    assert opened.data.numbers() == [1]


def test_a_late_put_into_a_store_in_memory_is_counted() -> None:
    opened = Opened(persistent=False)
    opened.put(("b", 1, 70))

    opened.put(("a", 2, 20), ("a", 3, 21))
    opened.store.put("a", None, 20)

    assert (opened.store.fetch("a", 20), opened.store.fetch("a", 21)) == (None, 3)
    assert opened.refused == 2


def test_expired_entries_are_dropped_a_segment_at_a_time() -> None:
    opened = Opened()

    for start in range(0, 600_000, 1000):
        opened.put(("a", 1, start))

    assert opened.data.numbers() == [9]


def test_the_time_of_the_store_is_remembered() -> None:
    opened = Opened()
    opened.put(("a", 1, 10), ("b", 2, 70))

    reopened = opened.open()

    assert windows(reopened.all()) == [("b", 70, 2)]


@pytest.mark.parametrize("persistent", [True, False])
def test_duplicates_are_kept_in_the_order_they_were_put(persistent: bool) -> None:
    opened = Opened(persistent=persistent, retain_duplicates=True)
    opened.put(("a", 1, 10), ("b", 2, 10), ("a", 3, 10), ("a", 4, 5))

    assert list(opened.store.fetch("a", 0, 20)) == [(5, 4), (10, 1), (10, 3)]
    assert list(opened.store.backward_fetch("a", 0, 20)) == [(10, 3), (10, 1), (5, 4)]


def test_none_deletes_no_duplicate() -> None:
    opened = Opened(retain_duplicates=True)
    opened.put(("a", 1, 10))

    opened.store.put("a", None, 10)

    assert list(opened.store.fetch("a", 0, 20)) == [(10, 1)]


def test_none_moves_the_time_of_duplicates_in_memory_only() -> None:
    on_disk, in_memory = (
        Opened(retain_duplicates=True),
        Opened(retain_duplicates=True, persistent=False),
    )
    for opened in (on_disk, in_memory):
        opened.put(("a", 1, 10))

        opened.store.put("a", None, 100)

    assert list(on_disk.store.fetch("a", 0, 20)) == [(10, 1)]
    assert list(in_memory.store.fetch("a", 0, 20)) == []


@pytest.mark.parametrize(("persistent", "found"), [(True, 2), (False, None)])
def test_one_of_several_duplicates_is_found_only_if_it_was_put_last(
    persistent: bool, found: int | None
) -> None:
    opened = Opened(persistent=persistent, retain_duplicates=True)
    opened.put(("a", 1, 10), ("b", 2, 10))

    assert opened.store.fetch("a", 10) is None
    assert opened.store.fetch("b", 10) == found


def test_the_number_of_a_duplicate_is_remembered() -> None:
    opened = Opened(retain_duplicates=True)
    opened.put(("a", 1, 10))

    opened.open().put("a", 2, 10)

    assert list(opened.store.fetch("a", 10, 10)) == [(10, 1), (10, 2)]


def test_a_timestamped_store_shows_values_with_timestamps() -> None:
    opened = Opened(timestamped=True)
    opened.store.put("a", ValueAndTimestamp(1, 17), 10)

    assert opened.store.fetch("a", 10) == ValueAndTimestamp(1, 17)
    assert list(opened.store.fetch("a", 0, 10)) == [(10, ValueAndTimestamp(1, 17))]
    assert opened.store.read("a", 10) == (1, 17)


@pytest.mark.parametrize("nothing", [None, ValueAndTimestamp(None, 5)])
def test_a_timestamped_store_deletes_a_value_that_is_none(nothing: Any) -> None:
    opened = Opened(timestamped=True)
    opened.store.put("a", ValueAndTimestamp(1, 17), 10)

    opened.store.put("a", nothing, 10)

    assert list(opened.store.all()) == []


def test_a_timestamped_store_can_be_seen_with_plain_values() -> None:
    opened = Opened(timestamped=True)
    plain: Any = opened.store.plain_values()

    plain.put("a", 1, 10)
    plain.put("b", 2, 10)
    plain.put("b", None, 10)

    assert (plain.name, plain.persistent) == ("w", True)
    assert plain.fetch("a", 10) == 1
    assert list(plain.fetch("a", 0, 10)) == [(10, 1)]
    assert windows(plain.all()) == [("a", 10, 1)]
    assert opened.store.fetch("a", 10) == ValueAndTimestamp(1, -1)


def test_a_store_of_plain_values_is_its_own_view() -> None:
    opened = Opened()

    assert opened.store.plain_values() is opened.store


def test_scans_give_what_is_stored_and_each_decoding_is_new() -> None:
    opened = Opened(timestamped=True)
    opened.store.write("a", 10, 1, 17)

    ((start, stored),) = opened.store.scan_key("a", 0, 20)

    assert (start, opened.store.value_of(stored), opened.store.timestamp_of(stored)) == (10, 1, 17)
    assert Opened().store.timestamp_of(b"") == -1


def test_a_scan_by_time_finds_every_key() -> None:
    opened = Opened(timestamped=True, time_first=True)
    for key, start in (("b", 10), ("a", 20), ("a", 10), ("c", 30)):
        opened.store.write(key, start, 1, start)
    opened.store.write("b", 10, None)

    found = [(key.key, key.window.start) for key, _ in opened.store.scan_times(10, 20)]

    assert found == [("a", 10), ("a", 20)]
    assert list(opened.store.scan_times(20, 10)) == []


def test_iterators_read_what_was_there_when_they_were_made() -> None:
    opened = Opened()
    opened.put(("a", 1, 0), ("b", 2, 0))

    everything, of_a_key = opened.store.all(), opened.store.fetch("a", 0, 10)
    opened.store.put("a", None, 0)
    opened.put(("c", 3, 0))

    assert windows(everything) == [("a", 0, 1), ("b", 0, 2)]
    assert list(of_a_key) == [(0, 1)]


def test_a_key_of_none_and_a_negative_start_are_refused() -> None:
    opened = Opened()

    with pytest.raises(StateStoreError, match="the key None"):
        opened.store.put(None, 1, 0)  # type: ignore[arg-type]
    with pytest.raises(StateStoreError, match="the window start -1"):
        opened.store.put("a", 1, -1)
    with pytest.raises(StateStoreError, match="the key None"):
        opened.store.fetch(None, 0)  # type: ignore[call-overload]


def test_the_partition_of_a_key_follows_from_its_bytes_alone() -> None:
    assert Opened().store.encoded_key("a") == b"a"
