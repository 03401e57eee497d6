"""The Python stream sink: what tasks wrote goes to topics, each batch once.

A Spark partition writes one transaction per batch: the records of all its tasks, and a marker for
each of them. A marker is an offset of the group ``<application.id>-epochs``: the batch number plus
one, with metadata that say which checkpoint and which batch it belongs to. A replayed batch finds
the markers and writes only what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from headrace.brokers.log import Appended, OffsetAndMetadata, TopicPartition, producer_record
from headrace.brokers.sessions import Broker
from headrace.engine.failures import said
from headrace.errors import (
    BrokerError,
    CheckpointError,
    LeadershipLostError,
    ProductionError,
    RecordRefusedError,
    StreamsError,
)
from headrace.processors.handlers import ErrorHandlerContext, HandlerResponse
from headrace.records import ProducerRecord, RecordMetadata
from headrace.serdes.partitioner import partition_for_key
from headrace.spark.failures import told
from headrace.spark.leadership import check_leadership
from headrace.spark.notes import BatchNote, Notes
from headrace.spark.planning.markers import Marker, marker_in
from headrace.spark.processes.starting import keep_pandas_out
from headrace.spark.program import Program, ShippedProgram, worker_log
from headrace.spark.tasks.parcels import Outputs, TaskReport, outputs_of, unpack
from headrace.topology.naming import epochs_name, transactional_id
from headrace.topology.nodes import SinkNode

_MOST_RETRIES = 3


class TopicSink(DataSource):
    """The data source of one application, as a sink."""

    shipped: ShippedProgram

    @classmethod
    def name(cls) -> str:
        return "headrace-sink"

    def streamWriter(self, schema: Any, overwrite: bool) -> TopicWriter:  # noqa: FBT001  # Spark's
        return TopicWriter(self.shipped)


def sink_of(shipped: ShippedProgram) -> type[TopicSink]:
    """Return the sink of a program; Spark takes a class, and sends it by value."""

    class ProgramSink(TopicSink):
        pass

    ProgramSink.shipped = shipped
    return ProgramSink


@dataclass
class PartitionNote(WriterCommitMessage):
    """What one Spark partition wrote."""

    reports: list[TaskReport] = field(default_factory=list)
    written: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)


class TopicWriter(DataSourceStreamArrowWriter):
    """Writes what one Spark partition has of a batch."""

    def __init__(self, shipped: ShippedProgram) -> None:
        self._shipped = shipped

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PartitionNote:
        keep_pandas_out()
        with told():
            context = TaskContext.get()
            assert context is not None, "called by Spark"
            program = self._shipped.program()
            batch = BatchWriter(
                program,
                worker_log(self._shipped),
                partition=context.partitionId(),
                batch=int(context.getLocalProperty("streaming.sql.batchId") or -1),
                query=context.getLocalProperty("sql.streaming.queryId") or "",
            )
            return batch.write(_outputs(iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        notes = Notes(self._shipped.program().run_directory)
        last = notes.read(BatchNote)
        if batchId <= last.batch:
            return  # a replay of what is counted
        totals, reports = last.totals, []
        totals.batches += 1
        for message in messages:
            assert isinstance(message, PartitionNote)
            reports += message.reports
            totals.add_written(message.written, message.refused)
        totals.add(reports)
        notes.leave(BatchNote(batchId, reports, totals))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass  # what was committed is found by its markers when the batch is replayed


def _outputs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, Outputs]]:
    for batch in batches:
        for blob in batch.column("blob").to_pylist():
            parcel = unpack(blob)
            assert parcel.outputs is not None, "only outputs reach the sink"
            yield parcel.batch.digest, parcel.outputs


class BatchWriter:
    """Writes the outputs of one batch and Spark partition to a log.

    Args:
        program: What runs.
        log: Where to write.
        partition: The Spark partition.
        batch: The number of the batch.
        query: Spark's id of the query.
    """

    def __init__(
        self, program: Program, log: Broker, *, partition: int, batch: int, query: str
    ) -> None:
        self._program = program
        self._log = log
        self._batch = batch
        self._query = query
        self._exactly_once = program.config.processing_guarantee == "exactly_once_v2"
        self._epochs = epochs_name(program.plan.application_id)
        self._transactional_id = transactional_id(program.plan.application_id, partition)

    def write(self, outputs: Iterable[tuple[str, Outputs]]) -> PartitionNote:
        """Write what is not yet written, and return what was done."""
        note = PartitionNote()
        by_task: dict[int, list[Outputs]] = {}
        digest = ""
        for digest, each in outputs:  # noqa: B007  # the same for all
            note.reports.append(each.report)
            if each.written:
                by_task.setdefault(each.marker, []).append(each)
        for written in by_task.values():
            written.sort(key=lambda each: each.sequence)
        if by_task:
            self._write_what_is_taken(by_task, digest, note)
        return note

    def _write_what_is_taken(
        self, by_task: dict[int, list[Outputs]], digest: str, note: PartitionNote
    ) -> None:
        """Write a batch; again without a record that is refused, if the application says so."""
        refusals = Refusals(self._program, self._log, self._transactional_id)
        while True:
            # Before a producer is opened, which would put out that of the leader.
            self._check_leadership()
            records = _Records(refusals)
            try:
                if self._exactly_once:
                    self._write_once(by_task, digest, records)
                else:
                    self._log.append(records.of(by_task))
            except RecordRefusedError as error:
                refusals.decide(refusals.at_fault(error, by_task), by_task)
            else:
                note.written, note.refused = records.counts, refusals.counts
                return

    def _write_once(
        self, by_task: dict[int, list[Outputs]], digest: str, records: _Records
    ) -> None:
        marker = Marker(self._query, digest, self._program.generation)
        with self._log.transaction(self._transactional_id) as transaction:
            self._check_leadership()
            done = self._done(by_task, marker)
            missing = {task: each for task, each in by_task.items() if task not in done}
            if missing:
                transaction.append(records.of(missing))
                written = OffsetAndMetadata(self._batch + 1, msgspec.json.encode(marker).decode())
                names = [TopicPartition(self._epochs, task) for task in missing]
                transaction.commit_offsets(self._epochs, dict.fromkeys(names, written))

    def _check_leadership(self) -> None:
        application_id = self._program.plan.application_id
        check_leadership(self._log, application_id, self._program.generation)

    def _done(self, by_task: dict[int, list[Outputs]], own: Marker) -> set[int]:
        """Return the tasks whose outputs of this batch are written already."""
        names = {TopicPartition(self._epochs, task): task for task in by_task}
        done: set[int] = set()
        for name, found in self._log.committed_offsets(self._epochs, names).items():
            kept = marker_in(found, self._epochs)
            if kept.query != own.query:
                continue
            if kept.generation > own.generation:
                raise LeadershipLostError(self._program.plan.application_id)
            if found.offset <= self._batch:
                continue
            if found.offset > self._batch + 1 or kept.digest != own.digest:
                msg = (
                    f"Batch {self._batch} of task {name.partition} was written from other offsets "
                    "than this checkpoint says: it is an older copy. Restore the newest one, or "
                    "start again with `headrace reset`."
                )
                raise CheckpointError(msg)
            done.add(names[name])
        return done


class Refusals:
    """Decides about records that the broker does not take, and remembers what was decided.

    Args:
        program: What runs; its production handler is asked.
        log: Where records are written.
        transactional_id: Who writes them.
    """

    def __init__(self, program: Program, log: Broker, transactional_id: str) -> None:
        self._program = program
        self._log = log
        self._transactional_id = transactional_id
        self._retries = 0
        self._letters: dict[int, list[tuple[ProducerRecord, ProducerRecord]]] = {}
        self.left_out: dict[int, set[int]] = {}
        """The places of records that are not written, among those of their task."""
        self.counts: dict[str, int] = {}
        """How many records were refused, by topic."""

    def letters_of(self, task: int) -> list[ProducerRecord]:
        """Return the dead letters of a task."""
        return [letter for letter, _ in self._letters.get(task, ())]

    def at_fault(
        self, error: RecordRefusedError, by_task: Mapping[int, list[Outputs]]
    ) -> RecordRefusedError:
        """Return the refusal of the record that is to blame.

        Kafka refuses all records that come in one request with a bad one, and does not say which
        that is. So those of the partition are sent one by one, in a transaction that is aborted.

        Raises:
            ProductionError: Each record alone is taken.
            BrokerError: The broker could not be asked.
        """
        settings = {"transactional.id": self._transactional_id, "batch.size": "1"}
        refused: list[RecordRefusedError] = []
        failed: list[StreamsError] = []

        def delivered(_where: RecordMetadata | None, failure: StreamsError | None) -> None:
            if isinstance(failure, RecordRefusedError):
                refused.append(failure)
            elif failure is not None:
                failed.append(failure)

        session = self._log.open_producer(settings)
        try:
            if not session.delivers_before_commit:
                return error  # a log that looks at each record by itself
            session.begin_transaction()
            try:
                for record in self._neighbours(error.record, by_task):
                    session.send(record, delivered)
                session.flush()
            except (BrokerError, RecordRefusedError) as failure:
                delivered(None, failure)  # after the first refusal nothing more is taken
            session.abort_transaction()
        finally:
            session.close()
        if refused:
            return refused[0]
        if failed:
            raise failed[0]
        blamed: ProducerRecord = error.record
        msg = (
            f"Records for topic {blamed.topic!r}, partition {blamed.partition}, were refused "
            f"together, although each alone is taken: {error.reason.rstrip('.')}. Set the "
            "producer's `batch.size` below the `max.message.bytes` of the topic."
        )
        raise _production_error(msg, blamed, None) from error

    def _neighbours(
        self, refused: ProducerRecord, by_task: Mapping[int, list[Outputs]]
    ) -> Iterator[ProducerRecord]:
        """Yield what is to be written to the partition of a record."""
        for record in _Records(self).of(by_task):
            if record[:2] == refused[:2]:
                yield producer_record(record)

    def decide(self, error: RecordRefusedError, by_task: Mapping[int, list[Outputs]]) -> None:
        """Ask what becomes of a refused record; return if the batch is to be written again.

        Raises:
            ProductionError: The application is to stop.
        """
        record: ProducerRecord = error.record
        found = self._find(record, by_task)
        if found is None:
            self._shorten_letter(error, record)
            return
        marker, place = found
        task = by_task[marker][0].report.task
        node = self._sink_of(record.topic, task)
        response = self._asked(error, record, node, task)
        if response.result == "retry" and self._retries < _MOST_RETRIES:
            self._retries += 1
        elif response.result == "resume":
            self.left_out.setdefault(marker, set()).add(place)
            self.counts[record.topic] = self.counts.get(record.topic, 0) + 1
            letters = self._letters.setdefault(marker, [])
            letters += [self._addressed(letter, record) for letter in response.dead_letters]
        else:
            again = f" after {self._retries} more attempts" if response.result == "retry" else ""
            msg = (
                f"Sink {node!r} of task {task} could not write a record to topic "
                f"{record.topic!r}, partition {record.partition}{again}: "
                f"{error.reason.rstrip('.')}. Correct the step that makes it, or set "
                '`production_exception_handler="continue"` to leave such records out.'
            )
            raise _production_error(msg, record, node) from error

    def _find(
        self, record: ProducerRecord, by_task: Mapping[int, list[Outputs]]
    ) -> tuple[int, int] | None:
        for marker, outputs in by_task.items():
            left_out = self.left_out.get(marker, ())
            for place, written in enumerate(_records_of(outputs)):
                if written == record and place not in left_out:
                    return marker, place
        return None

    def _asked(
        self, error: RecordRefusedError, record: ProducerRecord, node: str, task: str
    ) -> HandlerResponse:
        # What it was made from is not known any more, as in a punctuation.
        context = ErrorHandlerContext(None, -1, -1, record.headers, record.timestamp, node, task)
        try:
            response = self._program.settings.on_production_error(context, record, error)
        except Exception as own:
            msg = f"The exception handler itself failed at step {node!r}: {said(own)}."
            raise _production_error(msg, record, node) from own
        if not isinstance(response, HandlerResponse):
            msg = (
                f"The exception handler answered {response!r} at step {node!r}. Return "
                "`HandlerResponse.resume()`, `HandlerResponse.retry()` or `HandlerResponse.fail()`."
            )
            raise _production_error(msg, record, node) from error
        return response

    def _addressed(
        self, letter: ProducerRecord, refused: ProducerRecord
    ) -> tuple[ProducerRecord, ProducerRecord]:
        """Return a dead letter as it is written, and as it is if that is refused too.

        A letter that holds nothing takes key and value of what was refused.
        """
        plain = self._placed(letter)
        if letter.key is not None or letter.value is not None:
            return plain, plain
        return self._placed(letter._replace(key=refused.key, value=refused.value)), plain

    def _placed(self, letter: ProducerRecord) -> ProducerRecord:
        if letter.partition is not None:
            return letter
        partition = 0
        if letter.key is not None:
            known = self._program.partition_counts.get(letter.topic)
            count = self._log.partition_count(letter.topic) if known is None else known
            partition = partition_for_key(letter.key, count)
        return letter._replace(partition=partition)

    def _shorten_letter(self, error: RecordRefusedError, record: ProducerRecord) -> None:
        """Write a refused dead letter without what was refused: most often that was too large."""
        for letters in self._letters.values():
            for place, (letter, plain) in enumerate(letters):
                if letter == record and letter != plain:
                    letters[place] = (plain, plain)
                    return
        msg = (
            f"A dead letter for topic {record.topic!r}, partition {record.partition}, was refused: "
            f"{error.reason.rstrip('.')}. Let that topic take what the handler makes."
        )
        raise _production_error(msg, record, None) from error

    def _sink_of(self, topic: str, task: str) -> str:
        """Return the sink that wrote to a topic; one that chooses topics may write to any."""
        part = self._program.plan.part(int(task.partition("_")[0]))
        sinks = [node for node in part.part.nodes.values() if isinstance(node, SinkNode)]
        named = [node.name for node in sinks if node.topic == topic]
        choosing = [node.name for node in sinks if callable(node.topic)]
        return next(iter(named + choosing), topic)


def _production_error(message: str, record: ProducerRecord, node: str | None) -> ProductionError:
    partition = -1 if record.partition is None else record.partition
    return ProductionError(message, node=node, topic=record.topic, partition=partition)


class _Records:
    """The records of one attempt at a batch, counted while they are handed over."""

    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals
        self.counts: dict[str, int] = {}
        """How many there were, by topic."""

    def of(self, tasks: Mapping[int, list[Outputs]]) -> Iterator[Appended]:
        """Yield what tasks wrote, in the order they wrote it, then dead letters."""
        for task, outputs in tasks.items():
            if task in self._refusals.left_out:
                yield from self._accepted(task, outputs)
                continue
            for each in outputs:
                for written in each.written:
                    self._count(written.topic, len(written.timestamps))
                    yield from outputs_of(written)

    def _accepted(self, task: int, outputs: list[Outputs]) -> Iterator[Appended]:
        left_out = self._refusals.left_out[task]
        for place, record in enumerate(_records_of(outputs)):
            if place not in left_out:
                self._count(record[0], 1)
                yield record
        for letter in self._refusals.letters_of(task):
            self._count(letter.topic, 1)
            yield letter

    def _count(self, topic: str, records: int) -> None:
        self.counts[topic] = self.counts.get(topic, 0) + records


def _records_of(outputs: list[Outputs]) -> Iterator[Appended]:
    for each in outputs:
        for written in each.written:
            yield from outputs_of(written)
