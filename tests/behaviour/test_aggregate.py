"""Behaviour of `count`, `reduce` and `aggregate` of grouped streams."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from headrace import (
    KGroupedStream,
    Materialized,
    MissingSerdeError,
    ProcessingError,
    Record,
    StreamsBuilder,
    TopologyError,
    aggregators,
)
from headrace.testing import DriverFactory, TopologyTestDriver

Row = tuple[str | None, str | None, int]
UNCACHED: Any = {"statestore_cache_max_bytes": 0}


def grouped(builder: StreamsBuilder) -> KGroupedStream[str, str]:
    return builder.stream("in", key=str, value=str).group_by_key()


def pipe(driver: TopologyTestDriver, *rows: Row) -> None:
    topic = driver.create_input_topic("in")
    for key, value, timestamp in rows:
        topic.pipe_input(key, value, timestamp=timestamp)


def read(driver: TopologyTestDriver) -> list[tuple[Any, Any, int]]:
    records: list[Record[Any, Any]] = driver.create_output_topic("out").read_records_to_list()
    return [(record.key, record.value, record.timestamp) for record in records]


def dropped(driver: TopologyTestDriver) -> float:
    metrics = driver.metrics().items()
    return sum(count for name, count in metrics if name.name == "dropped-records-total")


def joined(_key: str, value: str, text: str) -> str:
    return text + value


def none_at_dash(_key: str, value: str, text: str | None) -> str | None:
    return None if value == "-" else f"{text}{value}"


def test_records_are_counted_by_key_with_the_latest_timestamp(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    grouped(builder).count(materialized="counts").to_stream().to("out")
    driver = topology_driver(builder.build(), **UNCACHED)

    pipe(driver, ("a", "x", 5), ("b", "x", 6), ("a", "x", 3))

    assert read(driver) == [("a", 1, 5), ("b", 1, 6), ("a", 2, 5)]
    assert driver.get_timestamped_key_value_store("counts").get("a") == (2, 5)


def test_records_without_key_or_value_are_dropped(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    grouped(builder).count().to_stream().to("out")
    grouped(builder).reduce(lambda one, other: one + other)
    driver = topology_driver(builder.build())

    pipe(driver, (None, "x", 5), ("a", None, 6))

    assert read(driver) == []
    assert dropped(driver) == 4


def test_the_first_value_starts_a_reduction(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    grouped(builder).reduce(lambda one, other: one + other).to_stream().to("out")
    driver = topology_driver(builder.build(), **UNCACHED)

    pipe(driver, ("a", "1", 5), ("a", "2", 3), ("a", "3", 8))

    assert read(driver) == [("a", "1", 5), ("a", "12", 5), ("a", "123", 8)]


def test_an_aggregate_that_becomes_none_is_deleted_and_starts_again(
    topology_driver: DriverFactory, caplog: pytest.LogCaptureFixture
) -> None:
    builder = StreamsBuilder()
    table = grouped(builder).aggregate(str, none_at_dash, materialized="t", name="folded")
    table.to_stream().to("out")
    driver = topology_driver(builder.build(), **UNCACHED)

    with caplog.at_level(logging.WARNING, logger="headrace"):
        pipe(driver, ("a", "1", 5), ("a", "-", 3), ("a", "-", 4), ("a", "2", 1))

    assert read(driver) == [("a", "1", 5), ("a", None, 5), ("a", None, 4), ("a", "2", 1)]
    assert [r.getMessage() for r in caplog.records] == [
        "The aggregator of step 'folded' returned None, which deletes the entry: forgot `return`? "
        "Annotate it `-> … | None` if that is meant."
    ]


def test_as_in_kafka_a_cache_emits_a_deletion_with_the_time_of_its_record(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    table = grouped(builder).aggregate(str, none_at_dash, materialized="t")
    table.to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("a", "1", 5), ("a", "-", 3))

    assert read(driver) == [("a", "1", 5), ("a", None, 3)]


def test_with_a_cache_the_last_update_of_each_key_is_emitted_at_commit(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    grouped(builder).aggregate(str, joined).to_stream().to("out")
    driver = topology_driver(builder.build(), commit_each_record=False)

    pipe(driver, ("a", "1", 5), ("b", "2", 6), ("a", "3", 7))
    driver.commit()

    assert read(driver) == [("b", "2", 6), ("a", "13", 7)]


def test_an_aggregator_may_change_what_it_is_given(topology_driver: DriverFactory) -> None:
    def append(_key: str, value: str, items: list[str]) -> list[str]:
        items.append(value)
        return items

    builder = StreamsBuilder()
    table = grouped(builder).aggregate(list[str], append)
    table.group_by(lambda key, items: (key, len(items)), key=str, value=int).aggregate(
        str,
        lambda _key, length, seen: f"{seen} +{length}",
        lambda _key, length, seen: f"{seen} -{length}",
        materialized="seen",
    )
    driver = topology_driver(builder.build(), **UNCACHED)

    pipe(driver, ("a", "1", 5), ("a", "2", 6), ("a", "3", 7))

    assert driver.get_key_value_store("seen").get("a") == " +1 -1 +2 -2 +3"


def test_the_old_value_of_a_first_count_is_zero_and_of_a_first_reduction_none(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    counts = grouped(builder).count()
    counts.group_by(lambda _key, count: (str(count), count), key=str, value=int).count(
        materialized="of-counts"
    ).to_stream().to("out")
    driver = topology_driver(builder.build(), **UNCACHED)

    pipe(driver, ("a", "x", 5))

    # Kafka takes one out of the group of 0, which is not there.
    assert read(driver) == [("0", None, 5), ("1", 1, 5)]


def test_a_failing_aggregator_leaves_the_record_out(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    grouped(builder).aggregate(int, lambda _key, value, total: total + int(value)).to_stream().to(
        "out"
    )
    grouped(builder).reduce(lambda one, other: str(int(one) + int(other))).to_stream().to("sums")
    driver = topology_driver(builder.build(), processing_exception_handler="continue", **UNCACHED)

    pipe(driver, ("a", "1", 5), ("a", "x", 6), ("a", "3", 7))

    assert [value for _, value, _ in read(driver)] == [1, 4]
    assert driver.create_output_topic("sums").read_values_to_list() == ["1", "4"]


@pytest.mark.parametrize("operation", ["count", "reduce"])
def test_a_step_that_fails_during_an_eviction_is_named_in_the_error(
    topology_driver: DriverFactory, operation: str
) -> None:
    builder = StreamsBuilder()
    stream = grouped(builder)
    table: Any = stream.count() if operation == "count" else stream.reduce(max)
    table.to_stream().map_values(lambda _value: 1 // 0, value=int, name="fails").to("out")
    driver = topology_driver(
        builder.build(), commit_each_record=False, statestore_cache_max_bytes=60
    )

    with pytest.raises(ProcessingError) as raised:
        pipe(driver, ("a", "x", 1), ("b", "x", 1))

    assert raised.value.node == "fails"


def test_a_value_that_the_serde_refuses_stops_the_application(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    grouped(builder).aggregate(
        str,
        lambda _key, _value, _text: 7,
        materialized=Materialized(value=str),
    )
    driver = topology_driver(builder.build(), **UNCACHED)

    with pytest.raises(ProcessingError, match="StringSerde writes str, but got int"):
        pipe(driver, ("a", "1", 5))


def test_an_aggregate_of_unknown_type_is_refused() -> None:
    builder = StreamsBuilder()
    grouped(builder).aggregate(lambda: 0, lambda _key, _value, count: count + 1, name="folded")

    with pytest.raises(MissingSerdeError, match=r"Add `value=` to aggregate\(…\)"):
        TopologyTestDriver(builder.build())


def test_an_aggregate_of_a_versioned_store_remembers_its_versions(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    grouped(builder).aggregate(
        str, joined, materialized=Materialized("texts", history_retention=100)
    ).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("a", "1", 5), ("a", "2", 9))

    store = driver.get_versioned_key_value_store("texts")
    assert (store.get("a", as_of=5).value, store.get("a").value) == ("1", "12")
    assert read(driver) == [("a", "1", 5), ("a", "12", 9)]


def test_an_aggregation_and_an_aggregator_are_one_too_many() -> None:
    stream = grouped(StreamsBuilder())

    with pytest.raises(TopologyError, match="besides a ready-made aggregation"):
        stream.aggregate(aggregators.sum(len), joined)  # type: ignore[call-overload]


def test_functions_that_cannot_be_called_are_refused() -> None:
    stream = grouped(StreamsBuilder())

    with pytest.raises(TopologyError, match="called with 2 arguments"):
        stream.reduce(lambda value: value)  # type: ignore[arg-type,misc]
    with pytest.raises(TopologyError, match="called with 0 arguments"):
        stream.aggregate(lambda key: key, joined)  # type: ignore[arg-type,misc]
    with pytest.raises(TopologyError, match="has no aggregator"):
        stream.aggregate(int)  # type: ignore[call-overload]
