"""Key-value stores over an ordered map."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import StateStoreError
from headrace.records import ValueAndTimestamp
from headrace.serdes import Serdes
from headrace.state.key_value import (
    BaseKeyValue,
    KeyValue,
    PlainValues,
    TimestampedKeyValue,
    end_of_prefix,
)
from headrace.state.maps import MemoryMap

PAIRS = [("a", 1), ("b", 2), ("ba", 3), ("c", 4)]


def plain() -> KeyValue[str, int]:
    return KeyValue("s", Serdes.string(), Serdes.long(), MemoryMap(), persistent=True)


def facade() -> PlainValues[str, int]:
    return PlainValues(timestamped())


def timestamped() -> TimestampedKeyValue[str, int]:
    return TimestampedKeyValue("s", Serdes.string(), Serdes.long(), MemoryMap())


@pytest.fixture(params=[plain, facade])
def store(request: pytest.FixtureRequest) -> Any:
    """A store of plain values: one that is, and one that shows timestamped values so."""
    made = request.param()
    made.put_all(PAIRS)
    return made


def test_entries_are_read_in_key_order(store: Any) -> None:
    assert list(store.all()) == PAIRS
    assert list(store.reverse_all()) == PAIRS[::-1]


def test_a_range_includes_both_ends_and_may_be_open(store: Any) -> None:
    assert list(store.range("b", "c")) == PAIRS[1:]
    assert list(store.range("b", "b")) == PAIRS[1:2]
    assert list(store.range("b")) == PAIRS[1:]
    assert list(store.range(None, "b")) == PAIRS[:2]
    assert list(store.reverse_range("b", "c")) == PAIRS[:0:-1]


def test_a_range_that_ends_before_it_starts_is_empty(store: Any) -> None:
    assert list(store.range("c", "a")) == []


def test_a_prefix_scan_finds_the_keys_that_start_so(store: Any) -> None:
    assert list(store.prefix_scan("b")) == PAIRS[1:3]
    assert list(store.prefix_scan("x")) == []


def test_put_if_absent_keeps_what_is_there(store: Any) -> None:
    assert (store.put_if_absent("a", 9), store.get("a")) == (1, 1)
    assert (store.put_if_absent("d", 9), store.get("d")) == (None, 9)


def test_delete_returns_what_was_there(store: Any) -> None:
    assert (store.delete("a"), store.get("a"), store.delete("a")) == (1, None, None)


def test_storing_none_deletes(store: Any) -> None:
    store.put("a", None)

    assert list(store.all()) == PAIRS[1:]
    assert store.approximate_num_entries() == 3


def test_a_store_has_its_name_and_the_bytes_of_a_key(store: Any) -> None:
    assert (store.name, store.encoded_key("a")) == ("s", b"a")


@pytest.mark.parametrize("method", ["get", "delete", "prefix_scan"])
def test_the_key_none_is_refused(store: Any, method: str) -> None:
    with pytest.raises(StateStoreError, match="Store 's' was asked for the key None"):
        getattr(store, method)(None)


def test_a_timestamped_store_reads_and_writes_value_and_time() -> None:
    store = timestamped()

    store.write("a", 1, 7)

    assert store.read("a") == (1, 7)
    assert store.get("a") == ValueAndTimestamp(1, 7)
    assert (store.read("x"), store.get("x")) == (None, None)


def test_a_timestamped_store_is_put_with_both() -> None:
    store = timestamped()

    store.put("a", ValueAndTimestamp(1, 7))
    store.put("b", ValueAndTimestamp(2, 8))
    store.put("b", None)
    store.put("c", ValueAndTimestamp(3, 9))
    store.put("c", ValueAndTimestamp(None, 9))  # type: ignore[arg-type]  # null value, null wrapper

    assert list(store.all()) == [("a", ValueAndTimestamp(1, 7))]


def test_writing_none_deletes() -> None:
    store = timestamped()
    store.write("a", 1, 7)

    store.write("a", None, 8)

    assert store.read("a") is None


def test_a_plain_value_that_is_put_has_no_time() -> None:
    store = timestamped()

    PlainValues(store).put("a", 1)

    assert store.read("a") == (1, -1)


def test_a_base_store_leaves_the_encoding_to_its_kinds() -> None:
    base: BaseKeyValue[str, int] = BaseKeyValue("s", Serdes.string(), MemoryMap())

    with pytest.raises(NotImplementedError):
        base.put("a", 1)
    base._data.put(b"a", b"1")
    with pytest.raises(NotImplementedError):
        base.get("a")


@pytest.mark.parametrize(
    ("prefix", "end"),
    [(b"a", b"b"), (b"a\xff", b"b"), (b"\x00", b"\x01"), (b"\xff\xff", None), (b"", None)],
)
def test_the_end_of_a_prefix_is_the_first_key_after_it(prefix: bytes, end: bytes | None) -> None:
    assert end_of_prefix(prefix) == end
