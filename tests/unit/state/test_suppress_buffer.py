"""The buffer of `suppress`."""

from __future__ import annotations

from copy import copy
from typing import Any

from headrace import ConsumerRecord, Headers, Serdes
from headrace.durations import MAX_MS
from headrace.records import NO_HEADERS
from headrace.state.maps import MemorySegments
from headrace.state.store_times import SuppressTimes
from headrace.state.suppress_buffer import SuppressBuffer, Waiting


def opened(data: MemorySegments[Any, Any], times: SuppressTimes) -> SuppressBuffer[str, str]:
    return SuppressBuffer("buffer", Serdes.string(), Serdes.string(), data, times)


def new_buffer() -> SuppressBuffer[str, str]:
    return opened(MemorySegments(), SuppressTimes())


def put(
    buffer: SuppressBuffer[str, str], time: int, key: str, new: str | None, old: str | None = None
) -> None:
    record = ConsumerRecord("in", 0, 7, time, None, None, NO_HEADERS)
    buffer.put(time, key, new, old, time, NO_HEADERS, record)


def drained(buffer: SuppressBuffer[str, str]) -> list[Waiting]:
    waiting = []
    while buffer.records:
        waiting.append(buffer.first())
        buffer.remove_first()
    return waiting


def test_changes_come_in_the_order_of_time_then_of_key_bytes() -> None:
    buffer = new_buffer()

    for time, key in ((5, "a"), (3, "z"), (3, "aa"), (3, "b"), (300, "c")):
        put(buffer, time, key, key)

    assert [change.key for change in drained(buffer)] == ["aa", "b", "z", "a", "c"]


def test_a_later_change_takes_the_place_of_the_earlier_one() -> None:
    buffer = new_buffer()

    put(buffer, 3, "a", "1")
    put(buffer, 4, "b", "1")
    put(buffer, 9, "a", "2", "1")

    assert [
        (change.key, change.new, change.old, change.timestamp) for change in drained(buffer)
    ] == [
        ("a", "2", "1", 9),
        ("b", "1", None, 4),
    ]


def test_the_earliest_time_is_known() -> None:
    buffer = new_buffer()

    seen = [buffer.earliest]
    for time, key in ((5, "a"), (3, "b"), (4, "c")):
        put(buffer, time, key, "x")
        seen.append(buffer.earliest)
    while buffer.records:
        buffer.remove_first()
        seen.append(buffer.earliest)

    assert seen == [MAX_MS, 5, 3, 3, 4, 5, MAX_MS]


def test_the_value_before_the_first_change_is_remembered_while_a_key_waits() -> None:
    buffer = new_buffer()

    put(buffer, 3, "a", "2", "1")
    put(buffer, 4, "a", "3", "2")
    put(buffer, 5, "b", "1")

    assert buffer.prior("a") == (True, "1")
    assert buffer.prior("b") == (True, None)
    assert buffer.prior("c") == (False, None)
    buffer.remove_first()
    assert buffer.prior("a") == (False, None)


def test_headers_and_the_place_of_the_record_come_back() -> None:
    buffer = new_buffer()
    headers = Headers([("h", b"1"), ("none", None), ("h", b"")])
    record = ConsumerRecord("topic", 3, 42, 1, b"k", b"v", headers)

    buffer.put(9, "a", None, "old", 2, headers, record)

    place = ConsumerRecord("topic", 3, 42, 2, None, None, headers)
    assert buffer.first() == Waiting("a", None, "old", 2, headers, place)


def test_a_change_without_an_input_record_has_no_place() -> None:
    buffer = new_buffer()

    buffer.put(9, "a", "new", None, 2, NO_HEADERS, None)

    assert buffer.first().record is None


def test_bytes_are_counted_as_kafka_counts_them() -> None:
    buffer = new_buffer()
    topic = len("in")

    put(buffer, 1, "key", "new", "old")
    first = buffer.bytes
    put(buffer, 2, "key", "newer", "new")
    second = buffer.bytes
    buffer.put(3, "k", None, None, 3, Headers([("h", b"12"), ("i", None)]), None)
    third = buffer.bytes
    drained(buffer)

    # Time, timestamp, offset, partition; an old value that is also the prior one counts once.
    assert first == 28 + topic + 3 + 3 + 3
    assert second == 28 + topic + 3 + 3 + 3 + 5
    assert third - second == 28 + 1 + (1 + 2) + 1
    assert buffer.bytes == 0


def test_a_reopened_buffer_keeps_its_changes() -> None:
    data: MemorySegments[Any, Any] = MemorySegments()
    times = SuppressTimes()
    buffer = opened(data, times)
    put(buffer, 5, "a", "1")
    put(buffer, 3, "b", "1")

    again = opened(data, copy(times))

    assert (again.earliest, again.records, again.bytes) == (3, 2, buffer.bytes)
    assert [change.key for change in drained(again)] == ["b", "a"]


def test_the_first_entry_follows_earlier_and_replaced_changes() -> None:
    buffer = new_buffer()
    put(buffer, 5, "b", "1")
    put(buffer, 9, "c", "1")

    seen = [buffer.first().new]
    put(buffer, 6, "b", "2")
    seen.append(buffer.first().new)
    put(buffer, 5, "a", "3")
    seen.append(buffer.first().new)
    buffer.remove_first()
    put(buffer, 7, "d", "4")

    assert seen == ["1", "2", "3"]
    assert [change.key for change in drained(buffer)] == ["b", "d", "c"]
