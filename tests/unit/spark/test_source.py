"""The source as Spark calls it: plans on the driver, Arrow batches in a task."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from headrace import BrokerError, CheckpointError, OffsetOutOfRangeError, StreamsBuilder
from headrace.brokers import TopicPartition
from headrace.brokers.sessions import Broker
from headrace.runtime.checkpoint.layout import LAYOUT_FILE
from headrace.runtime.exchange.packing import unpack
from headrace.runtime.gc_pause import without_collection
from headrace.runtime.planning.startup import prepare
from headrace.runtime.program import make_program
from headrace.spark import source as source_module
from headrace.spark.shipping import ShippedProgram, worker_log
from headrace.spark.source import ROW_SCHEMA, TopicReader, record_batches, source_of
from headrace.spark.worker_errors import WorkerFailure, error_from
from tests.module_time import patch_time
from tests.runtime.in_process import create_leader_topic
from tests.unit.runtime.planning import Planning, append, create


class Source:
    """The source of an application that counts the records of two partitions."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        builder = StreamsBuilder()
        builder.stream("in", key=str, value=int).group_by_key().count().to_stream().to("out")
        self.planning = Planning(builder.build(), folder, **settings)
        create(self.planning.log, **{"in": 2})
        create_leader_topic(self.planning.log, self.planning.config)
        planning = self.planning
        layout, counts = prepare(
            planning.plan,
            planning.config,
            planning.log,
            planning.spark_checkpoint,
            lambda _tasks: 1,
        )
        program = make_program(
            planning.plan,
            planning.config,
            layout,
            partition_counts=counts,
            run_directory=str(folder / "run"),
            leader_epoch=0,
        )
        self.shipped = ShippedProgram.of(program)

    def reader(self) -> TopicReader:
        options = {"checkpoint": str(self.planning.checkpoint)}
        return source_of(self.shipped)(options).streamReader(None)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    monkeypatch.setattr(source_module, "keep_pandas_out", lambda: None)
    return Source(tmp_path)


def test_a_planner_sends_its_warnings_to_the_program(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed: list[str] = []
    monkeypatch.setattr(source_module, "forward_output", followed.append)

    source.reader().initialOffset()

    assert followed == [source.shipped.program().run_directory]


def test_the_source_has_the_rows_of_the_query(source: Source) -> None:
    made = source_of(source.shipped)({})

    assert made.name() == "headrace"
    assert made.schema() == ROW_SCHEMA


def test_a_batch_is_planned_on_the_driver_and_read_in_a_task(source: Source) -> None:
    append(source.planning.log, "in", 3)
    append(source.planning.log, "in", 2, partition=1)
    reader = source.reader()
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()

    end = reader.latestOffset(start, None)  # type: ignore[arg-type]  # not looked at
    [piece] = reader.partitions(start, end)
    [batch] = reader.read(piece)
    reader.stop()

    payloads = [unpack(blob) for blob in batch.column("blob").to_pylist()]
    inputs = [payload.input for payload in payloads if payload.input is not None]
    assert [(each.partition, len(each.timestamps)) for each in inputs] == [(0, 3), (1, 2)]
    assert batch.schema.names == ["grouping_key", "stage", "target", "blob"]


def read_after_loss(source: Source) -> list[tuple[int, int, int]]:
    """Return partition, first offset and count of what is read after records were deleted."""
    log = source.planning.log
    for partition in (0, 1):
        append(log, "in", 5, partition=partition)
    reader = source.reader()
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    end = reader.latestOffset(start, None)  # type: ignore[arg-type]  # not looked at
    [piece] = reader.partitions(start, end)
    log.delete_records({TopicPartition("in", 0): 2, TopicPartition("in", 1): 5})
    payloads = [
        unpack(blob) for batch in reader.read(piece) for blob in batch.column("blob").to_pylist()
    ]
    inputs = [payload.input for payload in payloads if payload.input is not None]
    return [(each.partition, each.first, len(each.timestamps)) for each in inputs]


def test_records_lost_since_the_batch_was_planned_are_an_error(source: Source) -> None:
    with pytest.raises(WorkerFailure) as caught:
        read_after_loss(source)

    assert isinstance(error_from(str(caught.value)), OffsetOutOfRangeError)


def test_lost_records_are_skipped_if_the_application_permits_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "keep_pandas_out", lambda: None)

    assert read_after_loss(Source(tmp_path, fail_on_data_loss=False)) == [(0, 2, 3)]


def test_a_broker_that_does_not_know_where_a_partition_begins_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "keep_pandas_out", lambda: None)
    source = Source(tmp_path, fail_on_data_loss=False)
    log, pauses = Behind(worker_log(source.shipped)), list[float]()
    monkeypatch.setattr(source_module, "worker_log", lambda _shipped: log)

    def catch_up(seconds: float) -> None:
        pauses.append(seconds)
        log.knows = len(pauses) == 3

    patch_time(monkeypatch, "headrace.runtime.tasks.range_reader", sleep=catch_up)

    assert read_after_loss(source) == [(0, 2, 3)]
    assert pauses == [0.1] * 3


def test_a_request_for_the_start_of_a_partition_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "keep_pandas_out", lambda: None)
    monkeypatch.setattr("headrace.runtime.tasks.range_reader._GONE_SECONDS", 0.0)
    source = Source(tmp_path, fail_on_data_loss=False)
    log = Behind(worker_log(source.shipped))
    monkeypatch.setattr(source_module, "worker_log", lambda _shipped: log)

    with pytest.raises(WorkerFailure) as caught:
        read_after_loss(source)

    error = error_from(str(caught.value))
    assert type(error) is BrokerError
    assert str(error) == (
        "The broker reports that offset 0 of 'in', partition 0, is gone, but no later log start "
        "offset. Check the broker, and start again."
    )


class Behind:
    """A log whose broker does not know yet where its partitions begin."""

    def __init__(self, log: Broker) -> None:
        self._log = log
        self.knows = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def beginning_offsets(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._log.beginning_offsets(names) if self.knows else dict.fromkeys(names, 0)


def test_nothing_to_do_is_the_position_itself(source: Source) -> None:
    reader = source.reader()
    start = reader.initialOffset()

    assert reader.latestOffset(start, None) is start  # type: ignore[arg-type]  # not looked at


def test_a_reader_that_planned_nothing_stops_too(source: Source) -> None:
    source.reader().stop()


def test_a_checkpoint_that_disappears_is_an_error(source: Source) -> None:
    (source.planning.checkpoint / LAYOUT_FILE).unlink()

    with pytest.raises(WorkerFailure) as caught:
        source.reader().initialOffset()

    error = error_from(str(caught.value))
    assert isinstance(error, CheckpointError)
    assert "disappeared while it was used" in str(error)


def test_rows_are_handed_on_in_batches_of_some_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "BYTES_PER_BATCH", 10)
    rows = [(number, 1, number, b"1234") for number in range(7)]

    batches = list(record_batches(iter(rows)))

    assert [batch.num_rows for batch in batches] == [2, 2, 2, 1]
    assert [row["grouping_key"] for batch in batches for row in batch.to_pylist()] == list(range(7))
    assert list(record_batches(iter([]))) == []


def test_a_row_above_the_size_of_a_batch_is_a_batch_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(source_module, "BYTES_PER_BATCH", 10)
    rows = [(0, 1, 0, bytes(size)) for size in (4, 11, 4, 4)]

    assert [batch.num_rows for batch in record_batches(iter(rows))] == [1, 1, 2]


def test_the_collector_rests_during_a_batch_and_is_left_as_it_was() -> None:
    with without_collection():
        inside = gc.isenabled()
    after = gc.isenabled()
    gc.disable()
    try:
        with without_collection():
            pass
        still = gc.isenabled()
    finally:
        gc.enable()

    assert (inside, after, still) == (False, True, False)
