"""Behaviour of `join` and `left_join` of a stream with a global table."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import ProcessingError, StreamsBuilder, Topology
from headrace.testing import DriverFactory, TopologyTestDriver


def region_of(_key: str | None, value: str) -> str | None:
    """Return what a value says before its colon; nothing before it is no region."""
    return value.partition(":")[0] or None


def pair(value: str, region: str | None) -> str:
    return f"{value}-{region}"


def joined(kind: str) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("stream", key=str, value=str)
    regions = builder.global_table("regions", key=str, value=str)
    getattr(stream, kind)(regions, pair, on=region_of, value=str).to("out")
    return builder.build()


def pipe(driver: TopologyTestDriver, *pairs: tuple[str | None, str | None]) -> None:
    driver.create_input_topic("stream").pipe_key_value_list(pairs)


def read(driver: TopologyTestDriver) -> list[tuple[Any, Any]]:
    return driver.create_output_topic("out").read_key_values_to_list()


def dropped(driver: TopologyTestDriver) -> float:
    return sum(n for name, n in driver.metrics().items() if "dropped-records-total" in str(name))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("join", [("k", "n:1-North")]),
        ("left_join", [("k", "n:1-North"), ("k", "x:2-None")]),
    ],
)
def test_a_record_is_joined_by_the_key_it_points_to(
    topology_driver: DriverFactory, kind: str, expected: list[Any]
) -> None:
    driver = topology_driver(joined(kind))

    driver.create_input_topic("regions").pipe_input("n", "North")
    pipe(driver, ("k", "n:1"), ("k", "x:2"))

    assert read(driver) == expected


def test_every_partition_finds_every_key(topology_driver: DriverFactory) -> None:
    driver = topology_driver(joined("join"), partitions=4)

    driver.create_input_topic("regions").pipe_key_value_list([("n", "North"), ("s", "South")])
    pipe(driver, ("a", "n:1"), ("b", "s:2"), ("c", "s:3"), ("d", "n:4"))

    expected = {("a", "n:1-North"), ("b", "s:2-South"), ("c", "s:3-South"), ("d", "n:4-North")}
    assert set(read(driver)) == expected


@pytest.mark.parametrize(
    ("kind", "expected", "drops"),
    [
        ("join", [(None, "n:2-North")], 1),
        ("left_join", [("k", ":1-None"), (None, "n:2-North")], 0),
    ],
)
def test_only_the_key_it_points_to_matters(
    topology_driver: DriverFactory, kind: str, expected: list[Any], drops: int
) -> None:
    driver = topology_driver(joined(kind))

    driver.create_input_topic("regions").pipe_input("n", "North")
    pipe(driver, ("k", ":1"), (None, "n:2"))

    assert read(driver) == expected
    assert dropped(driver) == drops


def test_a_record_without_a_value_is_dropped(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("stream", key=str, value=str)
    regions = builder.global_table("regions", key=str, value=str)
    stream.left_join(regions, pair, on=lambda key, _: key, value=str).to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("k", None))

    assert (read(driver), dropped(driver)) == ([], 1)


def test_a_function_that_raises_is_left_to_the_handler(topology_driver: DriverFactory) -> None:
    stops = topology_driver(joined("join"))
    goes_on = topology_driver(joined("left_join"), processing_exception_handler="continue")

    with pytest.raises(ProcessingError, match="partition"):
        pipe(stops, ("k", None))
    pipe(goes_on, ("k", None), ("k", "x:1"))

    assert (read(goes_on), dropped(goes_on)) == ([("k", "x:1-None")], 1)


def test_the_key_of_the_stream_is_kept_and_so_is_its_need_for_a_repartition() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("stream", key=str, value=str).select_key(lambda _, v: v, key=str)
    regions = builder.global_table("regions", key=str, value=str)

    stream.join(regions, pair, on=region_of, value=str).group_by_key().count(materialized="c")

    text = str(builder.build().describe())
    assert text.index("KSTREAM-LEFTJOIN-") < text.index("c-repartition-filter")
