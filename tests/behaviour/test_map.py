"""Behaviour of the operations that replace keys and values of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from headrace import ProcessingError, Record, StreamsBuilder
from headrace.testing import DriverFactory


def test_map_replaces_key_and_value(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.map(lambda key, value: (value, key), key=int, value=str).to("out")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input("a", 1, timestamp=5)

    assert driver.create_output_topic("out").read_record() == Record(1, "a", 5)


def test_map_may_forward_nulls(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.map(lambda *_: (None, None), key=str, value=int).to("out")  # type: ignore[arg-type]
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input("a", 1)

    assert driver.create_output_topic("out").read_key_value() == (None, None)


class Pair(NamedTuple):
    key: str
    value: int


NO_PAIRS: list[tuple[Any, str]] = [
    ("eu", "a str"),
    (["a", 1], "a list"),
    (None, "None"),
    (("a",), "a tuple of 1"),
    (("a", 1, 2), "a tuple of 3"),
]


@pytest.mark.parametrize(("returned", "named"), NO_PAIRS)
@pytest.mark.parametrize("flat", [False, True])
def test_a_result_that_is_no_pair_fails(
    topology_driver: DriverFactory, returned: Any, named: str, *, flat: bool
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    if flat:
        pairs = stream.flat_map(lambda *_: [("a", 1), returned], key=str, value=int, name="pairs")
    else:
        pairs = stream.map(lambda *_: returned, key=str, value=int, name="pairs")
    pairs.to("out")
    driver = topology_driver(builder.build())

    with pytest.raises(ProcessingError, match="Step 'pairs' failed") as caught:
        driver.create_input_topic("in").pipe_input("a", 1)

    assert f"the function returned {named}, not a pair: return a tuple `(key, value)`" in str(
        caught.value
    )
    assert driver.create_output_topic("out").is_empty()


@pytest.mark.parametrize("flat", [False, True])
def test_a_pair_may_be_a_named_tuple(topology_driver: DriverFactory, *, flat: bool) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    if flat:
        stream.flat_map(lambda key, value: [Pair(key, value)], key=str, value=int).to("out")
    else:
        stream.map(Pair, key=str, value=int).to("out")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input("a", 1)

    assert driver.create_output_topic("out").read_key_value() == ("a", 1)


def test_map_values_may_ask_for_the_value_alone_or_for_the_key_too(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.map_values(lambda value: value * 2, value=int).to("doubled")
    stream.map_values(lambda key, value: f"{key}{value}", value=str).to("joined")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input("a", 4)

    assert driver.create_output_topic("doubled").read_value() == 8
    assert driver.create_output_topic("joined").read_value() == "a4"


def test_map_values_is_called_for_a_missing_value(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.map_values(lambda value: "nothing" if value is None else "some", value=str).to("out")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input("a", None)

    assert driver.create_output_topic("out").read_value() == "nothing"


def test_flat_map_forwards_every_pair_with_the_time_of_the_record(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.flat_map(lambda key, n: [(key, i) for i in range(n)], key=str, value=int).to("out")
    driver = topology_driver(builder.build())

    topic = driver.create_input_topic("in")
    topic.pipe_input("none", 0, timestamp=1)
    topic.pipe_input("two", 2, timestamp=3)

    expected = [Record("two", 0, 3), Record("two", 1, 3)]
    assert driver.create_output_topic("out").read_records_to_list() == expected


def test_a_flat_map_that_fails_half_way_forwards_nothing(topology_driver: DriverFactory) -> None:
    def two_then_fail(key: str, value: int) -> Iterator[tuple[str, int]]:
        yield key, value
        raise ValueError(value)

    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).flat_map(two_then_fail, key=str, value=int).to("out")
    driver = topology_driver(builder.build(), processing_exception_handler="continue")

    driver.create_input_topic("in").pipe_input("a", 1)

    assert driver.create_output_topic("out").is_empty()


def test_flat_map_values_makes_a_record_of_each_item(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=str)
    stream.flat_map_values(str.split, value=str).to("words")
    stream.flat_map_values(lambda key, value: [key, value], value=str).to("both")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input("k", "to be")

    words = driver.create_output_topic("words").read_key_values_to_list()
    assert words == [("k", "to"), ("k", "be")]
    assert driver.create_output_topic("both").read_values_to_list() == ["k", "to be"]


def test_a_flat_map_values_without_items_fails(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=str)
    stream.flat_map_values(lambda _: None, value=str).to("out")  # type: ignore[arg-type, return-value]  # what is tested
    driver = topology_driver(builder.build())

    with pytest.raises(ProcessingError, match="TypeError: 'NoneType' object is not iterable"):
        driver.create_input_topic("in").pipe_input("k", "v")


def test_select_key_replaces_the_key_alone(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.select_key(lambda _, value: value, key=int).to("out")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input("a", 9)

    assert driver.create_output_topic("out").read_key_value() == (9, 9)
