"""Records that the broker refuses: handlers, dead letters, rewrites."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from headrace import (
    BrokerUnavailableError,
    ErrorHandlerContext,
    HandlerResponse,
    ProducerRecord,
    ProductionError,
)
from headrace.brokers.log import producer_record
from headrace.brokers.sessions import Broker
from headrace.errors import BrokerError, LeadershipLostError, RecordRefusedError
from headrace.records import NO_HEADERS, Headers, RecordMetadata
from headrace.runtime.output.batch_writer import batch_result
from headrace.runtime.run_files import BatchResult
from tests.unit.runtime.planning import create
from tests.unit.runtime.writing import LARGE, LIMIT, Writing, dead_letters_of, lead, outputs


@pytest.fixture
def writing(tmp_path: Path) -> Writing:
    return Writing(tmp_path)


@pytest.fixture
def continuing(tmp_path: Path) -> Writing:
    return Writing(
        tmp_path,
        production_exception_handler="continue",
        errors_dead_letter_queue_topic_name="letters",
    )


def test_a_refused_record_stops_the_application(writing: Writing) -> None:
    with pytest.raises(ProductionError) as caught:
        writing.write(outputs(0, b"a"), outputs(1, b"ok", LARGE, topic="small"))

    assert str(caught.value) == (
        "Sink 'writes-small' of task 0_1 could not write a record to topic 'small', partition 0: "
        f"it is too large ({2 * LIMIT + 3} bytes, and `max.message.bytes` is {LIMIT}). Correct the "
        'step that makes it, or set `production_exception_handler="continue"` to leave such '
        "records out."
    )
    error = caught.value
    assert (error.node, error.topic, error.partition) == ("writes-small", "small", 0)
    assert writing.values() == []
    assert writing.markers() == {}


def test_a_refused_record_can_be_left_out(continuing: Writing) -> None:
    refused = outputs(0, b"a", LARGE, b"b", topic="small")

    note = continuing.write(refused, outputs(1, b"c"))

    assert continuing.values("small") == [b"a", b"b"]
    assert continuing.values() == [b"c"]
    assert continuing.markers() == {0: 1, 1: 1}
    assert note.refused == {"small": 1}
    assert note.written == {"small": 2, "out": 1, "letters": 1}


def test_the_first_refused_record_of_a_sink_is_a_first_failure(continuing: Writing) -> None:
    note = continuing.write(outputs(0, b"a", LARGE, LARGE + b"y", topic="small"))
    totals = batch_result(BatchResult(), 0, [note, note]).totals

    [failure] = totals.failures
    assert (failure.node, failure.reason, failure.line) == ("writes-small", "refused", None)
    assert failure.text == (
        "Step 'writes-small' skipped a record for topic 'small' (refused): it is too large "
        f"({2 * LIMIT + 3} bytes, and `max.message.bytes` is {LIMIT})"
    )


def test_its_dead_letter_is_in_the_same_transaction(continuing: Writing) -> None:
    headers = Headers([("trace", b"1")])

    continuing.write(outputs(0, LARGE, topic="small", headers=headers))

    [dead_letter] = dead_letters_of(continuing)
    assert (dead_letter["key"], dead_letter["value"]) == (b"key", LARGE)
    assert dead_letter["trace"] == b"1"
    assert dead_letter["__streams.errors.exception"] == b"headrace.errors.RecordRefusedError"
    assert b"'small', partition 0, was refused" in dead_letter["__streams.errors.message"]
    assert dead_letter["__streams.errors.topic"] is None
    assert dead_letter["__streams.errors.offset"] == b"-1"


def test_several_refused_records_are_left_out(continuing: Writing) -> None:
    values = [LARGE, b"a", LARGE, b"b", LARGE + b"y"]

    note = continuing.write(
        outputs(0, *values, topic="small"), outputs(1, LARGE, b"c", topic="small")
    )

    assert continuing.values("small") == [b"a", b"b", b"c"]
    assert note.refused == {"small": 4}
    assert len(dead_letters_of(continuing)) == 4


def test_a_replay_of_a_batch_with_refused_records_writes_nothing(continuing: Writing) -> None:
    for _ in range(2):
        note = continuing.write(outputs(0, LARGE, b"a", topic="small"))

    assert continuing.values("small") == [b"a"]
    assert len(dead_letters_of(continuing)) == 1
    assert (note.written, note.refused) == ({}, {})


def test_a_dead_letter_that_would_be_refused_too_comes_without_what_was_refused(
    tmp_path: Path,
) -> None:
    writing = Writing(
        tmp_path,
        production_exception_handler="continue",
        errors_dead_letter_queue_topic_name="strict",
    )
    # The stack in the headers takes some room too.
    writing.log.delete_topic("strict")
    writing.log.create_topic("strict", partitions=2, settings={"max.message.bytes": "6000"})

    writing.write(outputs(0, b"x" * 8_000, b"a", topic="small"))

    assert writing.values("small") == [b"a"]
    [dead_letter] = writing.records("strict", 0)
    assert (dead_letter.key, dead_letter.value) == (None, None)


@pytest.fixture
def at_least_once(tmp_path: Path) -> Writing:
    return Writing(
        tmp_path,
        processing_guarantee="at_least_once",
        production_exception_handler="continue",
        errors_dead_letter_queue_topic_name="letters",
    )


@pytest.mark.parametrize("at_once", [1, 300, 1 << 20])
def test_at_least_once_leaves_refused_records_out_and_repeats_no_others(
    at_least_once: Writing, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("headrace.runtime.output.batch_writer._WRITTEN_AT_ONCE", at_once)

    note = at_least_once.write(
        outputs(0, b"1", b"2", b"3", b"4"),
        outputs(1, b"a", LARGE, b"b", LARGE, LARGE, b"c", topic="small"),
        outputs(0, b"5", sequence=2),
    )

    assert at_least_once.values() == [b"1", b"2", b"3", b"4", b"5"]
    assert at_least_once.values("small") == [b"a", b"b", b"c"]
    assert len(dead_letters_of(at_least_once)) == 3
    assert note.written == {"out": 5, "small": 3, "letters": 3}
    assert note.refused == {"small": 3}


class Handler:
    """Gives its answers one after the other, the last one for ever, and keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[ErrorHandlerContext, Any, Exception]] = []

    def __call__(self, context: ErrorHandlerContext, record: Any, error: Exception) -> Any:
        self.asked.append((context, record, error))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def handled(folder: Path, *answers: Any) -> tuple[Writing, Handler]:
    handler = Handler(*answers)
    return Writing(folder, production_exception_handler=handler), handler


def test_the_handler_receives_the_refused_record_and_its_location(tmp_path: Path) -> None:
    writing, handler = handled(tmp_path, HandlerResponse.resume())
    headers = Headers([("trace", b"1")])

    writing.write(outputs(1, LARGE, topic="small", headers=headers))

    [(context, record, error)] = handler.asked
    assert record == ProducerRecord("small", 0, 1, b"key", LARGE, headers)
    assert context == ErrorHandlerContext(None, -1, -1, headers, 1, "writes-small", "0_1")
    assert "too large" in str(error)


def test_a_handler_s_own_dead_letters_are_written_as_they_are(tmp_path: Path) -> None:
    dead_letter = ProducerRecord("mine", None, 7, b"key", b"value", NO_HEADERS)
    placed = ProducerRecord("mine", 2, 8, None, b"placed", NO_HEADERS)
    keyless = ProducerRecord("mine", None, 9, None, b"keyless", NO_HEADERS)
    writing, _ = handled(tmp_path, HandlerResponse.resume([dead_letter, placed, keyless]))
    create(writing.log, mine=3)

    writing.write(outputs(0, LARGE, topic="small"))

    found = {
        record.value: (partition, record.key)
        for partition in range(3)
        for record in writing.records("mine", partition)
    }
    assert found[b"placed"] == (2, None)
    assert found[b"keyless"] == (0, None)
    assert found[b"value"][1] == b"key"


def test_a_handler_s_dead_letter_that_is_refused_stops_the_application(tmp_path: Path) -> None:
    dead_letter = ProducerRecord("small", 0, 7, b"key", LARGE + b"!", NO_HEADERS)
    writing, handler = handled(tmp_path, HandlerResponse.resume([dead_letter]))

    with pytest.raises(ProductionError, match="A dead letter for topic 'small', partition 0"):
        writing.write(outputs(0, LARGE, topic="small"))

    assert len(handler.asked) == 1
    assert writing.values("small") == []


def test_a_record_can_be_retried_until_it_is_accepted(tmp_path: Path) -> None:
    writing, handler = handled(tmp_path, HandlerResponse.retry())
    fits = {"max.message.bytes": str(9 * LIMIT)}

    def grow(*asked: Any) -> HandlerResponse:
        writing.log.delete_topic("small")
        writing.log.create_topic("small", settings=fits)
        handler.asked.append(asked)
        return HandlerResponse.retry()

    object.__setattr__(writing.program.settings, "on_production_error", grow)

    note = writing.write(outputs(0, LARGE, topic="small"))

    assert writing.values("small") == [LARGE]
    assert (note.written, note.refused) == ({"small": 1}, {})
    assert len(handler.asked) == 1


def test_a_record_is_not_tried_for_ever(tmp_path: Path) -> None:
    writing, handler = handled(tmp_path, HandlerResponse.retry())

    with pytest.raises(ProductionError, match="partition 0 after 3 more attempts: it is too large"):
        writing.write(outputs(0, LARGE, topic="small"))

    assert len(handler.asked) == 4


def test_a_handler_may_change_its_mind(tmp_path: Path) -> None:
    writing, _ = handled(tmp_path, HandlerResponse.retry(), HandlerResponse.resume())

    note = writing.write(outputs(0, LARGE, b"a", topic="small"))

    assert writing.values("small") == [b"a"]
    assert note.refused == {"small": 1}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (ValueError("broken"), "The exception handler itself failed at step 'writes-small': "),
        ("resume", "The exception handler answered 'resume' at step 'writes-small'. Return "),
    ],
)
def test_a_handler_that_fails_stops_the_application(
    tmp_path: Path, answer: Any, message: str
) -> None:
    writing, _ = handled(tmp_path, answer)

    with pytest.raises(ProductionError) as caught:
        writing.write(outputs(0, LARGE, topic="small"))

    assert str(caught.value).startswith(message)


def test_a_record_without_a_sink_is_reported_by_its_topic(writing: Writing) -> None:
    writing.log.create_topic("changelog", settings={"max.message.bytes": str(LIMIT)})

    with pytest.raises(ProductionError, match="Sink 'changelog' of task 0_0 could not write"):
        writing.write(outputs(0, LARGE, topic="changelog"))


class Probe:
    """A producer that tells at once what the broker takes, as Kafka's does."""

    delivers_before_commit = True

    def __init__(self, log: Requests) -> None:
        self._log = log
        self._failed = False

    def begin_transaction(self) -> None:
        self._log.calls.append("begin")
        self._failed = False

    def send(self, record: ProducerRecord, on_delivery: Any) -> None:
        if self._failed:
            raise BrokerError("The transaction must be aborted.")
        self._log.probed.append(record.value)
        error = self._log.unavailable or self._log.refusal(record)
        self._failed = error is not None
        on_delivery(None if error else RecordMetadata(record.topic, 0, 0), error)

    def flush(self) -> None: ...

    def abort_transaction(self) -> None:
        self._log.calls.append("abort")

    def close(self) -> None:
        self._log.calls.append("close")


class Requests:
    """A log that takes or refuses all records of a partition together, and blames the first."""

    def __init__(self, log: Broker, *, most_bytes: int = 10**9) -> None:
        self._log = log
        self.most_bytes = most_bytes
        self.unavailable: Exception | None = None
        self.on_refusal: Callable[[], None] = lambda: None
        self.on_open: Callable[[], None] = lambda: None
        self.opened: list[dict[str, str]] = []
        self.calls: list[str] = []
        self.probed: list[bytes | None] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def refusal(self, record: ProducerRecord) -> RecordRefusedError | None:
        is_large = record.topic in ("small", "tight") and len(record.value or b"") > LIMIT
        return RecordRefusedError(record, reason="too large.") if is_large else None

    def refusals(self, records: Iterable[Any]) -> list[tuple[int, RecordRefusedError]]:
        return []  # as for records that only the broker can judge

    def open_producer(self, settings: dict[str, str]) -> Probe:
        self.opened.append(settings)
        self.on_open()
        return Probe(self)

    @contextmanager
    def transaction(self, *given: Any, **named: Any) -> Iterator[Any]:
        gathered: list[ProducerRecord] = []
        with self._log.transaction(*given, **named) as inner:
            append = inner.append

            def noted(records: Iterable[Any]) -> None:
                gathered.extend(map(producer_record, records))
                append(gathered)

            inner.append = noted  # type: ignore[method-assign]
            yield inner
            first: dict[str, ProducerRecord] = {}
            sizes: Counter[str] = Counter()
            for record in gathered:
                blamed = first.setdefault(record.topic, record)
                sizes[record.topic] += len(record.value or b"")
                if self.refusal(record) or sizes[record.topic] > self.most_bytes:
                    self.on_refusal()
                    raise RecordRefusedError(blamed, reason="too large.")

    def append(self, records: list[Any]) -> list[RecordMetadata]:
        """Refuse those of a topic from the first bad one on, and take all others."""
        taken: dict[int, Any] = {}
        refused: dict[str, RecordRefusedError] = {}
        for place, record in enumerate(map(producer_record, records)):
            error = self.refusal(record)
            if error is not None:
                refused.setdefault(record.topic, error)
            if record.topic not in refused:
                taken[place] = record
        written = self._log.append(list(taken.values()))
        for error in refused.values():
            error.taken = frozenset(taken)
            raise error
        return written


def requesting(writing: Writing, **options: Any) -> Requests:
    log = Requests(writing.log, **options)
    writing.log = cast(Broker, log)
    return log


def test_a_record_that_is_refused_with_a_bad_one_is_not_left_out(continuing: Writing) -> None:
    log = requesting(continuing)

    note = continuing.write(
        outputs(0, b"a", b"b", LARGE, b"c", topic="small"), outputs(1, b"d", LARGE, topic="small")
    )

    assert continuing.values("small") == [b"a", b"b", b"c", b"d"]
    assert note.refused == {"small": 2}
    assert {dead_letter["value"] for dead_letter in dead_letters_of(continuing)} == {LARGE}
    assert log.opened == [{"transactional.id": "app-0", "batch.size": "1"}]


def test_at_least_once_accepted_records_beside_a_refused_one_are_not_written_again(
    at_least_once: Writing,
) -> None:
    log = requesting(at_least_once)

    note = at_least_once.write(
        outputs(0, b"1", b"2"),
        outputs(1, b"a", LARGE, b"b", topic="small"),
        outputs(1, b"3", sequence=2),
    )

    assert at_least_once.values() == [b"1", b"2", b"3"]
    assert at_least_once.values("small") == [b"a", b"b"]
    assert log.probed == [LARGE, b"b"]
    assert note.written == {"out": 3, "small": 2, "letters": 1}
    assert note.refused == {"small": 1}


def test_at_least_once_an_accepted_dead_letter_is_not_written_again(
    at_least_once: Writing,
) -> None:
    requesting(at_least_once)
    at_least_once.log.create_topic("tight")

    note = at_least_once.write(
        outputs(0, b"a", LARGE, topic="small"), outputs(0, b"b", LARGE, topic="tight", sequence=2)
    )

    assert len(dead_letters_of(at_least_once)) == 2
    assert (at_least_once.values("small"), at_least_once.values("tight")) == ([b"a"], [b"b"])
    assert note.written == {"small": 1, "tight": 1, "letters": 2}
    assert note.refused == {"small": 1, "tight": 1}


def test_records_are_tried_one_by_one_in_a_transaction_that_is_aborted(
    continuing: Writing,
) -> None:
    log = requesting(continuing)

    continuing.write(
        outputs(0, b"elsewhere"), outputs(1, b"a", LARGE, b"b", LARGE, LARGE, topic="small")
    )

    assert log.calls == ["begin", "abort"] * 3 + ["close"]
    assert log.probed == [b"a", LARGE, b"b", LARGE, LARGE]


def test_very_many_records_are_tried_in_several_transactions(
    continuing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.runtime.output.refused_records._PROBED_TOGETHER", 2)
    log = requesting(continuing)
    values = [b"a", b"b", b"c", LARGE, b"d", LARGE, b"e"]

    note = continuing.write(outputs(0, *values, topic="small"))

    assert log.probed == values
    assert log.calls == ["begin", "abort"] * 4 + ["close"]
    assert continuing.values("small") == [b"a", b"b", b"c", b"d", b"e"]
    assert note.refused == {"small": 2}


def test_nothing_more_is_tried_when_the_application_is_to_stop(writing: Writing) -> None:
    log = requesting(writing)

    with pytest.raises(ProductionError, match="could not write a record to topic 'small'"):
        writing.write(outputs(0, b"a", LARGE, b"b", LARGE, topic="small"))

    assert log.calls == ["begin", "abort", "close"]
    assert log.probed == [b"a", LARGE]


def test_the_batch_is_written_again_before_the_next_record_is_blamed(tmp_path: Path) -> None:
    writing, handler = handled(tmp_path, HandlerResponse.retry(), HandlerResponse.resume())
    log = requesting(writing)

    note = writing.write(outputs(0, b"a", LARGE, LARGE, b"b", topic="small"))

    assert writing.values("small") == [b"a", b"b"]
    assert note.refused == {"small": 2}
    assert len(handler.asked) == 3
    assert log.calls == ["begin", "abort", "close", *["begin", "abort"] * 3, "close"]


def test_records_that_are_refused_only_together_stop_the_application(continuing: Writing) -> None:
    requesting(continuing, most_bytes=LIMIT)

    with pytest.raises(ProductionError) as caught:
        continuing.write(outputs(0, b"x" * 600, b"y" * 600, topic="small"))

    assert str(caught.value) == (
        "Records for topic 'small', partition 0, were refused together, although each alone is "
        "taken: too large. Set the producer's `batch.size` below the `max.message.bytes` of the "
        "topic."
    )
    assert continuing.values("small") == []


def test_records_that_the_broker_accepts_on_a_retry_are_written(continuing: Writing) -> None:
    log = requesting(continuing, most_bytes=LIMIT)

    def grow() -> None:
        log.most_bytes = 10 * LIMIT

    log.on_open = grow
    values = [b"x" * 600, b"y" * 600]

    note = continuing.write(outputs(0, *values, topic="small"))

    assert continuing.values("small") == values
    assert (note.written, note.refused) == ({"small": 2}, {})


def test_each_partition_that_refuses_what_it_takes_alone_is_written_once_more(
    continuing: Writing,
) -> None:
    log = requesting(continuing, most_bytes=LIMIT)

    with pytest.raises(ProductionError, match="were refused together"):
        continuing.write(outputs(0, b"x" * 600, b"y" * 600, topic="small"))

    assert len(log.opened) == 2


def test_a_replaced_leader_opens_no_producer_to_find_a_refused_record(
    continuing: Writing,
) -> None:
    log = requesting(continuing)
    log.on_refusal = lambda: lead(continuing, 1)

    with pytest.raises(LeadershipLostError):
        continuing.write(outputs(0, b"a", LARGE, topic="small"))

    assert log.opened == []


def test_a_leader_replaced_at_the_start_of_its_search_sends_nothing(continuing: Writing) -> None:
    log = requesting(continuing)
    log.on_open = lambda: lead(continuing, 1)

    with pytest.raises(LeadershipLostError):
        continuing.write(outputs(0, b"a", LARGE, topic="small"))

    assert log.calls == ["close"]
    assert log.probed == []


def test_no_record_is_blamed_while_the_broker_is_unavailable(continuing: Writing) -> None:
    log = requesting(continuing)
    log.unavailable = BrokerUnavailableError("No answer.")

    with pytest.raises(BrokerUnavailableError):
        continuing.write(outputs(0, b"a", LARGE, topic="small"))

    assert log.calls == ["begin", "abort", "close"]
    assert continuing.values("small") == []
