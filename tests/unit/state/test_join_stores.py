"""The stores in which joins of streams buffer records."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.durations import MAX_MS
from headrace.errors import StateStoreError
from headrace.records import NO_HEADERS, ConsumerRecord, Headers
from headrace.serdes import Serdes
from headrace.state.join_stores import LEFT, RIGHT, JoinBuffer, Unmatched
from headrace.state.maps import MemoryMap
from headrace.state.store_times import JoinBufferTimes, UnmatchedTimes

FAR = 1000


def unmatched(
    data: MemoryMap[Any, Any] | None = None, times: UnmatchedTimes | None = None
) -> Unmatched[str]:
    values = (Serdes.string(), Serdes.long())
    times = times or UnmatchedTimes()
    return Unmatched("s", Serdes.string(), values, data or MemoryMap(), times, persistent=True)


def rows(store: Unmatched[str], left_until: int, right_until: int) -> list[tuple[int, Any, int]]:
    closed = store.closed(left_until, right_until)
    return [(record.side, record.value, record.timestamp) for record in closed]


def test_closed_records_come_by_time_then_right_before_left_then_key() -> None:
    store = unmatched()
    store.add(LEFT, "a", 1, 5)
    store.add(LEFT, "b", 2, 4)
    store.add(LEFT, "a", 3, 4)
    store.add(RIGHT, "z", "r", 4)

    assert rows(store, FAR, FAR) == [(RIGHT, "r", 4), (LEFT, 3, 4), (LEFT, 2, 4), (LEFT, 1, 5)]


def test_each_side_closes_at_its_own_time() -> None:
    store = unmatched()
    for side, value in ((LEFT, 1), (RIGHT, "r")):
        store.add(side, "a", value, 4)

    assert rows(store, 5, 4) == [(LEFT, 1, 4)]
    assert rows(store, 4, 5) == [(RIGHT, "r", 4)]


def test_records_of_one_key_and_time_are_all_kept_and_removed_together() -> None:
    store = unmatched()
    store.add(LEFT, "a", 1, 4)
    store.add(LEFT, "a", 2, 4)
    store.add(RIGHT, "a", "r", 4)

    before = rows(store, FAR, FAR)
    store.remove(LEFT, "a", 4)

    assert before == [(RIGHT, "r", 4), (LEFT, 1, 4), (LEFT, 2, 4)]
    assert rows(store, FAR, FAR) == [(RIGHT, "r", 4)]


def test_emitted_records_are_forgotten() -> None:
    store = unmatched()
    store.add(LEFT, "a", 1, 4)

    store.forget(store.closed(FAR, FAR)[0].entry_key)

    assert store.closed(FAR, FAR) == []


def test_the_times_survive() -> None:
    times = UnmatchedTimes()
    data: MemoryMap[Any, Any] = MemoryMap()
    first = unmatched(data, times)
    first.advance(9)
    first.add(LEFT, "a", 1, 4)

    second = unmatched(data, times)

    assert (second.stream_time, second.earliest) == (9, 4)
    assert (second.name, second.persistent) == ("s", True)


@pytest.mark.parametrize(
    ("records", "until", "expected"),
    [
        pytest.param([], (5, 5), MAX_MS, id="nothing waits"),
        pytest.param([(LEFT, 1), (LEFT, 3)], (5, 5), 3, id="all closed: the last one"),
        pytest.param([(LEFT, 1), (LEFT, 6), (LEFT, 8)], (5, 5), 8, id="one side: the last one"),
        pytest.param(
            [(LEFT, 6), (RIGHT, 7), (LEFT, 9), (LEFT, 12)], (5, 5), 9, id="behind both: left"
        ),
        pytest.param(
            [(LEFT, 6), (RIGHT, 7), (RIGHT, 9), (LEFT, 10)], (5, 5), 9, id="behind both: right"
        ),
        pytest.param([(RIGHT, 6), (LEFT, 7), (RIGHT, 8)], (5, 5), 8, id="behind a left one"),
        pytest.param([(RIGHT, 6), (LEFT, 7)], (5, 5), 7, id="nothing behind"),
        pytest.param(
            [(RIGHT, 6), (LEFT, 7), (LEFT, 7), (LEFT, 9)], (5, 5), 7, id="two of one place"
        ),
    ],
)
def test_the_earliest_time_is_that_of_the_last_record_kafka_looks_at(
    records: list[tuple[int, int]], until: tuple[int, int], expected: int
) -> None:
    store = unmatched()
    for side, time in records:
        store.add(side, "a", 1 if side == LEFT else "r", time)

    store.look(*until)

    assert store.earliest == expected


def buffer(times: JoinBufferTimes | None = None, grace_ms: int = 5) -> JoinBuffer[str, int]:
    times = times or JoinBufferTimes()
    data: MemoryMap[Any, Any] = MemoryMap()
    return JoinBuffer("s", Serdes.string(), Serdes.long(), data, times, grace_ms=grace_ms)


def put(store: JoinBuffer[str, int], *rows: tuple[str, int, int]) -> list[bool]:
    return [store.put(key, value, time, NO_HEADERS, None) for key, value, time in rows]


def test_records_wait_until_the_grace_is_over() -> None:
    store = buffer()

    waits = put(store, ("a", 1, 10), ("a", 2, 12), ("b", 3, 15))

    assert waits == [True] * 3
    assert [(due.key, due.value, due.timestamp) for due in store.due()] == [("a", 1, 10)]


def test_a_record_that_is_late_need_not_wait() -> None:
    store = buffer()

    assert put(store, ("a", 1, 10), ("a", 2, 5), ("a", 3, 4)) == [True, True, False]


def test_records_that_are_due_come_by_time_key_and_arrival() -> None:
    store = buffer(grace_ms=0)
    put(store, ("b", 1, 3), ("a", 2, 3), ("b", 3, 3))

    assert [due.value for due in store.due()] == [2, 1, 3]


def test_a_record_comes_out_with_what_it_came_with() -> None:
    store = buffer(grace_ms=0)
    headers = Headers([("h", b"\x00"), ("n", None), ("h", b"")])
    origin = ConsumerRecord("topic", 2, 7, 3, b"k", b"v", headers)

    store.put("a", 1, 3, headers, origin)
    (due,) = store.due()
    store.forget(due.buffer_key)

    assert (due.key, due.value, due.timestamp, due.headers) == ("a", 1, 3, headers)
    assert due.origin == origin._replace(key=None, value=None)
    assert store.due() == []


def test_a_record_of_a_punctuation_has_no_origin() -> None:
    store = buffer(grace_ms=0)
    put(store, ("a", 1, 3))

    assert store.due()[0].origin is None


def test_the_time_of_a_buffer_survives() -> None:
    times = JoinBufferTimes()
    put(buffer(times), ("a", 1, 10))

    assert put(buffer(times), ("a", 2, 4)) == [False]


def test_a_record_without_a_key_cannot_wait() -> None:
    store: Any = buffer()

    with pytest.raises(StateStoreError, match="Store 's' was asked for the key None"):
        put(store, (None, 1, 1))  # type: ignore[arg-type]  # that is the point
