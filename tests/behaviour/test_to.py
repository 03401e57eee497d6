"""Behaviour of `to`: topics, chosen topics and partitioners."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from headrace import (
    Headers,
    ProcessingError,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    RecordContext,
    StreamsBuilder,
    Topology,
    Window,
    Windowed,
)
from headrace.serdes import Serdes
from headrace.serdes.partitioner import partition_for_key
from headrace.testing import DriverFactory

Partitioner = Callable[[str, Any, Any, int], int | Iterable[int] | None]


def test_a_sink_writes_key_value_timestamp_and_headers(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).to("out")
    driver = topology_driver(builder.build())

    topic = driver.create_input_topic("in")
    topic.pipe_input("a", 1, timestamp=3, headers=[("h", b"x"), ("h", None)])

    expected = Record("a", 1, 3, Headers([("h", b"x"), ("h", None)]))
    assert driver.create_output_topic("out").read_record() == expected


def test_a_topic_may_be_chosen_by_key_value_and_context(topology_driver: DriverFactory) -> None:
    def choose(key: str, value: int, context: RecordContext) -> str:
        return f"{context.topic}-{context.partition}-{context.offset}-{context.timestamp}-{key}"

    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).to(choose)
    driver = topology_driver(builder.build())

    topic = driver.create_input_topic("in")
    topic.pipe_input("a", 1, timestamp=5)
    topic.pipe_input("a", 2, timestamp=6)
    topic.pipe_input("a", 3, timestamp=6)

    assert driver.produced_topic_names() == {"in-0-0-5-a", "in-0-1-6-a", "in-0-2-6-a"}


def test_in_a_punctuation_a_topic_is_chosen_without_a_place(topology_driver: DriverFactory) -> None:
    class Ticks(Processor[str, int, str, int]):
        def init(self, context: ProcessorContext[str, int]) -> None:
            super().init(context)
            context.schedule(1, PunctuationType.WALL_CLOCK_TIME, self.tick)

        def tick(self, timestamp: int) -> None:
            self.context.forward(Record("a", 1, timestamp))

        def process(self, record: Record[str, int]) -> None: ...

    contexts: list[RecordContext] = []

    def choose(_key: str, _value: int, context: RecordContext) -> str:
        contexts.append(context)
        return "out"

    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.process(Ticks, key=str, value=int).to(choose)
    driver = topology_driver(builder.build())

    driver.advance_wall_clock_time(5)

    assert contexts == [RecordContext(None, -1, -1, 5, Headers())]


@pytest.mark.parametrize("chosen", [None, "", 7])
def test_a_chosen_topic_must_be_a_name(topology_driver: DriverFactory, chosen: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).to(lambda *_: chosen, name="sink")
    driver = topology_driver(builder.build())

    with pytest.raises(ProcessingError, match=f"'sink' failed .* returned {chosen!r}"):
        driver.create_input_topic("in").pipe_input("a", 1)


def test_the_handler_decides_about_a_topic_function_that_fails(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.map_values(lambda value: value, value=int).to(lambda _k, v, _c: ["x", "out"][v])
    driver = topology_driver(builder.build(), processing_exception_handler="continue")

    driver.create_input_topic("in").pipe_value_list([9, 1])

    assert driver.create_output_topic("out").read_values_to_list() == [1]


def _partitions(driver_of: DriverFactory, partitioner: Partitioner | None, key: Any) -> list[int]:
    """Return the partitions a record of a topic with three was written to."""
    topology = Topology()
    topology.add_source("source", "in", key=str, value=int)
    topology.add_sink("sink", "out", "source", partitioner=partitioner, key=str, value=int)
    topology.add_source("again", "out", key=str, value=int)
    topology.add_sink(
        "end", lambda _k, _v, context: f"end-{context.partition}", "again", key=str, value=int
    )
    driver = driver_of(topology, partitions=3)
    driver.create_input_topic("in").pipe_input(key, 1)
    ends = (topic for topic in driver.produced_topic_names() if topic.startswith("end-"))
    return sorted(int(topic.removeprefix("end-")) for topic in ends)


def test_without_a_partitioner_the_hash_of_the_key_decides(topology_driver: DriverFactory) -> None:
    written = _partitions(topology_driver, None, "ann")

    assert written == [partition_for_key(b"ann", 3)]


def test_a_partitioner_may_choose_one_partition(topology_driver: DriverFactory) -> None:
    assert _partitions(topology_driver, lambda *_: 2, "ann") == [2]


def test_a_partitioner_may_choose_several(topology_driver: DriverFactory) -> None:
    assert _partitions(topology_driver, lambda *_: {0, 2}, "ann") == [0, 2]


def test_a_partition_that_is_chosen_twice_is_written_once(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).to("out", partitioner=lambda *_: [0, 2, 0])
    driver = topology_driver(builder.build(), partitions=3)

    driver.create_input_topic("in").pipe_input("ann", 1)

    assert driver.create_output_topic("out").read_values_to_list() == [1, 1]


def test_a_partitioner_that_returns_none_leaves_it_to_the_key(
    topology_driver: DriverFactory,
) -> None:
    written = _partitions(topology_driver, lambda *_: None, "ann")

    assert written == [partition_for_key(b"ann", 3)]


def test_a_partitioner_is_given_topic_key_value_and_count(topology_driver: DriverFactory) -> None:
    asked: list[tuple[str, Any, Any, int]] = []

    _partitions(topology_driver, lambda *given: asked.append(given), "ann")

    assert asked == [("out", "ann", 1, 3)]


def test_a_record_that_goes_to_no_partition_is_dropped_and_counted(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.to("out", partitioner=lambda *_: set(), name="sink")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input("a", 1)

    reasons = {name.tags[1:]: count for name, count in driver.metrics().items() if name.tags[1:]}
    assert driver.create_output_topic("out").is_empty()
    assert reasons == {(("processor-node-id", "sink"), ("reason", "no-partition")): 1}


@pytest.mark.parametrize("chosen", [3, -1, [0, 3], "0"])
def test_a_partition_that_does_not_exist_is_an_error(
    topology_driver: DriverFactory, chosen: Any
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.to("out", partitioner=lambda *_: chosen, name="sink")
    driver = topology_driver(builder.build(), partitions=3)

    with pytest.raises(ProcessingError, match=r"Step 'sink' failed.*return a number from 0 to 2"):
        driver.create_input_topic("in").pipe_input("a", 1)


def test_the_handler_decides_about_a_partitioner_that_fails(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.to("out", partitioner=lambda _t, _k, value, _n: [0, 0][value])
    driver = topology_driver(builder.build(), processing_exception_handler="continue")

    driver.create_input_topic("in").pipe_value_list([9, 1])

    assert driver.create_output_topic("out").read_values_to_list() == [1]


def test_a_windowed_key_goes_to_the_partition_of_its_inner_key(
    topology_driver: DriverFactory,
) -> None:
    windowed = Serdes.time_windowed(Serdes.string(), 10)
    topology = Topology()
    topology.add_source("source", "in", key=windowed, value=int)
    topology.add_sink("sink", "out", "source", key=windowed, value=int)
    topology.add_source("again", "out", key=windowed, value=int)
    topology.add_sink(
        "end", lambda _k, _v, context: f"end-{context.partition}", "again", key=windowed, value=int
    )
    driver = topology_driver(topology, partitions=3)

    topic = driver.create_input_topic("in")
    for start in range(0, 100, 10):
        topic.pipe_input(Windowed("ann", Window(start, start + 10)), 1)

    expected = partition_for_key(b"ann", 3)
    assert driver.produced_topic_names() == {"out", f"end-{expected}"}


def test_a_topic_that_is_written_and_read_comes_back(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).to("between")
    builder.stream("between", key=str, value=int).map_values(lambda v: v + 1, value=int).to("out")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input("a", 1)

    assert driver.create_output_topic("out").read_key_value() == ("a", 2)
