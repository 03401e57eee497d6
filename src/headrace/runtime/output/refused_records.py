"""Records that the broker does not take: the application decides what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import count
from typing import TypeAlias

from headrace.brokers.log import RawRecord, producer_record
from headrace.brokers.sessions import Broker, ProducerSession
from headrace.engine.record_failures import describe_error
from headrace.errors import BrokerError, ProductionError, RecordRefusedError, StreamsError
from headrace.processors.handlers import ErrorHandlerContext, HandlerResponse
from headrace.records import ProducerRecord, RecordMetadata
from headrace.runtime.exchange.output_buffer import SomeOutputs, TaskOutputs
from headrace.runtime.exchange.packing import outputs_of
from headrace.runtime.program import Program
from headrace.serdes.partitioner import partition_for_key
from headrace.topology.nodes import SinkNode

AnyOutputs: TypeAlias = TaskOutputs | SomeOutputs

_MOST_RETRIES = 3

_TRIED_AT_ONCE = 5_000
"""How many records are tried in a transaction: each is a request, and a broker ends one in time."""


class RefusedRecords:
    """Decides about records that the broker does not take, and remembers what was decided.

    Args:
        program: What runs; its production handler is asked.
        log: Where records are written.
        transactional_id: Who writes them.
        check_leadership: Raises if another process has taken over.
    """

    def __init__(
        self,
        program: Program,
        log: Broker,
        transactional_id: str,
        check_leadership: Callable[[], None],
    ) -> None:
        self._program = program
        self._log = log
        self._transactional_id = transactional_id
        self._check_leadership = check_leadership
        self._retries = 0
        self._taken_alone: set[tuple[str, int | None]] = set()
        """Partitions that took each record by itself, after they had refused them."""
        self._letters: dict[int, list[tuple[ProducerRecord, ProducerRecord]]] = {}
        self.skipped: dict[int, set[int]] = {}
        """The places of records that are not written any more, among those of their task."""
        self.taken: dict[str, int] = {}
        """How many records were taken although others were refused, by topic."""
        self.counts: dict[str, int] = {}
        """How many records were refused, by topic."""

    def letters_of(self, task: int) -> list[ProducerRecord]:
        """Return the dead letters of a task."""
        return [letter for letter, _ in self._letters.get(task, ())]

    def decide(self, error: RecordRefusedError, tasks: Mapping[int, AnyOutputs]) -> None:
        """Ask what becomes of refused records; return if the batch is to be written again.

        Raises:
            ProductionError: The application is to stop, or each record alone is taken again.
            BrokerError: The broker could not be asked.
            LeadershipLostError: Another process has taken over.
        """
        # Closed with the loop: it may hold a producer.
        with closing(self._at_fault(error, tasks)) as refused:
            for each in refused:
                if not self._is_skipped(each, tasks):
                    return

    def skip_written(self, taken: Collection[int], tasks: Mapping[int, AnyOutputs]) -> None:
        """Write what was taken of an attempt not once more.

        Args:
            taken: The places of it among all records of the attempt.
            tasks: What the attempt was made with.
        """
        if not taken:
            return
        indexes = count()
        for task, outputs in tasks.items():
            skipped = self.skipped.setdefault(task, set())
            for index, record in enumerate(_records_of(outputs)):
                if index not in skipped and next(indexes) in taken:
                    skipped.add(index)
                    _count(self.taken, record[0], 1)
            dead_letters = self._letters.get(task, [])
            for letter in list(dead_letters):
                if next(indexes) in taken:
                    dead_letters.remove(letter)
                    _count(self.taken, letter[0].topic, 1)

    def _at_fault(
        self, error: RecordRefusedError, tasks: Mapping[int, AnyOutputs]
    ) -> Generator[RecordRefusedError]:
        """Yield the refusals of the records that are to blame.

        Kafka refuses all records that come in one request with a bad one, and does not say which
        that is. So those of the partition are sent one by one, in transactions that are aborted.
        """
        settings = {"transactional.id": self._transactional_id, "batch.size": "1"}
        # Before a producer is opened, which would put out that of the leader, and after it: who
        # takes over from here on fences this one.
        self._check_leadership()
        session = self._log.open_producer(settings)
        try:
            self._check_leadership()
            if not session.delivers_before_commit:
                yield error  # a log that looks at each record by itself
                return
            left = list(self._neighbours(error.record, tasks))
            is_any = False
            while some := left[:_TRIED_AT_ONCE]:
                refused = _first_refused(session, some)
                if refused is None:
                    del left[: len(some)]
                    continue
                is_any = True
                del left[: some.index(refused.record) + 1]
                yield refused
        finally:
            session.close()
        if is_any:
            return
        blamed: ProducerRecord = error.record
        if blamed[:2] not in self._taken_alone:
            # What the topic takes may have changed meanwhile: they are written together once more.
            self._taken_alone.add(blamed[:2])
            return
        msg = (
            f"Records for topic {blamed.topic!r}, partition {blamed.partition}, were refused "
            f"together, although each alone is taken: {error.reason.rstrip('.')}. Set the "
            "producer's `batch.size` below the `max.message.bytes` of the topic."
        )
        raise _production_error(msg, blamed, None) from error

    def _neighbours(
        self, refused: ProducerRecord, tasks: Mapping[int, AnyOutputs]
    ) -> Iterator[ProducerRecord]:
        """Yield what is to be written to the partition of a record."""
        for record in Records(self).of(tasks):
            if record[:2] == refused[:2]:
                yield producer_record(record)

    def _is_skipped(self, error: RecordRefusedError, tasks: Mapping[int, AnyOutputs]) -> bool:
        """Ask what becomes of a refused record; return False if it is tried again first."""
        record: ProducerRecord = error.record
        found = self._find(record, tasks)
        if found is None:
            self._shorten_letter(error, record)
            return False
        task_number, index = found
        task = tasks[task_number].task
        node = self._sink_of(record.topic, task)
        response = self._asked(error, record, node, task)
        if response.result == "retry" and self._retries < _MOST_RETRIES:
            self._retries += 1
            return False
        if response.result == "resume":
            self.skipped.setdefault(task_number, set()).add(index)
            _count(self.counts, record.topic, 1)
            dead_letters = self._letters.setdefault(task_number, [])
            dead_letters += [self._addressed(letter, record) for letter in response.dead_letters]
            return True
        again = f" after {self._retries} more attempts" if response.result == "retry" else ""
        msg = (
            f"Sink {node!r} of task {task} could not write a record to topic "
            f"{record.topic!r}, partition {record.partition}{again}: "
            f"{error.reason.rstrip('.')}. Correct the step that makes it, or set "
            '`production_exception_handler="continue"` to leave such records out.'
        )
        raise _production_error(msg, record, node) from error

    def _find(
        self, record: ProducerRecord, tasks: Mapping[int, AnyOutputs]
    ) -> tuple[int, int] | None:
        for task_number, outputs in tasks.items():
            skipped = self.skipped.get(task_number, ())
            for index, written in enumerate(_records_of(outputs)):
                if written == record and index not in skipped:
                    return task_number, index
        return None

    def _asked(
        self, error: RecordRefusedError, record: ProducerRecord, node: str, task: str
    ) -> HandlerResponse:
        # What it was made from is not known any more, as in a punctuation.
        context = ErrorHandlerContext(None, -1, -1, record.headers, record.timestamp, node, task)
        try:
            response = self._program.settings.on_production_error(context, record, error)
        except Exception as own:
            msg = f"The exception handler itself failed at step {node!r}: {describe_error(own)}."
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
            partitions = self._log.partition_count(letter.topic) if known is None else known
            partition = partition_for_key(letter.key, partitions)
        return letter._replace(partition=partition)

    def _shorten_letter(self, error: RecordRefusedError, record: ProducerRecord) -> None:
        """Write a refused dead letter without what was refused: most often that was too large."""
        for dead_letters in self._letters.values():
            for index, (letter, plain) in enumerate(dead_letters):
                if letter == record and letter != plain:
                    dead_letters[index] = (plain, plain)
                    return
        msg = (
            f"A dead letter for topic {record.topic!r}, partition {record.partition}, was refused: "
            f"{error.reason.rstrip('.')}. Let that topic take what the handler makes."
        )
        raise _production_error(msg, record, None) from error

    def _sink_of(self, topic: str, task: str) -> str:
        """Return the sink that wrote to a topic; one that chooses topics may write to any."""
        subtopology = self._program.plan.subtopology(int(task.partition("_")[0]))
        sinks = [node for node in subtopology.nodes.values() if isinstance(node, SinkNode)]
        named = [node.name for node in sinks if node.topic == topic]
        choosing = [node.name for node in sinks if callable(node.topic)]
        return next(iter(named + choosing), topic)


def _first_refused(
    session: ProducerSession, records: Sequence[ProducerRecord]
) -> RecordRefusedError | None:
    """Return the refusal of the first record that is not taken; None if all are."""
    for _ in range(_MOST_RETRIES):
        try:
            return _tried(session, records)
        except BrokerError as error:
            # The client may drop what is on its way when a refusal ends the transaction, and with
            # it the answer that says which record that was.
            if type(error) is not BrokerError:
                raise
    return _tried(session, records)


def _tried(
    session: ProducerSession, records: Sequence[ProducerRecord]
) -> RecordRefusedError | None:
    """Send records in a transaction that is aborted; return the refusal of the first."""
    failed: list[StreamsError] = []

    def delivered(_where: RecordMetadata | None, failure: StreamsError | None) -> None:
        if failure is not None:
            failed.append(failure)

    session.begin_transaction()
    try:
        for record in records:
            session.send(record, delivered)
        session.flush()
    except (BrokerError, RecordRefusedError) as failure:
        failed.append(failure)  # after the first refusal nothing more is taken
    session.abort_transaction()
    # What was refused may be told after what was only aborted with it.
    refused = [each for each in failed if isinstance(each, RecordRefusedError)]
    if failed and not refused:
        raise failed[0]
    return min(refused, key=lambda each: records.index(each.record), default=None)


def _production_error(message: str, record: ProducerRecord, node: str | None) -> ProductionError:
    partition = -1 if record.partition is None else record.partition
    return ProductionError(message, node=node, topic=record.topic, partition=partition)


class Records:
    """The records of one attempt at a batch, counted while they are handed over."""

    def __init__(self, refused: RefusedRecords) -> None:
        self._refusals = refused
        self.counts = dict(refused.taken)
        """How many there were, by topic, with those that were taken before."""

    def of(self, tasks: Mapping[int, AnyOutputs]) -> Iterator[RawRecord]:
        """Yield what tasks wrote, in the order they wrote it, then dead letters."""
        for task, outputs in tasks.items():
            if task in self._refusals.skipped:
                yield from self._accepted(task, outputs)
                continue
            for written in outputs:
                _count(self.counts, written.topic, len(written.timestamps))
                yield from outputs_of(written)

    def _accepted(self, task: int, outputs: AnyOutputs) -> Iterator[RawRecord]:
        skipped = self._refusals.skipped[task]
        for index, record in enumerate(_records_of(outputs)):
            if index not in skipped:
                _count(self.counts, record[0], 1)
                yield record
        for letter in self._refusals.letters_of(task):
            _count(self.counts, letter.topic, 1)
            yield letter


def _count(counts: dict[str, int], topic: str, records: int) -> None:
    counts[topic] = counts.get(topic, 0) + records


def _records_of(outputs: AnyOutputs) -> Iterator[RawRecord]:
    for written in outputs:
        yield from outputs_of(written)
