"""Changes in the bytes of Kafka's changelog topics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace import Stores, ValueAndTimestamp, Window, Windowed
from headrace.state.changelog import Changes
from headrace.state.maps import MemoryStores
from headrace.state.specs import StoreBuilder
from headrace.state.store_types.base import Opening
from headrace.state.store_types.lookup import logged_type_of
from headrace.testing import MockProcessorContext

NOW = 7
RETENTION: dict[str, Any] = {"retention": 100, "size": 10}


class Logged:
    """A store whose changes are noted."""

    def __init__(self, spec: StoreBuilder[Any]) -> None:
        self.context: Any = MockProcessorContext()
        store_type = logged_type_of(spec)
        self.changelog = store_type.new_changelog("topic", lambda: NOW)
        times = store_type.times()
        opening = Opening(MemoryStores(), self.context, times, self.changelog)
        self.store = store_type.open(opening)

    def taken(self) -> list[tuple[bytes | None, bytes | None, int]]:
        """Return keys, values and timestamps of what changed."""
        timestamps, keys, values = self.changelog.take()
        return list(zip(keys, values, timestamps, strict=True))


def number(value: int, size: int = 8) -> bytes:
    return value.to_bytes(size, "big")


def test_a_plain_value_is_written_as_it_is_with_the_time_of_the_record() -> None:
    logged = Logged(Stores.key_value("s", str, int))
    logged.store.put("a", 1)

    assert logged.taken() == [(b"a", number(1), NOW)]


def test_a_value_with_a_timestamp_has_that_and_is_written_without_it() -> None:
    logged = Logged(Stores.timestamped_key_value("s", str, int))
    logged.store.put("a", ValueAndTimestamp(1, 5))

    assert logged.taken() == [(b"a", number(1), 5)]


def test_the_last_change_of_each_key_is_taken_once() -> None:
    logged = Logged(Stores.key_value("s", str, int))
    for key, value in [("b", 1), ("a", 2), ("b", 3)]:
        logged.store.put(key, value)

    assert logged.taken() == [(b"b", number(3), NOW), (b"a", number(2), NOW)]
    assert logged.changelog.take() == Changes([], [], [])


def test_a_deletion_has_no_value_and_one_of_nothing_is_not_logged() -> None:
    logged = Logged(Stores.timestamped_key_value("s", str, int))
    logged.store.put("a", ValueAndTimestamp(1, 5))
    logged.store.delete("a")
    logged.store.delete("b")

    assert logged.taken() == [(b"a", None, NOW)]


def test_the_key_of_a_window_is_followed_by_its_start_and_a_sequence_number() -> None:
    logged = Logged(Stores.window("s", str, int, **RETENTION))
    logged.store.put("a", 1, 20)

    assert logged.taken() == [(b"a" + number(20) + number(0, 4), number(1), NOW)]


def test_values_of_one_window_differ_in_their_sequence_numbers() -> None:
    logged = Logged(Stores.window("s", str, int, retain_duplicates=True, **RETENTION))
    logged.store.put("a", 1, 20)
    logged.store.put("a", 2, 20)

    sequences = [(key[-4:], value) for key, value, _ in logged.taken() if key]
    assert sequences == [(number(1, 4), number(1)), (number(2, 4), number(2))]


def test_a_window_may_have_a_timestamp() -> None:
    logged = Logged(Stores.timestamped_window("s", str, int, **RETENTION))
    logged.store.put("a", ValueAndTimestamp(1, 25), 20)
    logged.store.put("b", ValueAndTimestamp(1, 25), 20)
    logged.store.put("a", None, 20)

    start = number(20) + number(0, 4)
    assert logged.taken() == [(b"a" + start, None, NOW), (b"b" + start, number(1), 25)]


def test_the_key_of_a_session_is_followed_by_its_end_and_its_start() -> None:
    logged = Logged(Stores.session("s", str, int, retention=100))
    logged.store.put(Windowed("a", Window(20, 30)), 1)
    logged.store.put(Windowed("a", Window(50, 60)), 2)
    logged.store.remove(Windowed("a", Window(20, 30)))

    assert logged.taken() == [
        (b"a" + number(30) + number(20), None, NOW),
        (b"a" + number(60) + number(50), number(2), NOW),
    ]


def test_each_version_is_written_with_the_time_it_is_valid_from() -> None:
    logged = Logged(Stores.versioned_key_value("s", str, int, history_retention=100))
    for value, timestamp in [(1, 10), (2, 30), (3, 20), (None, 30)]:
        logged.store.put("a", value, timestamp)

    assert logged.taken() == [
        (b"a", number(1), 10),
        (b"a", number(2), 30),
        (b"a", number(3), 20),
        (b"a", None, 30),
    ]


def test_a_write_that_comes_too_late_is_not_logged() -> None:
    windows = Logged(Stores.window("s", str, int, persistent=False, **RETENTION))
    windows.store.put("a", 1, 500)
    windows.store.put("a", 2, 20)
    versions = Logged(Stores.versioned_key_value("s", str, int, history_retention=100))
    versions.store.put("a", 1, 500)
    versions.store.put("a", 2, 20)

    assert len(windows.taken()) == 1
    assert versions.taken() == [(b"a", number(1), 500)]


def test_windows_that_expire_are_not_deleted_one_by_one() -> None:
    logged = Logged(Stores.window("s", str, int, **RETENTION))
    logged.store.put("a", 1, 0)
    logged.taken()
    logged.store.put("a", 2, 10_000_000)

    assert [value for _, value, _ in logged.taken()] == [number(2)]


def test_an_evicted_entry_is_deleted() -> None:
    logged = Logged(Stores.lru_map("s", str, int, capacity=1))
    logged.store.put("a", 1)
    logged.store.put("b", 2)

    assert logged.taken() == [(b"a", None, NOW), (b"b", number(2), NOW)]


def test_a_map_without_room_logs_no_change() -> None:
    logged = Logged(Stores.lru_map("s", str, int, capacity=0))
    logged.store.put("a", 1)

    assert logged.taken() == []


def test_an_expired_entry_is_deleted_when_the_changes_are_taken() -> None:
    logged = Logged(Stores.key_value("s", str, int, ttl=10))
    logged.store.put("a", 1)
    logged.taken()
    logged.context.stream_time = 100

    assert logged.taken() == [(b"a", None, NOW)]


def test_no_timestamp_is_negative() -> None:
    logged = Logged(Stores.timestamped_key_value("s", str, int))
    logged.store.put("a", ValueAndTimestamp(1, -1))

    assert logged.taken() == [(b"a", number(1), 0)]


@pytest.mark.parametrize(
    "differing",
    [{"logging": False}, {"generated_name": True}, {"joins": True}, {"kind": "suppress_buffer"}],
)
def test_only_a_named_store_with_logging_can_be_queried(differing: dict[str, Any]) -> None:
    store = Stores.key_value("s", str, int, logging={})

    assert store.queryable
    assert not replace(store, **differing).queryable
