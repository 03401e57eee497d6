"""Behaviour of `KTable.group_by` and of the aggregations of a `KGroupedTable`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from headrace import (
    KGroupedTable,
    Materialized,
    ProcessingError,
    Record,
    StreamsBuilder,
    TopologyError,
)
from headrace.aggregators import Aggregation
from headrace.testing import DriverFactory, TopologyTestDriver


def by_value(_key: str, value: str) -> tuple[str, str]:
    return value, value


def grouped_by_value(builder: StreamsBuilder) -> KGroupedTable[str, str]:
    return builder.table("in", key=str, value=str).group_by(by_value)


def pipe(driver: TopologyTestDriver, *rows: tuple[str, str | None, int]) -> None:
    topic = driver.create_input_topic("in")
    for key, value, timestamp in rows:
        topic.pipe_input(key, value, timestamp=timestamp)


def read(driver: TopologyTestDriver) -> list[tuple[Any, Any, int]]:
    records: list[Record[Any, Any]] = driver.create_output_topic("out").read_records_to_list()
    return [(record.key, record.value, record.timestamp) for record in records]


def test_a_row_that_moves_leaves_its_group_before_it_enters_another(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    grouped_by_value(builder).count().to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("A", "green", 10), ("B", "green", 9), ("A", "blue", 12))

    assert read(driver) == [
        ("green", 1, 10),
        ("green", 2, 10),
        ("green", 1, 12),
        ("blue", 1, 12),
    ]


def test_a_change_within_one_group_is_one_update(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=str, value=str)
    table.group_by(lambda key, value: (key[0], value), key=str, value=str).reduce(
        lambda total, value: f"{total}+{value}", lambda total, value: f"{total}-{value}"
    ).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("a1", "x", 1), ("a2", "y", 2), ("a1", "z", 3), ("a1", None, 4))

    assert read(driver) == [
        ("a", "x", 1),
        ("a", "x+y", 2),
        ("a", "x+y-x+z", 3),
        ("a", "x+y-x+z-z", 4),
    ]


def test_an_aggregate_subtracts_what_was_and_adds_what_is(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    grouped_by_value(builder).aggregate(
        lambda: "0",
        lambda _, value, total: f"{total}+{value}",
        lambda _, value, total: f"{total}-{value}",
        materialized=Materialized("totals", value=str),
    ).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("A", "1", 10), ("A", None, 15), ("A", "1", 12), ("B", "4", 23), ("B", "7", 22))

    assert read(driver) == [
        ("1", "0+1", 10),
        ("1", "0+1-1", 15),
        ("1", "0+1-1+1", 15),
        ("4", "0+4", 23),
        ("4", "0+4-4", 23),
        ("7", "0+7", 22),
    ]
    assert driver.get_key_value_store("totals").get("7") == "0+7"


def test_a_group_that_lost_its_last_row_counts_zero(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    grouped_by_value(builder).count(materialized="counts")
    driver = topology_driver(builder.build())

    pipe(driver, ("A", "green", 1), ("A", None, 2))

    assert driver.get_key_value_store("counts").get("green") == 0


def test_a_subtractor_that_returns_none_deletes_the_group(
    topology_driver: DriverFactory, caplog: pytest.LogCaptureFixture
) -> None:
    builder = StreamsBuilder()
    grouped_by_value(builder).reduce(
        lambda total, value: f"{total}+{value}",
        lambda _total, _value: None,  # type: ignore[arg-type,return-value]  # what is tested
    ).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("A", "x", 1), ("B", "x", 2), ("A", None, 3), ("C", "x", 4))

    assert read(driver) == [("x", "x", 1), ("x", "x+x", 2), ("x", None, 3), ("x", "x", 4)]
    assert caplog.messages == []


def test_an_adder_that_returns_none_deletes_the_group_and_warns_once(
    topology_driver: DriverFactory, caplog: pytest.LogCaptureFixture
) -> None:
    builder = StreamsBuilder()
    grouped = grouped_by_value(builder)
    grouped.reduce(lambda *_: None, lambda total, _: total)  # type: ignore[arg-type]  # what is tested
    grouped.aggregate(
        str,
        lambda *_: None,
        lambda _, __, total: total,
        materialized="totals",
    )
    driver = topology_driver(builder.build())

    pipe(driver, ("A", "x", 1), ("B", "x", 2), ("C", "x", 3), ("D", "x", 4))

    assert driver.get_key_value_store("totals").get("x") is None
    asked = [message for message in caplog.messages if "forgot `return`?" in message]
    assert len(asked) == 2
    assert any("KTABLE-REDUCE" in message for message in asked)


def test_a_row_without_a_group_is_left_out(topology_driver: DriverFactory) -> None:
    def grouped(_key: str, value: str) -> tuple[str | None, str | None] | None:
        match value:
            case "no pair":
                return None
            case "no group":
                return None, value
            case "no value":
                return "group", None
        return "group", value

    builder = StreamsBuilder()
    table = builder.table("in", key=str, value=str)
    table.group_by(grouped, key=str, value=str).count().to_stream().to("out")  # type: ignore[arg-type]  # what is tested
    driver = topology_driver(builder.build())

    pipe(driver, ("A", "no pair", 1), ("A", "no group", 2), ("A", "no value", 3))
    pipe(driver, ("A", "x", 4), ("A", "no pair", 5))

    assert read(driver) == [("group", 1, 4), ("group", 0, 5)]


def test_aggregations_of_a_named_grouping_share_one_repartition(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    grouped = builder.table("in", key=str, value=str).group_by(by_value, name="by-value")
    grouped.count(materialized="counts")
    grouped.reduce(max, min, materialized="largest")
    driver = topology_driver(builder.build())

    pipe(driver, ("A", "x", 1))

    internal = [name for name in driver.produced_topic_names() if "repartition" in name]
    assert internal == ["test-application-by-value-repartition"]
    assert driver.get_key_value_store("counts").get("x") == 1
    assert driver.get_key_value_store("largest").get("x") == "x"


def test_two_named_groupings_do_not_share_a_repartition() -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=str, value=str)
    for name in ("one", "two", "three"):
        table.group_by(by_value, name=name).count()

    description = str(builder.build().describe())

    assert all(f"{name}-repartition" in description for name in ("one", "two", "three"))


def test_a_ready_made_aggregation_with_a_subtractor_can_be_used(
    topology_driver: DriverFactory,
) -> None:
    longest: Aggregation[str, int] = Aggregation(
        int,
        lambda _, value, total: total + len(value),
        lambda _, value, total: total - len(value),
    )
    builder = StreamsBuilder()
    table = builder.table("in", key=str, value=str).group_by(
        lambda _, value: ("all", value), key=str, value=str
    )
    table.aggregate(longest, materialized=Materialized("length", value=int))
    driver = topology_driver(builder.build())

    pipe(driver, ("A", "xxx", 1), ("B", "yy", 2), ("A", "z", 3))

    assert driver.get_key_value_store("length").get("all") == 3


@dataclass
class Rows:
    """An aggregate that its functions change in place."""

    values: list[str] = field(default_factory=list)

    def adding(self, value: str) -> Rows:
        self.values.append(value)
        return self

    def removing(self, value: str) -> Rows:
        self.values.remove(value)
        return self


@pytest.mark.parametrize("cache", [0, 100_000])
def test_old_values_downstream_are_apart_from_what_the_functions_change(
    topology_driver: DriverFactory, cache: int
) -> None:
    builder = StreamsBuilder()
    rows = grouped_by_value(builder).aggregate(
        Rows,
        lambda _, value, rows: rows.adding(value),
        lambda _, value, rows: rows.removing(value),
    )
    sizes = rows.group_by(lambda _, rows: (len(rows.values), "x"), key=int, value=str).count()
    sizes.to_stream().to("out")
    driver = topology_driver(builder.build(), statestore_cache_max_bytes=cache)

    pipe(driver, ("A", "x", 1), ("B", "x", 2), ("C", "x", 3))

    assert {key: value for key, value, _ in read(driver)} == {1: 0, 2: 0, 3: 1}


def test_a_mapper_that_fails_goes_to_the_processing_handler(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=str, value=int)
    grouped = table.group_by(lambda _, value: (str(1 // value), value), key=str, value=int)
    grouped.count().to_stream().to("out")
    driver = topology_driver(builder.build(), processing_exception_handler="continue")

    driver.create_input_topic("in").pipe_key_value_list([("A", 0), ("B", 1)])

    assert driver.create_output_topic("out").read_key_values_to_list() == [("1", 1)]


def test_an_adder_that_fails_stops_and_names_the_step(topology_driver: DriverFactory) -> None:
    def refuse(_total: str, _value: str) -> str:
        raise ValueError("no more")

    builder = StreamsBuilder()
    grouped_by_value(builder).reduce(refuse, refuse, name="refusing")
    driver = topology_driver(builder.build())
    pipe(driver, ("A", "x", 1))

    with pytest.raises(ProcessingError, match=r"'refusing' failed .* no more"):
        pipe(driver, ("B", "x", 2))


def test_out_of_order_updates_of_a_versioned_table_are_ignored_and_not_counted(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    stored = Materialized("versions", history_retention="1h")
    table = builder.table("in", key=str, value=str, materialized=stored)
    table.group_by(by_value).count().to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("A", "x", 10), ("A", "y", 5), ("A", "z", 12))

    assert read(driver) == [("x", 1, 10), ("x", 0, 12), ("z", 1, 12)]
    assert sum(n for name, n in driver.metrics().items() if "dropped" in str(name)) == 0


def test_a_versioned_result_ignores_what_is_older_than_its_history(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    stored = Materialized("counts", history_retention=5)
    grouped_by_value(builder).count(materialized=stored).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("A", "x", 100), ("B", "y", 10))

    assert read(driver) == [("x", 1, 100)]


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ((str,), "'total' has no adder"),
        ((str, lambda *_: ""), "'total' has no subtractor"),
        ((Aggregation(int, lambda *_: 0),), "'total' cannot take a value out again"),
        ((str, lambda _: "", lambda *_: ""), "called with 3 arguments"),
        ((str, lambda *_: "", lambda _: ""), "called with 3 arguments"),
    ],
)
def test_a_wrong_aggregation_is_refused_while_building(
    functions: tuple[Any, ...], message: str
) -> None:
    grouped: Any = grouped_by_value(StreamsBuilder())

    with pytest.raises(TopologyError, match=message):
        grouped.aggregate(*functions, name="total")


def test_a_group_that_is_no_pair_fails(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=str, value=str)
    grouped = table.group_by(lambda _key, region: region, key=str, value=str, name="regions")  # type: ignore[arg-type, return-value]  # the mistake
    grouped.count().to_stream().to("out")
    driver = topology_driver(builder.build())

    with pytest.raises(ProcessingError, match=r"Step 'regions.*' failed") as caught:
        pipe(driver, ("A", "eu", 1))

    assert "the function returned a str, not a pair: return a tuple `(key, value)`" in str(
        caught.value
    )
