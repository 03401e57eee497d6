"""Versioned stores: puts, reads as of a time, deletions, history retention."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.errors import StateStoreError
from headrace.records import VersionedRecord
from headrace.serdes import Serdes
from headrace.state.maps import MemoryMap, MemorySegments
from headrace.state.store_times import EntryTimes
from headrace.state.versioned import NOT_PUT, Versioned, segment_ms

LATEST = -1


class Opened:
    """The maps under a store, and how many updates it refused."""

    def __init__(self) -> None:
        self.latest: MemoryMap[Any, Any] = MemoryMap()
        self.history: MemorySegments[Any, Any] = MemorySegments()
        self.times = EntryTimes()
        self.refused = 0

    def store(self, retention_ms: int = 100) -> Versioned[str, int]:
        return Versioned(
            "s",
            Serdes.string(),
            Serdes.long(),
            self.latest,
            self.history,
            self.times,
            retention_ms=retention_ms,
            refused=self._refuse,
        )

    def _refuse(self) -> None:
        self.refused += 1

    def versions(self) -> int:
        segments = [self.history.segment(number) for number in self.history.numbers()]
        return sum(len(segment) for segment in segments)


def values(store: Versioned[str, int], *times: int) -> list[int | None]:
    found = [store.get("k", time) for time in times]
    return [None if record is None else record.value for record in found]


def test_the_latest_version_is_read_without_a_time() -> None:
    store = Opened().store()

    codes = [store.put("k", 1, 10), store.put("k", 2, 20)]

    assert codes == [LATEST, LATEST]
    assert store.get("k") == VersionedRecord(2, 20)
    assert store.get("other") is None


def test_a_version_is_valid_until_the_next_one_begins() -> None:
    store = Opened().store()

    store.put("k", 1, 10)
    store.put("k", 2, 20)

    assert values(store, 9, 10, 19, 20, 500) == [None, 1, 1, 2, 2]
    assert store.get("k", 15) == VersionedRecord(1, 10)


def test_putting_a_late_version_returns_until_when_it_is_valid() -> None:
    store = Opened().store()

    codes = [store.put("k", time, time) for time in (30, 10, 20, 5, 25)]

    assert codes == [LATEST, 30, 30, 10, 30]
    assert values(store, 4, 7, 12, 22, 27, 30) == [None, 5, 10, 20, 25, 30]


def test_a_put_at_the_same_time_replaces_the_version() -> None:
    store = Opened().store()
    store.put("k", 1, 10)
    store.put("k", 2, 20)

    codes = [store.put("k", 3, 20), store.put("k", 4, 10)]

    assert codes == [LATEST, 20]
    assert values(store, 10, 20) == [4, 3]


def test_a_deletion_is_a_version_too() -> None:
    store = Opened().store()

    codes = [store.put("k", 1, 10), store.put("k", None, 20), store.put("k", 3, 15)]

    assert codes == [LATEST, LATEST, 20]
    assert store.get("k") is None
    assert values(store, 10, 15, 19, 20, 30) == [1, 3, 3, None, None]


def test_deletions_alone_end_what_is_put_before_them() -> None:
    store = Opened().store()

    codes = [store.put("k", None, 20), store.put("k", None, 30), store.put("k", 1, 25)]

    assert codes == [LATEST, LATEST, 30]
    assert store.put("k", 2, 10) == 20
    assert values(store, 10, 20, 25, 29, 30) == [2, None, 1, 1, None]


def test_a_deletion_in_the_middle_leaves_a_gap() -> None:
    store = Opened().store()
    store.put("k", 1, 10)
    store.put("k", 2, 30)

    assert store.put("k", None, 20) == 30

    assert values(store, 10, 19, 20, 29, 30) == [1, 1, None, None, 2]


def test_a_version_after_a_deletion_is_the_latest_again() -> None:
    store = Opened().store()
    store.put("k", 1, 10)
    store.put("k", None, 20)

    assert store.put("k", 3, 20) == LATEST

    assert store.put("k", 4, 40) == LATEST
    assert store.put("k", 5, 30) == 40
    assert values(store, 15, 20, 29, 30, 40) == [1, 3, 3, 5, 4]


def test_deleting_the_only_version_at_its_time_forgets_it() -> None:
    store = Opened().store()
    store.put("k", 1, 10)
    store.put("k", None, 10)

    assert store.put("k", 2, 5) == LATEST

    assert values(store, 5, 10) == [2, 2]


def test_delete_returns_the_version_that_was_valid() -> None:
    opened = Opened()
    store = opened.store()
    store.put("k", 1, 10)
    store.put("k", 2, 200)

    deleted = [store.delete("k", 250), store.delete("k", 150), store.delete("k", 99)]

    assert deleted == [VersionedRecord(2, 200), VersionedRecord(1, 10), None]
    assert opened.refused == 1
    assert store.get("k") is None


def test_versions_older_than_the_history_retention_are_refused_and_not_found() -> None:
    opened = Opened()
    store = opened.store()
    store.put("old", 1, 10)
    store.put("k", 1, 10)
    store.put("k", 2, 60)
    store.put("other", 3, 150)

    codes = [store.put("k", 9, 49), store.put("k", 9, 50)]

    assert codes == [NOT_PUT, 60]
    assert opened.refused == 1
    assert values(store, 49, 50, 60) == [None, 9, 2]
    assert store.get("old", 20) == VersionedRecord(1, 10)  # a latest version never expires


def test_history_is_dropped_by_segment() -> None:
    opened = Opened()
    store = opened.store(retention_ms=6_000)

    for time in range(0, 1_000_000, 500):
        store.put("k", time, time)

    assert opened.versions() <= 20
    assert values(store, 993_400, 993_600) == [None, 993_500]


def test_a_version_moves_to_the_segment_in_which_its_validity_ends() -> None:
    store = Opened().store(retention_ms=100_000)
    store.put("k", 1, 1_000)
    store.put("k", 2, 90_000)

    assert store.put("k", 3, 45_000) == 90_000

    assert values(store, 1_000, 44_999, 45_000, 89_999) == [1, 1, 3, 3]
    assert store.get("other", 99_000) is None
    assert store.put("k", 4, 20_000) == 45_000


def test_a_reopened_store_has_the_entries_of_the_one_before() -> None:
    opened = Opened()
    opened.store().put("k", 1, 500)
    store = opened.store()

    assert store.put("k", 2, 399) == NOT_PUT
    assert store.put("k", 2, 400) == 500


def test_times_may_be_datetimes() -> None:
    store = Opened().store()
    store.put("k", 1, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))

    assert store.get("k", datetime(1970, 1, 1, 0, 1, tzinfo=UTC)) == VersionedRecord(1, 1000)


def test_the_key_none_is_refused() -> None:
    store: Any = Opened().store()

    with pytest.raises(StateStoreError, match="Store 's' was asked for the key None"):
        store.put(None, 1, 1)
    assert store.encoded_key("k") == b"k"


@pytest.mark.parametrize(
    ("retention_ms", "expected"),
    [
        (0, 2_000),
        (60_000, 20_000),
        (60_001, 20_000),
        (300_000, 60_000),
        (3_600_000, 300_000),
        (86_400_000, 3_600_000),
    ],
)
def test_segments_are_as_long_as_those_of_kafka(retention_ms: int, expected: int) -> None:
    assert segment_ms(retention_ms) == expected
