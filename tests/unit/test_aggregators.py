"""Ready-made aggregations."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest

from headrace import (
    KTable,
    Materialized,
    MissingSerdeError,
    Serdes,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    TopologyError,
    aggregators,
)
from headrace.aggregators import Aggregation, Distinct, DistinctSerde, Mean
from headrace.testing import DriverFactory, TopologyTestDriver


def folded(aggregation: Aggregation[Any, Any], values: Iterable[Any]) -> Any:
    aggregate = aggregation.initializer()
    for value in values:
        aggregate = aggregation.aggregator("key", value, aggregate)
    return aggregate


def without(aggregation: Aggregation[Any, Any], value: Any, aggregate: Any) -> Any:
    assert aggregation.subtractor is not None
    return aggregation.subtractor("key", value, aggregate)


def merged(aggregation: Aggregation[Any, Any], one: Any, other: Any) -> Any:
    assert aggregation.merger is not None
    return aggregation.merger("key", one, other)


def length(word: str) -> int:
    return len(word)


def upper(word: str) -> str:
    return word.upper()


def even_or_none(number: int) -> int | None:
    return number if number % 2 == 0 else None


# -- what they compute --------------------------------------------------------------------------


def test_sum_adds_values_or_what_is_taken_of_them() -> None:
    assert folded(aggregators.sum(), [1, 2, 3]) == 6
    assert folded(aggregators.sum(length), ["a", "bc"]) == 3
    assert without(aggregators.sum(length), "bc", 3) == 1
    assert merged(aggregators.sum(), 3, 4) == 7


def test_min_and_max_keep_the_least_and_the_greatest() -> None:
    least, greatest = aggregators.min(length), aggregators.max(length)

    assert folded(least, ["abc", "a", "bc"]) == 1
    assert folded(greatest, ["abc", "a", "bc"]) == 3
    assert (merged(least, 2, 1), merged(greatest, 2, 1), merged(least, None, 5)) == (1, 2, 5)
    assert (least.subtractor, greatest.subtractor) == (None, None)


def test_mean_keeps_count_and_total() -> None:
    mean = aggregators.mean(length)

    kept = folded(mean, ["a", "bcd"])

    assert (kept, kept.value) == (Mean(2, 4), 2.0)
    assert without(mean, "a", kept) == Mean(1, 3)
    assert merged(mean, kept, Mean(1, 8)).value == 4.0
    assert math.isnan(Mean().value)


def test_collect_keeps_all_or_the_last_items() -> None:
    every, last = aggregators.collect(length), aggregators.collect(length, limit=2)

    assert folded(every, ["a", "bc", "a"]) == [1, 2, 1]
    assert folded(last, ["a", "bc", "def"]) == [2, 3]
    assert without(every, "a", [1, 2, 1]) == [2, 1]
    assert without(every, "abcd", [1, 2]) == [1, 2]
    assert last.subtractor is None
    assert merged(every, [1], [2]) == [1, 2]
    assert merged(last, [1, 2], [3]) == [2, 3]


def test_top_k_keeps_the_greatest_and_of_equal_ones_the_earlier_first() -> None:
    longest = aggregators.top_k(2, by=len)

    assert folded(aggregators.top_k(2), [3, 1, 4, 1, 5]) == [5, 4]
    assert folded(aggregators.top_k(1), [3, 1, 4]) == [4]
    assert folded(longest, ["ab", "x", "cd", "ef"]) == ["ab", "cd"]
    assert merged(longest, ["ab"], ["abc", "d"]) == ["abc", "ab"]
    assert longest.subtractor is None


def test_approx_distinct_counts_different_items() -> None:
    distinct = aggregators.approx_distinct(str.lower)

    seen = folded(distinct, ["a", "B", "A", "c"])

    assert seen.value == 3
    assert repr(seen) == "<Distinct of about 3 items>"
    assert merged(distinct, seen, folded(distinct, ["c", "d"])).value == 4
    assert distinct.subtractor is None


@pytest.mark.parametrize("number", [100, 3000, 50_000])
def test_approx_distinct_is_off_by_a_few_percent_at_most(number: int) -> None:
    seen = folded(aggregators.approx_distinct(int), [str(i) for i in range(number)])

    assert abs(seen.value - number) <= 0.05 * number


def test_a_sketch_is_the_same_in_every_run() -> None:
    seen = folded(aggregators.approx_distinct(str), ["a"])

    assert DistinctSerde().serialize(seen).hex() == "0101670a"


@pytest.mark.parametrize(
    "aggregation",
    [
        aggregators.sum(),
        aggregators.min(length),
        aggregators.max(length),
        aggregators.mean(length),
        aggregators.collect(length),
        aggregators.top_k(2),
        aggregators.approx_distinct(length),
    ],
    ids=["sum", "min", "max", "mean", "collect", "top_k", "approx_distinct"],
)
def test_values_that_are_none_are_left_out(aggregation: Aggregation[Any, Any]) -> None:
    assert folded(aggregation, [None]) == aggregation.initializer()


def test_items_that_are_none_are_left_out() -> None:
    assert folded(aggregators.sum(even_or_none), [1, 2]) == 2
    assert without(aggregators.sum(even_or_none), 1, 2) == 2
    assert folded(aggregators.min(even_or_none), [1, 2]) == 2
    assert folded(aggregators.mean(even_or_none), [1, 2]) == Mean(1, 2)  # type: ignore[arg-type]
    assert without(aggregators.mean(even_or_none), 1, Mean(1, 2)) == Mean(1, 2)  # type: ignore[arg-type]
    assert folded(aggregators.collect(even_or_none), [1, 2]) == [2]
    assert folded(aggregators.approx_distinct(even_or_none), [1, 2]).value == 1


@pytest.mark.parametrize("size", [0, -1])
def test_nothing_can_be_kept_in_no_room(size: int) -> None:
    with pytest.raises(TopologyError, match=r"`limit` of `aggregators.collect` is"):
        aggregators.collect(length, limit=size)
    with pytest.raises(TopologyError, match=r"`k` of `aggregators.top_k` is"):
        aggregators.top_k(size)


# -- serdes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("items", [0, 1, 1365, 1366, 20_000])
def test_a_sketch_survives_its_serde(items: int) -> None:
    sketch = folded(aggregators.approx_distinct(int), [str(i) for i in range(items)])
    serde = DistinctSerde()

    data = serde.serialize(sketch)

    assert serde.deserialize(data) == sketch
    assert len(data) <= 4097


def test_a_small_sketch_takes_few_bytes() -> None:
    sketch = folded(aggregators.approx_distinct(str), ["a", "b", "c"])

    assert len(DistinctSerde().serialize(sketch)) == 10


def test_other_values_and_other_bytes_are_refused() -> None:
    with pytest.raises(TypeError, match="DistinctSerde writes Distinct, but got int"):
        DistinctSerde().serialize(3)  # type: ignore[arg-type]
    for data in (b"", b"\0short", b"\1xx", b"\2"):
        with pytest.raises(ValueError, match="another serde wrote"):
            DistinctSerde().deserialize(data)


def test_a_sketch_equals_only_a_sketch() -> None:
    assert Distinct() == Distinct()
    assert Distinct() != 0


def test_the_serde_follows_from_what_is_taken_of_a_value() -> None:
    assert aggregators.sum(length).serde == Serdes.long()
    assert aggregators.max(float).serde == Serdes.double()
    assert aggregators.collect(length).serde == Serdes.list_of(Serdes.long())
    assert aggregators.collect(lambda word: len(word)).serde is None


# -- in programs --------------------------------------------------------------------------------


def driven(
    topology_driver: DriverFactory, aggregation: Any, *, value: Any = int
) -> TopologyTestDriver:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=str, value=value).group_by_key()
    grouped.aggregate(aggregation).to_stream().to("plain")
    grouped.windowed_by(TimeWindows(10)).aggregate(aggregation).to_stream().to("windows")
    grouped.windowed_by(SessionWindows(10)).aggregate(aggregation).to_stream().to("sessions")
    return topology_driver(builder.build())


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        (aggregators.sum(), 9),
        (aggregators.min(int), 2),
        (aggregators.max(int), 4),
        (aggregators.mean(int), Mean(3, 9)),
        (aggregators.collect(int), [3, 2, 4]),
        (aggregators.top_k(2), [4, 3]),
    ],
    ids=["sum", "min", "max", "mean", "collect", "top_k"],
)
def test_aggregations_serve_streams_windows_and_sessions(
    topology_driver: DriverFactory, aggregation: Any, expected: Any
) -> None:
    driver = driven(topology_driver, aggregation)

    topic = driver.create_input_topic("in")
    for timestamp, value in enumerate((3, 2, 4)):
        topic.pipe_input("a", value, timestamp=timestamp)

    for output in ("plain", "windows"):
        assert driver.create_output_topic(output).read_values_to_list()[-1] == expected
    sessions = driver.create_output_topic("sessions").read_values_to_list()
    # A session starts from nothing at each record, and merges what was there before.
    assert sessions[-1] == expected


def test_sums_of_values_use_the_serde_of_the_values(topology_driver: DriverFactory) -> None:
    driver = driven(topology_driver, aggregators.sum(), value=float)

    driver.create_input_topic("in").pipe_input("a", 1.5)

    output = driver.create_output_topic("plain", key=str, value=float)
    assert output.read_value() == 1.5


def test_a_table_can_use_aggregations_that_subtract(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    regions = builder.table("in", key=str, value=str)
    by_region = regions.group_by(lambda name, region: (region, name), key=str, value=str)
    lengths: KTable[str, Mean] = by_region.aggregate(aggregators.mean(length))
    lengths.to_stream().to("means")
    names: KTable[str, list[str]] = by_region.aggregate(aggregators.collect(upper))
    names.to_stream().to("names")
    driver = topology_driver(builder.build())

    topic = driver.create_input_topic("in")
    topic.pipe_key_value_list([("bob", "E"), ("alice", "E"), ("bob", "A")])

    means = driver.create_output_topic("means").read_key_values_to_map()
    assert means == {"E": Mean(1, 5), "A": Mean(1, 3)}
    assert driver.create_output_topic("names").read_key_values_to_map() == {
        "E": ["ALICE"],
        "A": ["BOB"],
    }


def test_a_table_cannot_use_aggregations_that_do_not_subtract() -> None:
    by_value = (
        StreamsBuilder()
        .table("in", key=str, value=int)
        .group_by(lambda key, value: (str(value), value), key=str, value=int)
    )

    with pytest.raises(TopologyError, match="cannot take a value out again"):
        by_value.aggregate(aggregators.top_k(3))


def test_a_total_of_unknown_type_needs_a_serde(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=str, value=str).group_by_key()
    totals: Aggregation[str, int] = aggregators.sum(lambda word: len(word))
    grouped.aggregate(totals, name="lengths")

    with pytest.raises(MissingSerdeError, match=r"^aggregate\(…\) at"):
        topology_driver(builder.build())

    typed = StreamsBuilder()
    words = typed.stream("in", key=str, value=str).group_by_key()
    words.aggregate(totals, materialized=Materialized(value=int))
    assert topology_driver(typed.build())
