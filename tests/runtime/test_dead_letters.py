"""The dead letters of records that stop the application: each is written once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from headrace import (
    DeserializationError,
    ProcessingError,
    Processor,
    ProcessorContext,
    ProductionError,
    PunctuationType,
    Record,
    RecordError,
    StreamsBuilder,
    StreamsConfig,
)
from headrace.brokers import open_log
from headrace.brokers.log import TopicPartition
from headrace.errors import BrokerUnavailableError
from headrace.runtime.checkpoint.checks import check_markers
from headrace.runtime.in_process import InProcessQuery
from headrace.runtime.run_files import BatchResult
from headrace.topology.topology import Topology

GUARANTEES = ["exactly_once_v2", "at_least_once"]


def counting() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    counted = stream.map_values(lambda value: 10 // value, value=int).group_by_key().count()
    counted.to_stream().to("out")
    return builder.build()


def copying() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.map_values(lambda value: 10 // value, value=int).to("out")
    return builder.build()


class Ticking(Processor[str, int, str, int]):
    """Fails when its stream-time schedule is due."""

    def init(self, context: ProcessorContext[str, int]) -> None:
        super().init(context)
        context.schedule(1, PunctuationType.STREAM_TIME, self._tick)

    def process(self, record: Record[str, int]) -> None:
        pass

    def _tick(self, _timestamp: int) -> None:
        raise ValueError("tick")


def started(
    folder: Path, topology: Topology, guarantee: Any = "exactly_once_v2", **settings: Any
) -> InProcessQuery:
    """Return a query; a second one in a folder replays the first batch, as after a restart."""
    config = StreamsConfig(
        application_id="app",
        state_dir=folder,
        trigger="available_now",
        processing_guarantee=guarantee,
        errors_dead_letter_queue_topic_name="letters",
        **settings,
    )
    log = open_log(config)
    for topic in {"in", "out", "letters"} - set(log.list_topics()):
        log.create_topic(topic)
    log.close()
    return InProcessQuery(topology, config)


def append(query: InProcessQuery, *values: int | bytes) -> None:
    for value in values:
        data = value if isinstance(value, bytes) else value.to_bytes(8, "big")
        query.log.append([("in", 0, 5, b"k", data, None)])


def records(query: InProcessQuery, topic: str) -> list[Any]:
    name = TopicPartition(topic, 0)
    end = query.log.end_offsets([name])[name]
    return [record for some in query.log.read(name, 0, end) for record in some]


def dead_letters(query: InProcessQuery) -> list[tuple[bytes | None, bytes | None]]:
    return [
        (record.value, record.headers.last("__streams.errors.offset"))
        for record in records(query, "letters")
    ]


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("topology", [counting(), copying()], ids=["stateful", "stateless"])
def test_a_record_that_stops_the_application_has_one_dead_letter_over_restarts(
    tmp_path: Path, topology: Topology, guarantee: Literal["exactly_once_v2", "at_least_once"]
) -> None:
    for _ in range(3):
        query = started(tmp_path, topology, guarantee)
        if not records(query, "in"):
            append(query, 1, 0, 2)
        with pytest.raises(ProcessingError):
            query.run()

    assert dead_letters(query) == [((0).to_bytes(8, "big"), b"1")]
    assert records(query, "out") == []


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_record_that_cannot_be_read_has_one_dead_letter(tmp_path: Path, guarantee: str) -> None:
    for _ in range(2):
        query = started(tmp_path, counting(), guarantee)
        if not records(query, "in"):
            append(query, 1, b"short")
        with pytest.raises(DeserializationError):
            query.run()

    assert dead_letters(query) == [(b"short", b"1")]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_record_that_the_broker_refuses_has_one_dead_letter(
    tmp_path: Path, guarantee: str
) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=bytes).to("out")
    query = started(tmp_path, builder.build(), guarantee)
    query.log.delete_topic("out")
    query.log.create_topic("out", settings={"max.message.bytes": "100"})
    append(query, b"good", b"x" * 200)
    end = query.planner.next(query.position)
    for _ in range(2):
        with pytest.raises(ProductionError):
            query.replay(query.position, end)

    assert [value for value, _ in dead_letters(query)] == [b"x" * 200]


def test_the_first_failure_of_a_refused_record_names_its_input(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=bytes).to("out", name="writes")
    query = started(tmp_path, builder.build(), production_exception_handler="continue")
    query.log.delete_topic("out")
    query.log.create_topic("out", settings={"max.message.bytes": "100"})
    append(query, b"good", b"x" * 200)

    query.run()

    [failure] = query.run_files.read(BatchResult).totals.failures
    assert (failure.node, failure.reason) == ("writes", "refused")
    assert failure.text.startswith(
        "Step 'writes' skipped the record at offset 1 of topic 'in', partition 0 (refused): it is "
        "too large"
    )


def test_the_batch_is_written_once_when_the_function_is_corrected(tmp_path: Path) -> None:
    query = started(tmp_path, counting())
    append(query, 1, 0, 2)
    with pytest.raises(ProcessingError):
        query.run()
    continuing = started(tmp_path, counting(), processing_exception_handler="continue")
    continuing.run()

    check_markers("app", continuing.log, continuing._checkpoint)
    assert len(records(continuing, "out")) == 1
    markers = continuing.log.committed_offsets("app-markers")
    assert all("dead_letter" not in marker.metadata for marker in markers.values())


def test_a_checkpoint_is_accepted_after_a_dead_letter_and_no_batch(tmp_path: Path) -> None:
    query = started(tmp_path, counting())
    append(query, 0)
    with pytest.raises(ProcessingError):
        query.run()

    check_markers("app", query.log, query._checkpoint)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_punctuation_that_stops_the_application_has_one_dead_letter(
    tmp_path: Path, guarantee: str
) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).process(Ticking, key=str, value=int).to("out")
    query = started(tmp_path, builder.build(), guarantee)
    append(query, 1)
    end = query.planner.next(query.position)
    for _ in range(2):
        with pytest.raises(ProcessingError):
            query.replay(query.position, end)

    assert dead_letters(query) == [(None, b"-1")]


def test_a_failing_record_of_a_later_batch_has_its_dead_letter(tmp_path: Path) -> None:
    query = started(tmp_path, counting())
    append(query, 1)
    query.run()
    append(query, 0)
    with pytest.raises(ProcessingError):
        query.run()

    assert len(dead_letters(query)) == 1
    check_markers("app", query.log, query._checkpoint)


def test_a_dead_letter_that_is_too_large_is_shortened(tmp_path: Path) -> None:
    query = started(tmp_path, counting())
    query.log.delete_topic("letters")
    query.log.create_topic("letters", settings={"max.message.bytes": "6000"})
    append(query, b"x" * 8_000)
    with pytest.raises(DeserializationError):
        query.run()

    assert dead_letters(query) == [(None, b"0")]


class FailingLog:
    """A log whose transactions for dead letters fail."""

    def __init__(self, log: Any) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    @contextmanager
    def transaction(self, transactional_id: str, **named: Any) -> Iterator[Any]:
        if transactional_id == "app-dead-letters":
            raise BrokerUnavailableError("No answer.")
        with self._log.transaction(transactional_id, **named) as transaction:
            yield transaction


def test_the_error_of_the_record_is_raised_also_if_its_dead_letter_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query = started(tmp_path, counting())
    append(query, 0)
    log = query.log
    query.log = FailingLog(log)
    with pytest.raises(RecordError, match="ZeroDivisionError"), caplog.at_level(logging.WARNING):
        query.run()
    query.log = log

    assert dead_letters(query) == []
    assert "is not written: No answer." in caplog.text
