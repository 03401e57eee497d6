"""Behaviour of `KTable.suppress`."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import (
    FixedKeyProcessor,
    FixedKeyRecord,
    Headers,
    KTable,
    Materialized,
    ProcessingError,
    Record,
    SessionWindows,
    StreamsBuilder,
    SuppressBufferFullError,
    Suppressed,
    TimeWindows,
    TopologyError,
    Window,
    Windowed,
)
from headrace.testing import DriverFactory, TopologyTestDriver


def pipe(driver: TopologyTestDriver, *rows: tuple[str, str | None, int]) -> None:
    topic = driver.create_input_topic("in")
    for key, value, timestamp in rows:
        topic.pipe_input(key, value, timestamp=timestamp)


def read(driver: TopologyTestDriver) -> list[tuple[Any, Any, int]]:
    records: list[Record[Any, Any]] = driver.create_output_topic("out").read_records_to_list()
    return [(record.key, record.value, record.timestamp) for record in records]


def windowed_counts(builder: StreamsBuilder, *, grace: int = 0) -> KTable[Windowed[str], int]:
    stream = builder.stream("in", key=str, value=str)
    return stream.group_by_key().windowed_by(TimeWindows(10, grace=grace)).count()


def test_a_change_waits_and_the_last_one_is_emitted_when_the_time_has_passed(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=str, value=str)
    table.suppress(Suppressed.until_time_limit(5)).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("a", "1", 0), ("a", "2", 3), ("b", "1", 4))
    before = read(driver)
    pipe(driver, ("c", "1", 5))

    assert before == []
    assert read(driver) == [("a", "2", 3)]


def test_a_later_change_does_not_restart_the_time_limit(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=str, value=str)
    table.suppress(Suppressed.until_time_limit(5)).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("a", "1", 0), ("a", "2", 4), ("a", "3", 5))

    assert read(driver) == [("a", "3", 5)]


def test_no_time_at_all_emits_every_change(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=str, value=str)
    table.suppress(Suppressed.until_time_limit(0)).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("a", "1", 3), ("a", None, 3))

    assert read(driver) == [("a", "1", 3), ("a", None, 3)]


def test_the_result_of_a_window_is_emitted_once_when_it_closes(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    windowed_counts(builder, grace=2).suppress(Suppressed.until_window_closes()).to_stream().to(
        "out"
    )
    driver = topology_driver(builder.build())

    pipe(driver, ("a", "x", 1), ("a", "y", 9), ("b", "x", 11), ("a", "late", 2))
    before = read(driver)
    pipe(driver, ("b", "x", 12))

    assert before == []
    assert read(driver) == [(Windowed("a", Window(0, 10)), 3, 9)]


def test_the_end_of_a_session_is_awaited_with_its_gap(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    sessions = builder.stream("in", key=str, value=str).group_by_key()
    counts = sessions.windowed_by(SessionWindows(5, grace=1)).count()
    counts.suppress(Suppressed.until_window_closes()).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("a", "x", 0), ("a", "x", 3), ("b", "x", 8))
    before = read(driver)
    pipe(driver, ("b", "x", 9))

    assert before == []
    assert read(driver) == [(Windowed("a", Window(0, 3)), 2, 3)]


def test_the_longest_wait_of_all_parents_counts(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    short, long = (
        builder.stream(topic, key=str, value=str)
        .group_by_key()
        .windowed_by(TimeWindows(10, grace=grace))
        .count()
        for topic, grace in (("short", 1), ("long", 4))
    )
    joined = short.join(long, lambda one, other: one + other, value=int)
    joined.suppress(Suppressed.until_window_closes()).to_stream().to("out")
    driver = topology_driver(builder.build())

    for topic, timestamp in (("short", 1), ("long", 2), ("short", 13), ("long", 13)):
        driver.create_input_topic(topic).pipe_input("a", "x", timestamp=timestamp)
    before = read(driver)
    for topic in ("short", "long"):
        driver.create_input_topic(topic).pipe_input("a", "x", timestamp=14)

    assert before == []
    assert read(driver) == [(Windowed("a", Window(0, 10)), 2, 2)]


def test_a_deletion_in_a_window_is_not_emitted(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    few = windowed_counts(builder).filter(lambda _, count: count < 2)
    few.suppress(Suppressed.until_window_closes()).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("a", "x", 1), ("a", "x", 2), ("b", "x", 3), ("c", "x", 15))

    assert read(driver) == [(Windowed("b", Window(0, 10)), 1, 3)]


def test_a_full_buffer_emits_the_earliest_changes_early(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=str, value=str)
    table.suppress(Suppressed.until_time_limit("1d", max_records=2)).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("b", "1", 1), ("a", "1", 1), ("b", "2", 5), ("c", "1", 0))
    first = read(driver)
    pipe(driver, ("d", "1", 9))

    assert first == [("c", "1", 0)]
    assert read(driver) == [("a", "1", 1)]


def test_a_limit_in_bytes_counts_what_waits(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=str, value=str)
    table.suppress(Suppressed.until_time_limit("1d", max_bytes=100)).to_stream().to("out")
    driver = topology_driver(builder.build())

    # Each entry counts 28 bytes, its key, its values and the name of the topic.
    pipe(driver, ("a", "1", 1), ("b", "1", 2), ("c", "1", 3), ("c", "x" * 10, 4))

    assert read(driver) == [("a", "1", 1)]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"max_records": 1}, "1 records"),
        ({"max_bytes": 40}, "40 bytes"),
        ({"max_records": 1, "max_bytes": 40}, "1 records and 40 bytes"),
    ],
)
def test_a_full_buffer_that_may_not_emit_stops_the_application(
    topology_driver: DriverFactory, limits: dict[str, Any], said: str
) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=str, value=str)
    table.suppress(
        Suppressed.until_time_limit("1d", when_full="shut_down", name="wait", **limits)
    ).to_stream().to("out")
    driver = topology_driver(builder.build())
    pipe(driver, ("a", "1", 1))

    with pytest.raises(SuppressBufferFullError, match=f"'wait' exceeded its limit of {said}"):
        pipe(driver, ("b", "1", 2))


def test_a_handler_that_continues_lets_a_full_buffer_grow(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=str, value=str)
    table.suppress(
        Suppressed.until_time_limit(9, max_records=1, when_full="shut_down")
    ).to_stream().to("out")
    driver = topology_driver(builder.build(), processing_exception_handler="continue")

    pipe(driver, ("a", "1", 1), ("b", "1", 2), ("c", "1", 20))

    assert [key for key, _, _ in read(driver)] == ["a", "b"]


def test_an_emitted_result_comes_from_the_record_of_the_last_change(
    topology_driver: DriverFactory,
) -> None:
    class Offsets(FixedKeyProcessor[str, str, str]):
        def process(self, record: FixedKeyRecord[str, str]) -> None:
            metadata = self.context.record_metadata
            place = None if metadata is None else (metadata.topic, metadata.offset)
            self.context.forward(record.with_value(f"{record.value} from {place}"))

    builder = StreamsBuilder()
    table = builder.table("in", key=str, value=str)
    emitted = table.suppress(Suppressed.until_time_limit(5)).to_stream()
    emitted.process_values(Offsets, value=str).to("out")
    driver = topology_driver(builder.build())

    topic = driver.create_input_topic("in")
    topic.pipe_input("a", "1", timestamp=0, headers=[("h", b"1")])
    topic.pipe_input("a", "2", timestamp=1, headers=[("h", b"2"), ("g", None)])
    topic.pipe_input("b", "1", timestamp=9)

    headers = Headers([("h", b"2"), ("g", None)])
    expected = Record("a", "2 from ('in', 1)", 1, headers)
    assert driver.create_output_topic("out").read_records_to_list() == [expected]


def test_the_old_value_that_is_emitted_is_that_of_the_last_change(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=str, value=str)
    waiting = table.suppress(Suppressed.until_time_limit(5))
    waiting.group_by(lambda _, value: (value[0], value), key=str, value=str).reduce(
        lambda total, value: f"{total}+{value}", lambda total, value: f"{total}-{value}"
    ).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("k", "x1", 0), ("k", "x2", 6), ("k", "x3", 7), ("k", "y1", 8), ("l", "z", 12))

    # x2 was emitted with x1 as its old value, y1 with x3, which was never added.
    assert read(driver) == [("x", "x2", 6), ("x", "x2-x3", 8), ("y", "y1", 8)]


def test_a_suppressed_table_can_be_suppressed_again(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=str, value=str)
    once = table.suppress(Suppressed.until_time_limit(2))
    once.suppress(Suppressed.until_time_limit(4)).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("a", "1", 0), ("a", "2", 2), ("b", "1", 3), ("b", "2", 6), ("c", "1", 9))

    assert read(driver) == [("a", "2", 2)]


@pytest.mark.parametrize(
    ("suppressed", "fine"),
    [
        (Suppressed.until_time_limit(5), False),
        (Suppressed.until_time_limit(5, logging=False), True),
        (Suppressed.until_time_limit(5, name="wait"), True),
    ],
)
def test_the_name_of_a_logged_buffer_must_be_given_where_names_must(
    topology_driver: DriverFactory, suppressed: Suppressed, fine: bool
) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=str, value=str, materialized="table")
    table.suppress(suppressed)
    topology = builder.build()

    if fine:
        topology_driver(topology, ensure_explicit_internal_resource_naming=True)
    else:
        with pytest.raises(TopologyError, match="store 'KTABLE-SUPPRESS-STATE-STORE-"):
            topology_driver(topology, ensure_explicit_internal_resource_naming=True)


def test_without_windows_there_is_no_end_to_wait_for() -> None:
    builder = StreamsBuilder()
    table: Any = builder.table("in", key=str, value=str)

    with pytest.raises(TopologyError, match="waits for windows to close, but 'KSTREAM-SOURCE"):
        table.suppress(Suppressed.until_window_closes())


def test_keys_that_lost_their_window_have_no_end_to_wait_for(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    grouped = windowed_counts(builder).group_by(lambda key, n: (key.key, n), key=str, value=int)
    grouped.count().suppress(Suppressed.until_window_closes(name="wait"))
    driver = topology_driver(builder.build())

    with pytest.raises(ProcessingError, match=r"'wait' failed .* no attribute 'window'"):
        pipe(driver, ("a", "x", 1))


def test_a_versioned_table_cannot_be_suppressed() -> None:
    builder = StreamsBuilder()
    stored = Materialized("versions", history_retention="1h")
    table = builder.table("in", key=str, value=str, materialized=stored)

    with pytest.raises(TopologyError, match="'wait' suppresses a versioned table"):
        table.suppress(Suppressed.until_time_limit(5, name="wait"))


def test_a_table_computed_from_a_versioned_one_cannot_be_suppressed() -> None:
    builder = StreamsBuilder()
    stored = Materialized("versions", history_retention="1h")
    table = builder.table("in", key=str, value=str, materialized=stored)
    table.filter(lambda *_: True).suppress(Suppressed.until_time_limit(5, name="wait"))

    with pytest.raises(TopologyError, match="'wait' suppresses a versioned table"):
        builder.build().describe()
