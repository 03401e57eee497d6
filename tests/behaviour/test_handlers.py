"""Behaviour of records that fail: handlers, dead letters, counts."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from headrace import (
    DeserializationError,
    ErrorHandlerContext,
    HandlerResponse,
    ProcessingError,
    Processor,
    ProcessorContext,
    ProducerRecord,
    PunctuationType,
    Record,
    RecordError,
    Serdes,
    SerializationError,
    StreamsBuilder,
    Topology,
)
from headrace.testing import DriverFactory, TopologyTestDriver


def reasons(driver: TopologyTestDriver) -> dict[tuple[str, str], float]:
    """Return how many records were dropped, by node and reason."""
    return {
        (dict(name.tags)["processor-node-id"], dict(name.tags)["reason"]): count
        for name, count in driver.metrics().items()
        if str(name) == "dropped-by-reason-total"
    }


def total(driver: TopologyTestDriver) -> float:
    """Return how many records were dropped in all."""
    counts = driver.metrics().items()
    return sum(count for name, count in counts if str(name) == "dropped-records-total")


def headers_of(letter: Record[Any, Any]) -> dict[str, str]:
    """Return the headers of a dead letter as texts, without the stack."""
    return {
        name.removeprefix("__streams.errors."): (value or b"").decode()
        for name, value in letter.headers
        if not name.endswith("stacktrace")
    }


# -- deserialization -----------------------------------------------------------------------------


def numbers() -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int, name="source").to("out")
    return builder


def pipe_bytes(driver: TopologyTestDriver, *values: bytes, key: bytes = b"k") -> None:
    topic = driver.create_input_topic("in", key=bytes, value=bytes)
    for value in values:
        topic.pipe_input(key, value, timestamp=5, headers=[("trace", b"1")])


GOOD, BAD = bytes(8), b"bad"


def test_bytes_that_do_not_fit_stop_the_application(topology_driver: DriverFactory) -> None:
    driver = topology_driver(numbers().build())

    with pytest.raises(DeserializationError) as caught:
        pipe_bytes(driver, GOOD, BAD)

    error = caught.value
    assert (error.node, error.topic, error.partition, error.offset) == ("source", "in", 0, 1)
    assert "could not read the value of the record at offset 1 of topic 'in'" in str(error)
    assert '`deserialization_exception_handler="continue"`' in str(error)


def test_a_key_that_does_not_fit_is_reported_as_the_key(topology_driver: DriverFactory) -> None:
    driver = topology_driver(numbers().build())

    with pytest.raises(DeserializationError, match="could not read the key"):
        pipe_bytes(driver, GOOD, key=b"\xff")


def test_bytes_that_do_not_fit_may_be_left_out_and_are_counted(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(numbers().build(), deserialization_exception_handler="continue")

    pipe_bytes(driver, BAD, GOOD, BAD)

    assert driver.create_output_topic("out").read_values_to_list() == [0]
    assert reasons(driver) == {("source", "deserialization"): 2}
    assert total(driver) == 2


def large(builder: StreamsBuilder) -> Topology:
    builder.stream("in", key=str, value=bytes, name="source").to("out")
    return builder.build()


def test_a_record_above_max_record_bytes_stops_the_application(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(large(StreamsBuilder()), max_record_bytes=100)

    with pytest.raises(DeserializationError) as caught:
        pipe_bytes(driver, bytes(93), bytes(94))

    error = caught.value
    assert (error.node, error.topic, error.partition, error.offset) == ("source", "in", 0, 1)
    assert str(error) == (
        "Source 'source' could not read the record at offset 1 of topic 'in', partition 0: "
        "ValueError: it has 101 bytes, more than `max_record_bytes` = 100. Raise "
        '`max_record_bytes`, or set `deserialization_exception_handler="continue"` to leave such '
        "records out."
    )


@pytest.mark.parametrize(
    ("key", "value", "header"),
    [(bytes(200), b"", b""), (b"k", bytes(200), b""), (b"k", b"", bytes(200))],
)
def test_of_a_record_above_max_record_bytes_only_its_location_is_kept(
    topology_driver: DriverFactory, key: bytes, value: bytes, header: bytes
) -> None:
    driver = topology_driver(
        large(StreamsBuilder()),
        max_record_bytes=100,
        deserialization_exception_handler="continue",
        errors_dead_letter_queue_topic_name="dead",
    )
    topic = driver.create_input_topic("in", key=bytes, value=bytes)

    topic.pipe_input(b"a", b"1", timestamp=5)
    topic.pipe_input(key, value, timestamp=6, headers=[("trace", header)])
    topic.pipe_input(b"a", b"2", timestamp=7)

    assert driver.create_output_topic("out").read_values_to_list() == [b"1", b"2"]
    assert reasons(driver) == {("source", "deserialization"): 1}
    [letter] = driver.create_output_topic("dead", key=bytes, value=bytes).read_records_to_list()
    assert letter.key is letter.value is None
    assert letter.timestamp == 6
    size = len(key) + len(value) + len("trace") + len(header)
    assert headers_of(letter) == {
        "exception": "ValueError",
        "message": f"it has {size} bytes, more than `max_record_bytes` = 100",
        "topic": "in",
        "partition": "0",
        "offset": "1",
    }


def test_a_key_that_does_not_fit_may_be_left_out(topology_driver: DriverFactory) -> None:
    driver = topology_driver(numbers().build(), deserialization_exception_handler="continue")

    pipe_bytes(driver, GOOD, key=b"\xff")

    assert reasons(driver) == {("source", "deserialization"): 1}


def test_a_dead_letter_has_the_bytes_headers_and_place_of_the_record(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(
        numbers().build(),
        deserialization_exception_handler="continue",
        errors_dead_letter_queue_topic_name="dead",
    )

    pipe_bytes(driver, GOOD, BAD)

    letter = driver.create_output_topic("dead", key=bytes, value=bytes).read_record()
    assert (letter.key, letter.value, letter.timestamp) == (b"k", BAD, 5)
    assert headers_of(letter) == {
        "trace": "1",
        "exception": "ValueError",
        "message": headers_of(letter)["message"],
        "topic": "in",
        "partition": "0",
        "offset": "1",
    }


def test_a_dead_letter_is_written_also_when_the_application_stops(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(numbers().build(), errors_dead_letter_queue_topic_name="dead")

    with pytest.raises(DeserializationError):
        pipe_bytes(driver, BAD)
    pipe_bytes(driver, GOOD)

    letters = driver.create_output_topic("dead", key=bytes, value=bytes)
    assert letters.read_values_to_list() == [BAD]


# -- processing ----------------------------------------------------------------------------------


def divisions() -> StreamsBuilder:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.map_values(lambda value: 10 // value, value=int, name="divide").to("out")
    stream.to("beside")
    return builder


def test_a_function_that_fails_stops_the_application(topology_driver: DriverFactory) -> None:
    driver = topology_driver(divisions().build())

    with pytest.raises(ProcessingError) as caught:
        driver.create_input_topic("in").pipe_value_list([1, 0])

    error = caught.value
    assert (error.node, error.topic, error.partition, error.offset) == ("divide", "in", 0, 1)
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert "Step 'divide' failed on the record at offset 1 of topic 'in', partition 0" in str(error)
    assert error.__notes__[0].startswith("The step was made at test_handlers.py:")


def test_a_record_is_left_out_at_the_failing_step_alone(topology_driver: DriverFactory) -> None:
    driver = topology_driver(divisions().build(), processing_exception_handler="continue")

    driver.create_input_topic("in").pipe_value_list([5, 0, 2])

    assert driver.create_output_topic("out").read_values_to_list() == [2, 5]
    assert driver.create_output_topic("beside").read_values_to_list() == [5, 0, 2]
    assert reasons(driver) == {("divide", "processing"): 1}


def test_a_failure_below_a_processor_is_decided_once(topology_driver: DriverFactory) -> None:
    class Passes(Processor[str, int, str, int]):
        def process(self, record: Record[str, int]) -> None:
            self.context.forward(record)

    asked: list[str] = []

    def ask(context: ErrorHandlerContext, record: Any, error: Exception) -> HandlerResponse:
        asked.append(context.node)
        return HandlerResponse.fail()

    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int).process(Passes, name="above")
    stream.foreach(lambda _, value: 1 // value, name="below")
    driver = topology_driver(builder.build(), processing_exception_handler=ask)

    with pytest.raises(ProcessingError, match="Step 'below'"):
        driver.create_input_topic("in").pipe_input("a", 0)

    assert asked == ["below"]


def test_a_processor_that_fails_after_forwarding_has_forwarded(
    topology_driver: DriverFactory,
) -> None:
    class ForwardsThenFails(Processor[str, int, str, int]):
        def process(self, record: Record[str, int]) -> None:
            self.context.forward(record)
            raise ValueError

    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.process(ForwardsThenFails, key=str, value=int, name="p").to("out")
    driver = topology_driver(builder.build(), processing_exception_handler="continue")

    driver.create_input_topic("in").pipe_input("a", 1)

    assert driver.create_output_topic("out").read_value() == 1
    assert reasons(driver) == {("p", "processing"): 1}


class FailsInPunctuation(Processor[str, int, str, int]):
    """Fails whenever stream time moves."""

    def init(self, context: ProcessorContext[str, int]) -> None:
        super().init(context)
        context.schedule(1, PunctuationType.STREAM_TIME, self.tick)

    def tick(self, timestamp: int) -> None:
        raise ValueError(timestamp)

    def process(self, record: Record[str, int]) -> None: ...


def punctuating() -> Topology:
    topology = Topology().add_source("source", "in", key=str, value=int)
    return topology.add_processor("p", FailsInPunctuation, "source")


def test_a_punctuation_that_fails_may_be_left_out(topology_driver: DriverFactory) -> None:
    driver = topology_driver(punctuating(), processing_exception_handler="continue")

    driver.create_input_topic("in").pipe_value_list([1, 1], start=3, advance=2)

    assert reasons(driver) == {("p", "processing"): 2}


def test_the_dead_letter_of_a_punctuation_has_no_record(topology_driver: DriverFactory) -> None:
    driver = topology_driver(
        punctuating(),
        processing_exception_handler="continue",
        errors_dead_letter_queue_topic_name="dead",
    )

    driver.create_input_topic("in").pipe_input("a", 1, timestamp=4)

    letter: Record[Any, Any] = driver.create_output_topic(
        "dead", key=bytes, value=bytes
    ).read_record()
    place = {"topic": "", "partition": "-1", "offset": "-1"}
    assert (letter.key, letter.value, letter.timestamp) == (None, None, 4)
    assert headers_of(letter).items() >= place.items()


# -- functions as handlers -----------------------------------------------------------------------


def test_a_handler_receives_location_record_and_error(topology_driver: DriverFactory) -> None:
    asked: list[tuple[ErrorHandlerContext, Any, Exception]] = []

    def ask(context: ErrorHandlerContext, record: Any, error: Exception) -> HandlerResponse:
        asked.append((context, record, error))
        return HandlerResponse.resume()

    driver = topology_driver(divisions().build(), processing_exception_handler=ask)

    topic = driver.create_input_topic("in")
    topic.pipe_input("k", 0, timestamp=9, headers=[("h", b"1")])

    [(context, record, error)] = asked
    assert context == ErrorHandlerContext(
        "in", 0, 0, context.headers, 9, "divide", "0_0", b"k", bytes(8), None
    )
    assert context.headers == [("h", b"1")]
    assert record == Record("k", 0, 9, [("h", b"1")])
    assert isinstance(error, ZeroDivisionError)


def ping(depth: int) -> int:
    return pong(depth - 1) if depth else 1 // 0


def pong(depth: int) -> int:
    return ping(depth - 1) if depth else 1 // 0


def wrapping(depth: int) -> int:
    try:
        return ping(depth)
    except ArithmeticError as error:
        msg = "wrapped"
        raise ValueError(msg) from error


@pytest.mark.parametrize("function", [ping, wrapping])
def test_a_handler_gets_both_ends_of_a_long_traceback(
    topology_driver: DriverFactory, function: Callable[[int], int]
) -> None:
    errors: list[BaseException] = []

    def keep(_context: ErrorHandlerContext, _record: Any, error: Exception) -> HandlerResponse:
        errors.append(error.__cause__ or error)
        return HandlerResponse.resume()

    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).map_values(function).to("out")
    driver = topology_driver(builder.build(), processing_exception_handler=keep)

    topic = driver.create_input_topic("in")
    topic.pipe_input("k", 50)
    topic.pipe_input("k", 700)

    shallow, deep = errors
    frames = [frame.f_code.co_name for frame, _line in traceback.walk_tb(deep.__traceback__)]
    assert sum(1 for _ in traceback.walk_tb(shallow.__traceback__)) > 50
    assert len(frames) == 40
    assert frames[1] == function.__name__ if function is ping else frames[0] == "wrapping"
    assert frames[-1] == "ping"
    assert getattr(shallow, "__notes__", []) == []
    assert deep.__notes__ == [f"{702 - 40} calls in the middle of this traceback are left out."]


def test_a_handler_writes_dead_letters_of_its_own(topology_driver: DriverFactory) -> None:
    def letters(context: ErrorHandlerContext, record: Any, error: Exception) -> HandlerResponse:
        return HandlerResponse.resume(
            [ProducerRecord("mine", None, context.timestamp, context.source_raw_key, b"why")]
        )

    driver = topology_driver(
        divisions().build(),
        processing_exception_handler=letters,
        errors_dead_letter_queue_topic_name="unused",
        partitions=3,
    )

    driver.create_input_topic("in").pipe_input("k", 0)

    letter = driver.create_output_topic("mine", key=bytes, value=bytes).read_key_value()
    assert letter == (b"k", b"why")
    assert "unused" not in driver.produced_topic_names()


def test_a_dead_letter_may_name_its_partition(topology_driver: DriverFactory) -> None:
    def letters(context: ErrorHandlerContext, record: Any, error: Exception) -> HandlerResponse:
        return HandlerResponse.resume([ProducerRecord("mine", 2, 0, None, b"why")])

    driver = topology_driver(
        divisions().build(), processing_exception_handler=letters, partitions=3
    )

    driver.create_input_topic("in").pipe_input("k", 0)

    assert driver.produced_topic_names() == {"mine", "beside"}


def test_a_handler_that_fails_stops_the_application(topology_driver: DriverFactory) -> None:
    def fails(context: ErrorHandlerContext, record: Any, error: Exception) -> HandlerResponse:
        raise LookupError("nowhere")

    driver = topology_driver(divisions().build(), processing_exception_handler=fails)

    with pytest.raises(RecordError, match="handler itself failed at step 'divide'") as caught:
        driver.create_input_topic("in").pipe_input("k", 0)

    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("in", 0, 0)


def test_a_handler_that_answers_nothing_stops_the_application(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(
        divisions().build(),
        processing_exception_handler=lambda *_: None,
    )

    with pytest.raises(RecordError, match=r"answered None at step 'divide'. Return `HandlerResp"):
        driver.create_input_topic("in").pipe_input("k", 0)


def test_a_handler_of_reading_gets_the_bytes(topology_driver: DriverFactory) -> None:
    asked: list[Any] = []

    def ask(context: ErrorHandlerContext, record: Any, error: Exception) -> HandlerResponse:
        asked.append((context.origin, context.source_raw_value, record.value))
        return HandlerResponse.resume()

    driver = topology_driver(numbers().build(), deserialization_exception_handler=ask)

    pipe_bytes(driver, BAD)

    assert asked == [("value", BAD, BAD)]


# -- serialization -------------------------------------------------------------------------------


def too_large() -> StreamsBuilder:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.map_values(lambda value: 2**value, value=int).to("out", name="sink")
    return builder


def test_a_value_that_cannot_be_written_stops_the_application(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(too_large().build())

    with pytest.raises(SerializationError) as caught:
        driver.create_input_topic("in").pipe_value_list([1, 64])

    assert (caught.value.node, caught.value.offset) == ("sink", 1)
    assert "Sink 'sink' could not write the value of a record to topic 'out'" in str(caught.value)


def test_a_value_that_cannot_be_written_may_be_left_out(topology_driver: DriverFactory) -> None:
    driver = topology_driver(
        too_large().build(),
        production_exception_handler="continue",
        errors_dead_letter_queue_topic_name="dead",
    )

    driver.create_input_topic("in").pipe_value_list([1, 64, 3])

    assert driver.create_output_topic("out").read_values_to_list() == [2, 8]
    assert reasons(driver) == {("sink", "serialization"): 1}
    assert driver.create_output_topic("dead", key=bytes, value=int).read_value() == 64


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("origin", ["key", "value"])
def test_a_handler_of_writing_gets_the_record_as_it_was_to_be_written(
    topology_driver: DriverFactory, origin: str, partitions: int
) -> None:
    asked: list[Any] = []

    def ask(context: ErrorHandlerContext, record: Any, error: Exception) -> HandlerResponse:
        asked.append((context.origin, record.topic, record.key, record.value))
        return HandlerResponse.resume()

    large = (2**64, 1) if origin == "key" else (1, 2**64)
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).map(lambda *_: large, key=int, value=int).to("out")
    driver = topology_driver(
        builder.build(), production_exception_handler=ask, partitions=partitions
    )

    driver.create_input_topic("in").pipe_input("a", 1)

    assert asked == [(origin, "out", *large)]


def test_a_value_of_the_wrong_type_stops_the_application_despite_the_handler(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).map_values(str, value=int).to("out")  # type: ignore[arg-type]
    driver = topology_driver(builder.build(), production_exception_handler="continue")

    with pytest.raises(SerializationError, match="Give the step that made it the right `value=`"):
        driver.create_input_topic("in").pipe_input("a", 1)


def test_a_type_error_of_the_user_s_own_serde_is_left_to_the_handler(
    topology_driver: DriverFactory,
) -> None:
    def write(value: int) -> bytes:
        return bytes(value + "") if value < 0 else b"%d" % value  # type: ignore[operator]

    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).to("out", value=Serdes.of(write, int), name="sink")
    driver = topology_driver(builder.build(), production_exception_handler="continue")

    driver.create_input_topic("in").pipe_value_list([1, -1, 2])

    assert driver.create_output_topic("out").read_values_to_list() == [1, 2]
    assert reasons(driver) == {("sink", "serialization"): 1}


def test_a_failure_at_a_sink_below_a_punctuation_has_no_place(
    topology_driver: DriverFactory,
) -> None:
    class Large(FailsInPunctuation):
        def tick(self, timestamp: int) -> None:
            self.context.forward(Record("a", 2**64, timestamp))

    topology = Topology().add_source("source", "in", key=str, value=int)
    topology.add_processor("p", Large, "source")
    topology.add_sink("sink", "out", "p", key=str, value=int)
    driver = topology_driver(topology)

    with pytest.raises(SerializationError) as caught:
        driver.create_input_topic("in").pipe_input("a", 1)

    assert (caught.value.node, caught.value.topic) == ("sink", None)


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(lambda s, f: s.filter(f), id="filter"),
        pytest.param(lambda s, f: s.filter_not(f), id="filter_not"),
        pytest.param(lambda s, f: s.map(f), id="map"),
        pytest.param(lambda s, f: s.map_values(partial(f, 0)), id="map_values"),
        pytest.param(lambda s, f: s.map_values(f), id="map_values with key"),
        pytest.param(lambda s, f: s.flat_map(f), id="flat_map"),
        pytest.param(lambda s, f: s.flat_map_values(f), id="flat_map_values"),
        pytest.param(lambda s, f: s.select_key(f), id="select_key"),
        pytest.param(lambda s, f: s.foreach(f), id="foreach"),
        pytest.param(lambda s, f: s.to_table().filter(f), id="table filter"),
        pytest.param(lambda s, f: s.to_table().map_values(f), id="table map_values"),
    ],
)
def test_every_operation_asks_the_handler_about_what_its_function_raises(
    topology_driver: DriverFactory, operation: Any
) -> None:
    def fails(key: Any, value: Any) -> Any:
        raise ValueError(value)

    builder = StreamsBuilder()
    operation(builder.stream("in", key=str, value=int), fails)
    driver = topology_driver(builder.build(), processing_exception_handler="continue")

    driver.create_input_topic("in").pipe_value_list([], start=0)
    driver.create_input_topic("in").pipe_key_value_list([("a", 1), ("b", 2)])

    [((_, reason), count)] = reasons(driver).items()
    assert (reason, count) == ("processing", 2)
