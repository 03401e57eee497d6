"""Behaviour of `join`, `left_join` and `outer_join` of two tables by key."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import (
    Materialized,
    ProcessingError,
    StreamsBuilder,
    Suppressed,
    TopologyError,
    ValueTransformerWithKey,
)
from headrace.testing import DriverFactory, TopologyTestDriver


def pair(left: str | None, right: str | None) -> str:
    return f"{left}-{right}"


def pipe(driver: TopologyTestDriver, *rows: tuple[str, str | None, int]) -> None:
    """Pipe a value of the key k to ``left`` or ``right``."""
    for topic, value, timestamp in rows:
        driver.create_input_topic(topic).pipe_input("k", value, timestamp=timestamp)


def read(driver: TopologyTestDriver) -> list[tuple[Any, int]]:
    records = driver.create_output_topic("out").read_records_to_list()
    return [(record.value, record.timestamp) for record in records]


DOCUMENTED: list[tuple[str, str | None, int]] = [
    ("left", None, 1),
    ("right", None, 2),
    ("left", "A", 3),
    ("right", "a", 4),
    ("left", "B", 5),
    ("left", None, 7),
    ("right", None, 8),
]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("join", [("A-a", 4), ("B-a", 5), (None, 7)]),
        ("left_join", [("A-None", 3), ("A-a", 4), ("B-a", 5), (None, 7)]),
        ("outer_join", [("A-None", 3), ("A-a", 4), ("B-a", 5), ("None-a", 7), (None, 8)]),
    ],
)
def test_a_change_of_either_side_changes_the_result(
    topology_driver: DriverFactory, kind: str, expected: list[tuple[Any, int]]
) -> None:
    builder = StreamsBuilder()
    left = builder.table("left", key=str, value=str)
    right = builder.table("right", key=str, value=str)
    getattr(left, kind)(right, pair, value=str).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, *DOCUMENTED)

    assert read(driver) == expected


def test_the_result_has_the_later_of_both_timestamps(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    left = builder.table("left", key=str, value=str)
    left.join(builder.table("right", key=str, value=str), pair).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("left", "A", 9), ("right", "a", 2), ("right", "b", 12), ("left", "B", 1))

    assert read(driver) == [("A-a", 9), ("A-b", 12), ("B-b", 12)]


def test_a_joiner_may_want_the_key_first(topology_driver: DriverFactory) -> None:
    def named(key: str, left: str, right: str) -> str:
        return f"{key}:{left}-{right}"

    builder = StreamsBuilder()
    left = builder.table("left", key=str, value=str)
    left.join(builder.table("right", key=str, value=str), named).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("left", "A", 1), ("right", "a", 2))

    assert read(driver) == [("k:A-a", 2)]


@pytest.mark.parametrize("cache", [0, 100_000])
def test_a_stored_result_can_be_read(topology_driver: DriverFactory, cache: int) -> None:
    builder = StreamsBuilder()
    left = builder.table("left", key=str, value=str)
    right = builder.table("right", key=str, value=str)
    joined = left.outer_join(right, pair, materialized=Materialized("joined", value=str))
    driver = topology_driver(builder.build(), statestore_cache_max_bytes=cache)

    pipe(driver, ("left", "A", 1), ("right", "a", 2))

    assert joined.queryable_store_name == "joined"
    assert driver.get_timestamped_key_value_store("joined").get("k") == ("A-a", 2)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("join", ["1-None", "2-None", "2-A-a", "3-A-a", "3-None", "4-None"]),
        ("left_join", ["1-None", "2-None", "2-A-a", "3-A-a", "3-A-None", "4-A-None"]),
        (
            "outer_join",
            ["1-None", "1-None-a", "2-None-a", "2-A-a", "3-A-a", "3-A-None", "4-A-None"],
        ),
    ],
)
def test_a_result_without_a_store_is_computed_when_it_is_joined_again(
    topology_driver: DriverFactory, kind: str, expected: list[str]
) -> None:
    builder = StreamsBuilder()
    left, right, third = (
        builder.table(topic, key=str, value=str) for topic in ("left", "right", "third")
    )
    computed = getattr(left, kind)(right, pair, value=str)
    third.left_join(computed, pair, value=str).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("third", "1", 1), ("right", "a", 9), ("third", "2", 3), ("left", "A", 4))
    pipe(driver, ("third", "3", 5), ("right", None, 6), ("third", "4", 7))

    results = read(driver)
    assert [value for value, _ in results] == expected
    assert dict(results)["3-A-a"] == 9


@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join"])
@pytest.mark.parametrize("stored", [None, Materialized("joined", value=str)])
@pytest.mark.parametrize("cache", [0, 100_000])
def test_a_joined_table_that_is_grouped_takes_its_old_results_out(
    topology_driver: DriverFactory, kind: str, stored: Materialized | None, cache: int
) -> None:
    builder = StreamsBuilder()
    left = builder.table("left", key=str, value=str)
    right = builder.table("right", key=str, value=str)
    joined = getattr(left, kind)(right, pair, value=str, materialized=stored)
    joined.group_by(lambda _, both: (both, both), key=str, value=str).count(materialized="counts")
    driver = topology_driver(builder.build(), statestore_cache_max_bytes=cache)

    pipe(driver, ("left", "A", 1), ("right", "a", 2), ("right", "b", 3), ("left", "B", 4))

    counts = dict(driver.get_key_value_store("counts").all())
    assert {both: count for both, count in counts.items() if count} == {"B-b": 1}


def test_a_table_joined_with_itself_emits_each_change_twice(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    table = builder.table("left", key=str, value=str)
    table.join(table, pair).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("left", "A", 1), ("left", None, 2))

    assert read(driver) == [("A-A", 1), ("A-A", 1)]


def test_computed_tables_are_looked_up_through_their_functions(
    topology_driver: DriverFactory,
) -> None:
    class Upper(ValueTransformerWithKey[str, str, str]):
        def transform(self, key: str, value: str | None) -> str | None:
            return None if value is None else value.upper()

    builder = StreamsBuilder()
    left = builder.table("left", key=str, value=str).filter(lambda _, value: value != "no")
    right = builder.table("right", key=str, value=str).map_values(lambda value: value + "!")
    upper = right.transform_values(Upper, value=str)
    left.join(upper, pair, value=str).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("right", "a", 1), ("left", "no", 2), ("left", "A", 3), ("right", "b", 4))

    assert read(driver) == [(None, 2), ("A-A!", 3), ("A-B!", 4)]


@pytest.mark.parametrize("step", ["filter", "map_values", "transform_values"])
def test_computed_tables_with_a_store_are_looked_up_there(
    topology_driver: DriverFactory, step: str
) -> None:
    class Same(ValueTransformerWithKey[str, str, str]):
        def transform(self, key: str, value: str | None) -> str | None:
            return value

    builder = StreamsBuilder()
    right: Any = builder.table("right", key=str, value=str)
    function: Any = {
        "filter": lambda *_: True,
        "map_values": lambda value: value,
        "transform_values": Same,
    }[step]
    stored = getattr(right, step)(function, materialized=Materialized("stored", value=str))
    left = builder.table("left", key=str, value=str)
    left.join(stored, pair, value=str, name="both").to_stream().to("out")
    topology = builder.build()
    driver = topology_driver(topology)

    pipe(driver, ("right", "a", 1), ("left", "A", 2))

    assert read(driver) == [("A-a", 2)]
    assert "Processor: both-join-this (stores: [stored])" in str(topology.describe())


def test_a_result_that_is_materialized_without_a_name_has_a_store_with_a_generated_one() -> None:
    builder = StreamsBuilder()
    left = builder.table("left", key=str, value=str)
    right = builder.table("right", key=str, value=str)

    joined = left.join(right, pair, materialized=Materialized(value=str))
    kept = joined.filter(lambda *_: True, materialized=Materialized())

    assert joined.queryable_store_name is None
    assert kept.node == "KTABLE-FILTER-0000000011"
    assert "(stores: [KTABLE-MERGE-STATE-STORE-0000000006])" in str(builder.build().describe())


def test_out_of_order_updates_of_a_versioned_side_are_dropped(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    versions = Materialized("versions", history_retention="1h")
    left = builder.table("left", key=str, value=str, materialized=versions)
    left.join(builder.table("right", key=str, value=str), pair).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("left", "A", 10), ("right", "a", 4), ("left", "old", 5), ("right", "b", 3))

    assert read(driver) == [("A-a", 10), ("A-b", 10)]
    dropped = sum(n for name, n in driver.metrics().items() if "dropped-records-total" in str(name))
    assert dropped == 1


def test_a_versioned_result_keeps_out_what_is_older_than_its_history(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    left = builder.table("left", key=str, value=str)
    stored = Materialized("joined", value=str, history_retention=5)
    left.left_join(
        builder.table("right", key=str, value=str), pair, materialized=stored
    ).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("left", "A", 100), ("left", "B", 10))

    assert read(driver) == [("A-None", 100)]


def test_the_old_value_of_a_suppressed_side_is_seen_while_a_change_waits(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    left = builder.table("left", key=str, value=str)
    right = builder.table("right", key=str, value=str)
    waiting = right.suppress(Suppressed.until_time_limit(10))
    left.left_join(waiting, pair, value=str).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("right", "a", 1), ("left", "A", 2), ("right", "b", 11), ("left", "B", 12))
    pipe(driver, ("right", "c", 13), ("left", "C", 14))

    assert read(driver) == [("A-None", 2), ("A-b", 11), ("B-b", 12), ("C-b", 14)]


def test_a_joiner_that_fails_goes_to_the_processing_handler(
    topology_driver: DriverFactory,
) -> None:
    def refuse(_left: str, right: str) -> str:
        if right == "bad":
            raise ValueError(right)
        return right

    builder = StreamsBuilder()
    left = builder.table("left", key=str, value=str)
    left.join(builder.table("right", key=str, value=str), refuse).to_stream().to("out")
    driver = topology_driver(builder.build(), processing_exception_handler="continue")

    pipe(driver, ("left", "A", 1), ("right", "bad", 2), ("right", "good", 3))

    assert read(driver) == [("good", 3)]


def test_a_result_its_store_refuses_stops_and_names_the_step(
    topology_driver: DriverFactory,
) -> None:
    def number(_left: str, _right: str) -> int:
        return 1

    builder = StreamsBuilder()
    left = builder.table("left", key=str, value=str)
    right = builder.table("right", key=str, value=str)
    wrong: Any = Materialized("joined", value=str)
    left.join(right, number, materialized=wrong, name="both")
    driver = topology_driver(builder.build())
    pipe(driver, ("left", "A", 1))

    with pytest.raises(ProcessingError, match="'both' failed"):
        pipe(driver, ("right", "a", 2))


def test_a_join_is_refused_that_cannot_work() -> None:
    builder, other_builder = StreamsBuilder(), StreamsBuilder()
    left: Any = builder.table("left", key=str, value=str)
    right: Any = builder.table("right", key=str, value=str)
    stranger = other_builder.table("right", key=str, value=str)

    with pytest.raises(TopologyError, match="'both' cannot join a table with"):
        left.join(right.to_stream(), pair, name="both")
    with pytest.raises(TopologyError, match="different builders"):
        left.join(stranger, pair)
    with pytest.raises(TopologyError, match="`partitioner=`, which only a join with"):
        left.join(right, pair, partitioner=lambda *_: 0)
    with pytest.raises(TopologyError, match="`other_partitioner=`, which only a join with"):
        left.left_join(right, pair, other_partitioner=lambda *_: 0)
    with pytest.raises(TopologyError, match="called with 2 arguments, or with 3"):
        left.outer_join(right, lambda value: value)
