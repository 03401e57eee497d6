"""Behaviour of `join` and `left_join` of a stream with a table."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import (
    Materialized,
    ProcessingError,
    Processor,
    Record,
    StreamsBuilder,
    Topology,
    TopologyError,
)
from headrace.testing import DriverFactory, TopologyTestDriver

Row = tuple[str, str | None, str | None, int]
"""Topic, key, value, timestamp."""

VERSIONED = Materialized("table", history_retention="1s")


def pair(value: str, other: str | None) -> str:
    if value == "bad":
        raise ValueError("bad value")
    return f"{value}-{other}"


def joined(kind: str, stored: Materialized | None = None, **options: Any) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("stream", key=str, value=str)
    table = builder.table("table", key=str, value=str, materialized=stored)
    getattr(stream, kind)(table, pair, value=str, **options).to("out")
    return builder.build()


def pipe(driver: TopologyTestDriver, *rows: Row) -> None:
    for topic, key, value, timestamp in rows:
        driver.create_input_topic(topic).pipe_input(key, value, timestamp=timestamp)


def read(driver: TopologyTestDriver) -> list[tuple[str | None, str, int]]:
    records = driver.create_output_topic("out").read_records_to_list()
    return [(record.key, record.value, record.timestamp) for record in records]


def dropped(driver: TopologyTestDriver) -> float:
    return sum(n for name, n in driver.metrics().items() if "dropped-records-total" in str(name))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("join", [("k", "B-a", 5), ("k", "D-d", 15)]),
        ("left_join", [("k", "A-None", 3), ("k", "B-a", 5), ("k", "C-None", 9), ("k", "D-d", 15)]),
    ],
)
def test_each_record_is_joined_with_what_the_table_has(
    topology_driver: DriverFactory, kind: str, expected: list[Any]
) -> None:
    driver = topology_driver(joined(kind))

    pipe(driver, ("stream", "k", "A", 3), ("table", "k", "a", 4), ("stream", "k", "B", 5))
    pipe(driver, ("table", "k", None, 8), ("stream", "k", "C", 9), ("table", "k", "d", 14))
    pipe(driver, ("stream", "k", "D", 15))

    assert read(driver) == expected


def test_a_plain_table_has_its_last_value_whatever_its_time(topology_driver: DriverFactory) -> None:
    driver = topology_driver(joined("join"))

    pipe(driver, ("table", "k", "a", 100), ("table", "k", "b", 50), ("stream", "k", "A", 1))

    assert read(driver) == [("k", "A-b", 1)]


def test_a_versioned_table_is_read_as_of_the_records_time(topology_driver: DriverFactory) -> None:
    driver = topology_driver(joined("left_join", VERSIONED))

    pipe(driver, ("table", "k", "b", 20), ("table", "k", "a", 10), ("table", "k", None, 30))
    pipe(driver, *[("stream", "k", "A", time) for time in (5, 10, 25, 30)])

    values = [value for _, value, _ in read(driver)]
    assert values == ["A-None", "A-a", "A-b", "A-None"]


def test_a_table_stays_versioned_through_filter_and_map_values(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("stream", key=str, value=str)
    table = builder.table("table", key=str, value=str, materialized=VERSIONED)
    shown = table.filter(lambda _, value: value != "b").map_values(str.upper, value=str)
    stream.left_join(shown, pair, value=str).to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("table", "k", "a", 10), ("table", "k", "b", 20), ("table", "k", "c", 30))
    pipe(driver, *[("stream", "k", "A", time) for time in (15, 25, 35)])

    assert [value for _, value, _ in read(driver)] == ["A-A", "A-None", "A-C"]


@pytest.mark.parametrize(
    ("kind", "rows", "drops"),
    [("join", [], 3), ("left_join", [(None, "A-None", 2)], 2)],
)
def test_records_without_key_or_value(
    topology_driver: DriverFactory, kind: str, rows: list[Any], drops: int
) -> None:
    driver = topology_driver(joined(kind))

    pipe(driver, ("stream", "k", None, 1), ("stream", None, "A", 2), ("stream", None, None, 3))

    assert read(driver) == rows
    assert dropped(driver) == drops


def test_a_stream_whose_key_changed_is_repartitioned_once_for_all_its_joins(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("stream", key=str, value=str).select_key(lambda _, v: v[0], key=str)
    table = builder.table("table", key=str, value=str)
    stream.join(table, pair, value=str).to("out")
    stream.left_join(table, pair, value=str).to("other")
    stream.join(table, pair, value=str, name="j").to("named")
    topology = builder.build()
    driver = topology_driver(topology, partitions=4)

    pipe(driver, ("table", "a", "x", 1), ("stream", "k", "a1", 2), ("stream", "k", "b1", 3))

    assert read(driver) == [("a", "a1-x", 2)]
    assert driver.create_output_topic("other").queue_size == 2
    assert driver.create_output_topic("named").queue_size == 1
    assert (
        str(topology.describe()).count("(topics: [KSTREAM-KEY-SELECT-0000000001-repartition])") == 1
    )
    assert "(topics: [j-repartition])" in str(topology.describe())


class LosesKeys(Processor[str, str, Any, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_key(None))


def test_a_left_join_keeps_records_without_a_key_through_a_repartition(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("stream", key=str, value=str)
    stream = stream.process(LosesKeys, key=str, value=str)
    stream.left_join(builder.table("table", key=str, value=str), pair, value=str).to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("stream", "k", "A", 1))

    assert read(driver) == [(None, "A-None", 1)]


def test_sides_that_ask_for_different_partitions_are_refused() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("stream", key=str, value=str).repartition(partitions=2)
    table = builder.stream("table", key=str, value=str).repartition(partitions=3).to_table()
    stream.join(table, pair, value=str).to("out")

    with pytest.raises(TopologyError, match="must have the same number of partitions"):
        builder.build().describe()


def test_a_joiner_that_raises_is_left_to_the_handler(topology_driver: DriverFactory) -> None:
    stops = topology_driver(joined("left_join"))
    goes_on = topology_driver(joined("left_join"), processing_exception_handler="continue")

    with pytest.raises(ProcessingError, match="bad value"):
        pipe(stops, ("stream", "k", "bad", 1))
    pipe(goes_on, ("stream", "k", "bad", 1), ("stream", "k", "A", 2))

    assert read(goes_on) == [("k", "A-None", 2)]
    assert dropped(goes_on) == 1


def test_with_a_grace_records_wait_for_late_updates_of_the_table(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(joined("left_join", VERSIONED, grace=5))

    pipe(driver, ("stream", "k", "A", 10), ("stream", "k", "B", 12), ("table", "k", "late", 9))
    before = read(driver)
    pipe(driver, ("stream", "j", "C", 15))

    assert before == []
    assert read(driver) == [("k", "A-late", 10)]


def test_with_a_grace_a_late_record_is_joined_at_once(topology_driver: DriverFactory) -> None:
    driver = topology_driver(joined("join", VERSIONED, grace=5))

    pipe(driver, ("table", "k", "a", 1), ("stream", "k", "A", 20), ("stream", "k", "B", 14))
    pipe(driver, ("stream", "j", "C", 30), ("stream", "j", "D", 40))

    assert read(driver) == [("k", "B-a", 14), ("k", "A-a", 20)]


class Shows(Processor[str, str, str, str]):
    """Adds the offset of the input record."""

    def process(self, record: Record[str, str]) -> None:
        metadata = self.context.record_metadata
        assert metadata is not None
        self.context.forward(record.with_value(f"{record.value}@{metadata.offset}"))


def test_a_record_that_waited_keeps_its_headers_and_metadata(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("stream", key=str, value=str)
    table = builder.table("table", key=str, value=str, materialized=VERSIONED)
    waited = stream.left_join(table, pair, value=str, grace=5)
    waited.process(Shows, key=str, value=str).to("out")
    driver = topology_driver(builder.build())

    topic = driver.create_input_topic("stream")
    topic.pipe_input("k", "A", timestamp=1, headers=[("h", b"1")])
    topic.pipe_input("k", "B", timestamp=9, headers=[("h", b"2")])

    record = driver.create_output_topic("out").read_record()
    assert record.value == "A-None@0"
    assert record.headers == [("h", b"1")]


def test_with_a_grace_records_without_key_or_value(topology_driver: DriverFactory) -> None:
    inner = topology_driver(joined("join", VERSIONED, grace=5))
    left = topology_driver(joined("left_join", VERSIONED, grace=5))

    pipe(inner, ("stream", None, "A", 1), ("stream", "k", None, 2))

    assert dropped(inner) == 2
    with pytest.raises(ProcessingError, match="was asked for the key None"):
        pipe(left, ("stream", None, "A", 1))


def test_with_a_grace_a_record_that_cannot_be_joined_is_retried(
    topology_driver: DriverFactory,
) -> None:
    topology = joined("left_join", VERSIONED, grace=5)
    driver = topology_driver(topology, processing_exception_handler="continue")

    pipe(driver, ("stream", "k", "bad", 1), ("stream", "k", "A", 6), ("stream", "k", "B", 20))

    assert read(driver) == []
    assert dropped(driver) == 2


@pytest.mark.parametrize(
    ("stored", "grace", "message"),
    [
        (None, 5, "has a `grace`, but its table is not versioned"),
        (VERSIONED, 1001, "is longer than the table remembers \\(1000 ms\\)"),
        (VERSIONED, -1, "`grace` of step 'KSTREAM-JOIN-.*' is negative"),
    ],
)
def test_a_grace_needs_a_table_that_remembers(
    stored: Materialized | None, grace: int, message: str
) -> None:
    with pytest.raises(TopologyError, match=message):
        joined("join", stored, grace=grace)
