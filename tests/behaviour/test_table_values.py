"""Behaviour of computed tables that are stored, regrouped, versioned, or fail."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import (
    KTable,
    Materialized,
    ProcessingError,
    Record,
    StreamsBuilder,
    ValueTransformerWithKey,
)
from headrace.testing import DriverFactory, TopologyTestDriver


def pipe(driver: TopologyTestDriver, *rows: tuple[str, int | None, int]) -> None:
    topic = driver.create_input_topic("in")
    for key, value, timestamp in rows:
        topic.pipe_input(key, value, timestamp=timestamp)


def read(driver: TopologyTestDriver) -> list[tuple[Any, Any, int]]:
    records: list[Record[Any, Any]] = driver.create_output_topic("out").read_records_to_list()
    return [(record.key, record.value, record.timestamp) for record in records]


class Tenfold(ValueTransformerWithKey[str, int, int]):
    """Multiplies by ten; a deletion stays one."""

    def transform(self, key: str, value: int | None) -> int | None:
        return None if value is None else value * 10


def computed(table: KTable[str, int], step: str, stored: Materialized | None) -> KTable[str, int]:
    match step:
        case "filter":
            return table.filter(lambda _, value: value > 1, materialized=stored)
        case "filter_not":
            return table.filter_not(lambda _, value: value <= 1, materialized=stored)
        case "map_values":
            return table.map_values(lambda value: value * 10, value=int, materialized=stored)
    return table.transform_values(Tenfold, value=int, materialized=stored)


STEPS = ["filter", "filter_not", "map_values", "transform_values"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("stored", [None, Materialized("computed", value=int)])
@pytest.mark.parametrize("cache", [0, 100_000])
def test_a_computed_table_that_is_grouped_takes_its_old_values_out(
    topology_driver: DriverFactory, step: str, stored: Materialized | None, cache: int
) -> None:
    builder = StreamsBuilder()
    table = computed(builder.table("in", key=str, value=int), step, stored)
    table.group_by(lambda _, value: ("all", value), key=str, value=int).reduce(
        lambda total, value: total + value,
        lambda total, value: total - value,
        materialized="total",
    )
    driver = topology_driver(builder.build(), statestore_cache_max_bytes=cache)

    pipe(driver, ("a", 5, 1), ("b", 3, 2), ("a", 7, 3), ("b", None, 4))

    factor = 1 if step.startswith("filter") else 10
    assert driver.get_key_value_store("total").get("all") == 7 * factor


def test_a_filter_of_a_versioned_table_passes_every_deletion_on(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    stored = Materialized("versions", history_retention="1h")
    table = builder.table("in", key=str, value=int, materialized=stored)
    table.filter(lambda _, value: value > 1).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("a", 1, 1), ("a", 1, 2))

    assert read(driver) == [("a", None, 1), ("a", None, 2)]


@pytest.mark.parametrize("step", STEPS)
def test_a_versioned_result_keeps_out_what_is_older_than_its_history(
    topology_driver: DriverFactory, step: str
) -> None:
    builder = StreamsBuilder()
    stored = Materialized("computed", value=int, history_retention=5)
    table = computed(builder.table("in", key=str, value=int), step, stored)
    table.to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("a", 5, 100), ("a", 6, 97), ("a", 7, 10))

    assert [timestamp for _, _, timestamp in read(driver)] == [100, 97]


@pytest.mark.parametrize("step", ["filter", "map_values"])
def test_a_function_that_fails_is_decided_about(topology_driver: DriverFactory, step: str) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=str, value=int)
    if step == "filter":
        table.filter(lambda _, value: 1 // value > 0).to_stream().to("out")
    else:
        table.map_values(lambda value: 1 // value, value=int).to_stream().to("out")
    driver = topology_driver(builder.build(), processing_exception_handler="continue")

    pipe(driver, ("a", 0, 1), ("a", 1, 2))

    assert read(driver) == [("a", 1, 2)]


@pytest.mark.parametrize("step", ["filter", "map_values"])
def test_a_value_that_its_store_refuses_fails_at_the_step(
    topology_driver: DriverFactory, step: str
) -> None:
    builder = StreamsBuilder()
    table: Any = builder.table("in", key=str, value=int)
    wrong = Materialized("wrong", value=str)
    if step == "filter":
        table.filter(lambda *_: True, materialized=wrong, name="step")
    else:
        table.map_values(lambda value: value, materialized=wrong, name="step")
    driver = topology_driver(builder.build())

    with pytest.raises(ProcessingError, match="'step' failed"):
        pipe(driver, ("a", 1, 1))
