"""Behaviour of user code that returns what no topic can hold: handlers decide about each record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace import (
    InvalidTimestampError,
    Materialized,
    ProcessingError,
    Processor,
    Record,
    Serde,
    StreamsBuilder,
    Topology,
)
from headrace.records import ConsumerRecord
from headrace.testing import DriverFactory, TopologyTestDriver

BAD = "bad"


def dropped(driver: TopologyTestDriver) -> float:
    """Return how many records were dropped in all."""
    counts = driver.metrics().items()
    return sum(count for name, count in counts if str(name) == "dropped-records-total")


def good_ones_of(topology: Topology, topology_driver: DriverFactory) -> list[Any]:
    """Return the output for good records between bad ones; each bad one must be counted."""
    driver = topology_driver(
        topology,
        processing_exception_handler="continue",
        production_exception_handler="continue",
        statestore_cache_max_bytes=0,  # a cached store writes a value when the batch commits
    )
    topic = driver.create_input_topic("in", key=str, value=str)

    for value in ("a", BAD, "b", BAD):
        topic.pipe_input("k", value, timestamp=5)

    found = driver.create_output_topic("out", key=str, value=str).read_values_to_list()
    assert dropped(driver) == 2
    return found


class ForwardsOdd(Processor[Any, Any, Any, Any]):
    """Forwards what a function makes of a bad record."""

    def __init__(self, make: Callable[[Record[Any, Any]], Any]) -> None:
        self.make = make

    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(self.make(record) if record.value == BAD else record)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda record: record.with_timestamp(2**63), id="timestamp of 65 bits"),
        pytest.param(lambda record: record.with_timestamp(2**80), id="timestamp of 81 bits"),
        pytest.param(lambda record: record.with_timestamp(1.5), id="fraction of a timestamp"),
        pytest.param(lambda record: record.with_timestamp(None), id="no timestamp"),
        pytest.param(lambda record: record.with_headers("zz"), id="text as headers"),
        pytest.param(lambda record: record.with_headers([("a", "b")]), id="text in a header"),
        pytest.param(lambda record: record.with_headers([("a", 5)]), id="number in a header"),
        pytest.param(lambda record: record.with_headers([(5, b"")]), id="number as a name"),
        pytest.param(lambda record: record.with_headers([("a", b"", b"")]), id="three parts"),
        pytest.param(lambda record: record.with_headers([("\ud800", b"")]), id="half a character"),
        pytest.param(
            lambda record: Record("k", "v", 5, record.headers.adding("a", "b")), id="added header"
        ),
        pytest.param(lambda _record: "text", id="no record"),
    ],
)
def test_a_record_that_no_topic_can_hold_may_be_left_out(
    topology_driver: DriverFactory, make: Callable[[Record[Any, Any]], Any]
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=str).process(lambda: ForwardsOdd(make))
    stream.to("out", key=str, value=str)

    assert good_ones_of(builder.build(), topology_driver) == ["a", "b"]


@pytest.mark.parametrize("timestamp", [True, 5])
@pytest.mark.parametrize("header", [b"x", bytearray(b"x"), memoryview(b"x")])
def test_what_a_topic_can_hold_is_converted(
    topology_driver: DriverFactory, header: Any, timestamp: int
) -> None:
    def make(record: Record[Any, Any]) -> Record[Any, Any]:
        headers: Any = [["name", header]]
        return Record(record.key, record.value, timestamp, headers)

    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=str).process(lambda: ForwardsOdd(make))
    stream.to("out", key=str, value=str)
    driver = topology_driver(builder.build())

    driver.create_input_topic("in", key=str, value=str).pipe_input("k", BAD, timestamp=5)

    [record] = driver.create_output_topic("out", key=str, value=str).read_records_to_list()
    assert (record.timestamp, list(record.headers)) == (int(timestamp), [("name", b"x")])


class OddSerde(Serde[str]):
    """Returns what a function makes of a bad value."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self.make = make

    def serialize(self, value: str, /) -> bytes:
        return self.make(value) if value == BAD else value.encode()

    def deserialize(self, data: bytes, /) -> str:
        return data.decode()


def to_topic(builder: StreamsBuilder, serde: Serde[str]) -> None:
    builder.stream("in", key=str, value=str).to("out", value=serde)


def to_key(builder: StreamsBuilder, serde: Serde[str]) -> None:
    stream = builder.stream("in", key=str, value=str)
    stream.select_key(lambda _key, value: value).to("out", key=serde)


def to_store(builder: StreamsBuilder, serde: Serde[str]) -> None:
    store = Materialized("store", key=str, value=serde)
    groups = builder.stream("in", key=str, value=str).group_by_key()
    groups.reduce(lambda _old, new: new, materialized=store).to_stream().to("out", value=str)


def to_repartition(builder: StreamsBuilder, serde: Serde[str]) -> None:
    stream = builder.stream("in", key=str, value=str)
    stream.repartition(key=str, value=serde).to("out", value=str)


@pytest.mark.parametrize("result", ["text", 5, [1]], ids=["text", "number", "list"])
@pytest.mark.parametrize("build", [to_topic, to_key, to_store, to_repartition])
def test_a_serde_that_returns_no_bytes_fails_for_its_record_alone(
    topology_driver: DriverFactory,
    build: Callable[[StreamsBuilder, Serde[str]], None],
    result: object,
) -> None:
    builder = StreamsBuilder()
    build(builder, OddSerde(lambda _value: result))

    assert good_ones_of(builder.build(), topology_driver) == ["a", "b"]


@pytest.mark.parametrize("build", [to_topic, to_key, to_store, to_repartition])
@pytest.mark.parametrize("make", [bytearray, memoryview])
def test_a_serde_may_return_what_bytes_can_be_made_of(
    topology_driver: DriverFactory,
    build: Callable[[StreamsBuilder, Serde[str]], None],
    make: Callable[[bytes], Any],
) -> None:
    builder = StreamsBuilder()
    build(builder, OddSerde(lambda value: make(value.encode())))
    driver = topology_driver(builder.build())

    driver.create_input_topic("in", key=str, value=str).pipe_input("k", BAD, timestamp=5)

    output = driver.create_output_topic("out", key=str, value=str)
    assert output.read_values_to_list() == [BAD]


@pytest.mark.parametrize("timestamp", [2**63, 2**70, True])
def test_a_timestamp_that_no_topic_can_hold_is_an_error_of_its_extractor(
    topology_driver: DriverFactory, timestamp: int
) -> None:
    def extract(_record: ConsumerRecord, _partition_time: int) -> int:
        return timestamp

    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=str, timestamp_extractor=extract)
    stream.to("out")
    driver = topology_driver(builder.build())

    with pytest.raises(InvalidTimestampError, match="The timestamp extractor of source"):
        driver.create_input_topic("in", key=str, value=str).pipe_input("k", "v", timestamp=5)


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def raise_unprintable(_value: int) -> int:
    raise UnprintableError


def unprintable() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).map_values(raise_unprintable, value=int).to("out")
    return builder.build()


def test_an_error_that_cannot_be_printed_stops_the_application_as_any_other(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(unprintable())

    with pytest.raises(ProcessingError, match=r"UnprintableError: <exception str\(\) failed>"):
        driver.create_input_topic("in").pipe_input("a", 1)


def test_an_error_that_cannot_be_printed_may_be_left_out(topology_driver: DriverFactory) -> None:
    driver = topology_driver(
        unprintable(),
        processing_exception_handler="continue",
        errors_dead_letter_queue_topic_name="letters",
    )

    driver.create_input_topic("in").pipe_input("a", 1)

    [letter] = driver.create_output_topic("letters", key=bytes, value=bytes).read_records_to_list()
    assert letter.headers.last("__streams.errors.message") == b"<exception str() failed>"
