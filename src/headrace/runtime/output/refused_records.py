"""Decide about records that the broker refuses, and write the rest of the batch.

Run `make nightly PART=model` and `tests/brokers/test_refused_records.py` after a change here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TypeAlias

from headrace.brokers.log import RawRecord, producer_record
from headrace.brokers.sessions import Broker, ProducerSession
from headrace.control_characters import escape_controls
from headrace.engine.error_text import describe_error
from headrace.engine.record_failures import FirstFailure
from headrace.engine.sinks import Source
from headrace.errors import BrokerError, ProductionError, RecordRefusedError, StreamsError
from headrace.processors.handlers import ErrorHandlerContext, HandlerResponse, shorter_dead_letters
from headrace.records import ProducerRecord, RecordMetadata
from headrace.runtime.dead_letters import placed, write_dead_letters
from headrace.runtime.exchange.output_buffer import OutputChunk, TaskOutputs
from headrace.runtime.exchange.packing import outputs_of, sources_of
from headrace.runtime.output.latencies import Latencies
from headrace.runtime.program import Program
from headrace.topology.nodes import SinkNode

AnyOutputs: TypeAlias = TaskOutputs | OutputChunk

_MAX_RETRIES = 3
_PROBED_TOGETHER = 5_000
"""How many records one transaction probes. Each is a request, and a transaction has a timeout."""
_MAX_KEY_BYTES = 100
"""How much of a key a message quotes."""


@dataclass(eq=False)
class _DeadLetter:
    """A dead letter, and the shorter ones that replace it if the broker refuses it."""

    record: ProducerRecord
    shorter: list[ProducerRecord]


@dataclass(frozen=True)
class _Sent:
    """A record of an attempt: an output of a task by its index, or a dead letter."""

    task_number: int
    source: int | _DeadLetter
    record: RawRecord
    made_of: Source | None = None
    """The input record of an output; None: it is not known."""


class RefusedRecords:
    """Asks the production handler about refused records, and keeps its decisions."""

    def __init__(
        self,
        program: Program,
        log: Broker,
        transactional_id: str,
        digest: str,
        check_leadership: Callable[[], None],
    ) -> None:
        self._program = program
        self._log = log
        self._transactional_id = transactional_id
        self._digest = digest
        self._check_leadership = check_leadership
        self._retries = 0
        self._accepted_alone: set[tuple[str, int | None]] = set()
        """Partitions that accepted each record by itself, after they had refused them together."""
        self._dead_letters: dict[int, list[_DeadLetter]] = {}
        self.skipped: dict[int, set[int]] = {}
        """The outputs of each task that are not sent again, by index."""
        self.accepted: dict[str, int] = {}
        """How many records were accepted although others were refused, by topic."""
        self.counts: dict[str, int] = {}
        """How many records were refused, by topic."""
        self.first: dict[str, FirstFailure] = {}
        """The first refused record that the handler skipped, by sink."""

    def attempt(self, tasks: Mapping[int, AnyOutputs]) -> Iterator[_Sent]:
        """Yield the records of the next attempt, in the order in which they are sent."""
        for task_number, outputs in tasks.items():
            skipped = self.skipped.get(task_number, ())
            for index, (record, made_of) in enumerate(_records_of(outputs)):
                if index not in skipped:
                    yield _Sent(task_number, index, record, made_of)
            for dead_letter in self._dead_letters.get(task_number, ()):
                yield _Sent(task_number, dead_letter, dead_letter.record)

    def decide(self, error: RecordRefusedError, tasks: Mapping[int, AnyOutputs]) -> None:
        """Ask the production handler. Returns if the batch must be written again.

        Raises:
            ProductionError: The application must stop, or the broker accepts each record alone.
            BrokerError: The broker does not answer.
            LeadershipLostError: Another process leads.
        """
        certain = dict(self._log.refusals(sent.record for sent in self.attempt(tasks)))
        if certain:
            refused = [sent for index, sent in enumerate(self.attempt(tasks)) if index in certain]
            for sent, refusal in zip(refused, certain.values(), strict=True):
                if not self._decide_one(sent, refusal, tasks):
                    return
        else:
            # Closed with the loop, because it may hold a producer.
            with closing(self._probe(error, tasks)) as found:
                for sent, refusal in found:
                    if not self._decide_one(sent, refusal, tasks):
                        return
        self._shorten_dead_letters()

    def skip_written(self, written: Collection[int], tasks: Mapping[int, AnyOutputs]) -> None:
        """Do not send accepted records again; ``written`` has their indexes in the attempt."""
        if not written:
            return
        for sent in [sent for index, sent in enumerate(self.attempt(tasks)) if index in written]:
            self._remove(sent)
            _count(self.accepted, sent.record[0], 1)

    def _remove(self, sent: _Sent) -> None:
        if isinstance(sent.source, _DeadLetter):
            self._dead_letters[sent.task_number].remove(sent.source)
        else:
            self.skipped.setdefault(sent.task_number, set()).add(sent.source)

    def _probe(
        self, error: RecordRefusedError, tasks: Mapping[int, AnyOutputs]
    ) -> Generator[tuple[_Sent, RecordRefusedError]]:
        """Yield the refused records that only the broker can name.

        Kafka refuses all records of a request that has a bad one, and does not name it. So this
        sends the records of the partition one by one, in transactions that it aborts.
        """
        settings = {"transactional.id": self._transactional_id, "batch.size": "1"}
        # A producer fences the leader's, so check before it opens. Check again after that: a
        # process that becomes leader from here on fences this producer.
        self._check_leadership()
        session = self._log.open_producer(settings)
        try:
            self._check_leadership()
            left = [s for s in self.attempt(tasks) if s.record[:2] == error.record[:2]]
            is_any = False
            while some := left[:_PROBED_TOGETHER]:
                records = [producer_record(sent.record) for sent in some]
                refused = _first_refused(session, records)
                if refused is None:
                    del left[: len(some)]
                    continue
                is_any = True
                index = records.index(refused.record)
                del left[: index + 1]
                yield some[index], refused
        finally:
            session.close()
        if is_any:
            return
        blamed: ProducerRecord = error.record
        if blamed[:2] not in self._accepted_alone:
            # The topic's settings may have changed meanwhile, so write them together once more.
            self._accepted_alone.add(blamed[:2])
            return
        msg = (
            f"Records for topic {blamed.topic!r}, partition {blamed.partition}, were refused "
            f"together, although each alone is taken: {error.reason.rstrip('.')}. Set the "
            "producer's `batch.size` below the `max.message.bytes` of the topic."
        )
        raise _production_error(msg, blamed, None) from error

    def _decide_one(
        self, sent: _Sent, error: RecordRefusedError, tasks: Mapping[int, AnyOutputs]
    ) -> bool:
        """Decide about a refused record; return False if it is sent again first."""
        task_number, source, record = sent.task_number, sent.source, producer_record(sent.record)
        task = tasks[task_number].task
        if isinstance(source, _DeadLetter):
            _shorten(source, error)
            return True
        self._raise_if_changelog(record, task, error)
        if shorter := self._shorter_dead_letters(record, task):
            self._remove(sent)
            self._dead_letters.setdefault(task_number, []).append(
                _DeadLetter(shorter[0], shorter[1:])
            )
            return True
        node = self._sink_of(record.topic, task)
        response = self._ask_handler(error, record, sent.made_of, node, task)
        if response.result == "retry" and self._retries < _MAX_RETRIES:
            self._retries += 1
            return False
        if response.result == "resume":
            self._remove(sent)
            _count(self.counts, record.topic, 1)
            if node not in self.first:
                self.first[node] = _first_failure(node, sent, error)
            dead_letters = self._dead_letters.setdefault(task_number, [])
            dead_letters += [
                self._dead_letter(dead_letter, record) for dead_letter in response.dead_letters
            ]
            return True
        again = f" after {self._retries} more attempts" if response.result == "retry" else ""
        msg = (
            f"Sink {node!r} of task {task} could not write a record to topic "
            f"{record.topic!r}, partition {record.partition}{again}: "
            f"{error.reason.rstrip('.')}. Correct the step that makes it, or set "
            '`production_exception_handler="continue"` to leave such records out.'
        )
        failure = _production_error(msg, record, node)
        failure.dead_letters = tuple(
            _filled(dead_letter, record) for dead_letter in response.dead_letters
        )
        write_dead_letters(
            self._program,
            self._log,
            failure,
            task_number=task_number,
            failure=f"{self._digest} {record.topic} output {source}",
        )
        raise failure from error

    def _raise_if_changelog(
        self, record: ProducerRecord, task: str, error: RecordRefusedError
    ) -> None:
        """Raise if a changelog refuses a record: without it, copies of the store would differ."""
        if record.topic not in self._program.plan.changelogs:
            return
        _, store = self._program.plan.changelogs[record.topic]
        key = repr((record.key or b"")[:_MAX_KEY_BYTES])
        size = len(record.key or b"") + len(record.value or b"")
        msg = (
            f"Store {store.name!r} of task {task} could not write key {key} ({size} bytes with its "
            f"value) to its changelog topic {record.topic!r}, partition {record.partition}: "
            f"{error.reason.rstrip('.')}. Raise the `max.message.bytes` of that topic, or store "
            "smaller values."
        )
        raise _production_error(msg, record, store.name) from error

    def _ask_handler(
        self,
        error: RecordRefusedError,
        record: ProducerRecord,
        made_of: Source | None,
        node: str,
        task: str,
    ) -> HandlerResponse:
        # Only the place of the source record is known any more, and none of a punctuation.
        topic, partition, offset = made_of or (None, -1, -1)
        context = ErrorHandlerContext(
            topic, partition, offset, record.headers, record.timestamp, node, task
        )
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

    def _dead_letter(self, dead_letter: ProducerRecord, refused: ProducerRecord) -> _DeadLetter:
        dead_letter = _filled(dead_letter, refused)
        first, *shorter = (
            placed(self._program, self._log, each)
            for each in (dead_letter, *shorter_dead_letters(dead_letter))
        )
        return _DeadLetter(first, shorter)

    def _shorter_dead_letters(self, record: ProducerRecord, task: str) -> list[ProducerRecord]:
        """Return shorter versions of an output that is a dead letter; none for other outputs."""
        if any(node.topic == record.topic for node in self._sinks(task)):
            return []  # an application may also process dead letters
        return shorter_dead_letters(record)

    def _shorten_dead_letters(self) -> None:
        """Shorten the dead letters that the broker would refuse too."""
        dead_letters = [dead_letter for some in self._dead_letters.values() for dead_letter in some]
        while refused := self._log.refusals([dead_letter.record for dead_letter in dead_letters]):
            for index, error in refused:
                _shorten(dead_letters[index], error)

    def _sink_of(self, topic: str, task: str) -> str:
        """Return the sink that wrote to a topic; one that chooses topics may write to any."""
        sinks = self._sinks(task)
        named = [node.name for node in sinks if node.topic == topic]
        choosing = [node.name for node in sinks if callable(node.topic)]
        return next(iter(named + choosing), topic)

    def _sinks(self, task: str) -> list[SinkNode]:
        subtopology = self._program.plan.subtopology(int(task.partition("_")[0]))
        return [node for node in subtopology.nodes.values() if isinstance(node, SinkNode)]


def _first_failure(node: str, sent: _Sent, error: RecordRefusedError) -> FirstFailure:
    record_text = f"a record for topic {sent.record[0]!r}"
    if sent.made_of is not None:
        topic, partition, offset = sent.made_of
        record_text = f"the record at offset {offset} of topic {topic!r}, partition {partition}"
    reason = escape_controls(error.reason.rstrip("."))
    return FirstFailure(
        node, "refused", f"Step {node!r} skipped {record_text} (refused): {reason}", None
    )


def _filled(dead_letter: ProducerRecord, refused: ProducerRecord) -> ProducerRecord:
    """Return a dead letter with the key and value of the refused record, if it has neither."""
    if dead_letter.key is None and dead_letter.value is None:
        return dead_letter._replace(key=refused.key, value=refused.value)
    return dead_letter


def _shorten(dead_letter: _DeadLetter, error: RecordRefusedError) -> None:
    """Replace a refused dead letter by a shorter one; raise `ProductionError` if there is none."""
    if dead_letter.shorter:
        dead_letter.record = dead_letter.shorter.pop(0)
        return
    record = dead_letter.record
    msg = (
        f"A dead letter for topic {record.topic!r}, partition {record.partition}, was refused: "
        f"{error.reason.rstrip('.')}. Let that topic take what the handler makes."
    )
    raise _production_error(msg, record, None) from error


def _first_refused(
    session: ProducerSession, records: Sequence[ProducerRecord]
) -> RecordRefusedError | None:
    """Return the refusal of the first record that the broker refuses; None if there is none."""
    for _ in range(_MAX_RETRIES):
        try:
            return _send_and_abort(session, records)
        except BrokerError as error:
            # A refusal ends the transaction. The client may then drop the requests on their way,
            # and with them the reply that names the record.
            if type(error) is not BrokerError:
                raise
    return _send_and_abort(session, records)


def _send_and_abort(
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
        failed.append(failure)  # after the first refusal the client sends nothing more
    session.abort_transaction()
    # The refusal may be reported after the aborts it caused.
    refused = [each for each in failed if isinstance(each, RecordRefusedError)]
    if failed and not refused:
        raise failed[0]
    return min(refused, key=lambda each: records.index(each.record), default=None)


def _production_error(message: str, record: ProducerRecord, node: str | None) -> ProductionError:
    partition = -1 if record.partition is None else record.partition
    return ProductionError(message, node=node, topic=record.topic, partition=partition)


class Records:
    """Counts the records of one attempt while they are sent."""

    def __init__(self, refused: RefusedRecords) -> None:
        self._refused = refused
        self.counts = dict(refused.accepted)
        """How many there were, by topic, with those that were accepted before."""
        self.latencies = Latencies()
        """The timestamps of those that none was refused beside."""

    def of(self, tasks: Mapping[int, AnyOutputs]) -> Iterator[RawRecord]:
        """Yield the outputs of each task in their order, then its dead letters."""
        for task_number, outputs in tasks.items():
            if task_number in self._refused.skipped:
                for sent in self._refused.attempt({task_number: outputs}):
                    _count(self.counts, sent.record[0], 1)
                    yield sent.record
                continue
            for written in outputs:
                _count(self.counts, written.topic, len(written.timestamps))
                self.latencies.add(written.topic, written.timestamps)
                yield from outputs_of(written)


def _count(counts: dict[str, int], topic: str, records: int) -> None:
    counts[topic] = counts.get(topic, 0) + records


def _records_of(outputs: AnyOutputs) -> Iterator[tuple[RawRecord, Source | None]]:
    for written in outputs:
        yield from zip(outputs_of(written), sources_of(written), strict=True)
