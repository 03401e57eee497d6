"""The number of entries of a copy, without a scan for every question."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from headrace import Stores
from headrace.queries import store_views
from headrace.queries.store_views import count_entries
from headrace.state.store_types.base import ChangelogRecord
from tests.unit.queries.copied_stores import CHANGELOG, CopiedStore


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class SlowView:
    """A view whose scans take a second each."""

    def __init__(self, view: Any, clock: Clock) -> None:
        self._view, self._clock = view, clock
        self.scans = 0

    def chunks(self, start: bytes, end: bytes, /, *, reverse: bool = False) -> Iterator[Any]:
        self.scans += 1
        self._clock.now += 1.0
        return iter(self._view.chunks(start, end, reverse=reverse))


class Counted:
    """A copy of a store, and how often its entries were counted."""

    def __init__(self) -> None:
        spec = Stores.key_value("s", str, str)
        self.copy, self.clock, self.scans = CopiedStore(spec), Clock(), 0

    def put(self, *keys: bytes, end: int) -> Any:
        """Return the snapshot after some keys were written, with the end of the changelog."""
        shown = self.copy.apply([ChangelogRecord(key, b"v", 0) for key in keys], {})
        shown.record.ends[CHANGELOG][0] = end
        return shown

    def count(self, shown: Any) -> int:
        view = shown.view
        shown.view = slow = SlowView(view, self.clock)
        try:
            return count_entries(shown, self.copy.store, 0, self.clock)
        finally:
            shown.view = view
            self.scans += slow.scans


def test_a_partition_that_does_not_change_is_counted_once() -> None:
    counted = Counted()
    first = counted.put(b"a", b"b", end=2)
    later = counted.put(end=2)

    assert [counted.count(each) for each in (first, first, later)] == [2, 2, 2]
    assert counted.scans == 1


def test_a_small_partition_is_counted_again_after_each_change() -> None:
    counted = Counted()

    assert counted.count(counted.put(b"a", b"b", end=2)) == 2
    assert counted.count(counted.put(b"c", end=3)) == 3
    assert counted.scans == 2


def test_the_count_of_a_large_partition_stays_for_ten_times_as_long_as_it_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_views, "LARGE_PARTITION", 1)
    counted = Counted()
    assert counted.count(counted.put(b"a", b"b", end=2)) == 2

    changed = counted.put(b"c", end=3)
    counted.clock.now += 9.9
    assert counted.count(changed) == 2

    counted.clock.now += 0.2
    assert counted.count(changed) == 3
    assert counted.scans == 2


def test_a_count_of_another_history_is_not_used() -> None:
    counted = Counted()
    counted.count(counted.put(b"a", b"b", end=2))

    other = counted.put(b"c", end=2)
    other.record = msgspec.structs.replace(other.record, history="other")

    assert counted.count(other) == 3
