"""The engine's errors about records; the rest is in tests/behaviour/test_handlers.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.engine.error_text import describe_error
from headrace.engine.record_failures import Failures
from headrace.engine.settings import TaskSettings
from headrace.errors import RecordError, UnknownTopicError
from headrace.processors.handlers import HandlerResponse
from headrace.records import NO_HEADERS, ConsumerRecord, ProducerRecord, Record

RAW = ConsumerRecord("orders", 2, 14, 5, b"k", b"v")
DEAD_LETTER = ProducerRecord("dead", None, 5, b"k", b"v")
OUTPUT = ProducerRecord("out", None, 5, None, None)


class Decided:
    """Failures whose handlers all give one answer; notes what was written and counted."""

    def __init__(self, response: HandlerResponse) -> None:
        self.dead_letters: list[ProducerRecord] = []
        self.dropped: list[tuple[str, str]] = []
        self.contexts: list[Any] = []

        def handler(context: Any, _record: Any, _error: Exception) -> HandlerResponse:
            self.contexts.append(context)
            return response

        settings = TaskSettings(
            on_deserialization_error=handler,
            on_processing_error=handler,
            on_production_error=handler,
        )
        self.failures = Failures(
            settings, "1_2", self.dead_letters.append, lambda *what: self.dropped.append(what)
        )


KINDS: list[tuple[str, Callable[[Failures, Exception], None]]] = [
    ("deserialization", lambda f, e: f.deserialization(e, RAW, "step", "value")),
    ("processing", lambda f, e: f.processing(e, RAW, "step", None, Record("k", 1, 5), 5)),
    ("serialization", lambda f, e: f.serialization(e, RAW, "step", "key", OUTPUT)),
]
EACH_KIND = pytest.mark.parametrize(("reason", "fail"), KINDS)


def test_a_handler_gets_the_first_ten_causes_of_an_error() -> None:
    decided = Decided(HandlerResponse.resume())
    error = last = ValueError(0)
    for number in range(1, 100):
        last.__cause__ = ValueError(number)
        last = last.__cause__

    decided.failures.processing(error, RAW, "step", None, None, 5)

    causes = [error]
    while isinstance(causes[-1].__cause__, ValueError):
        causes.append(causes[-1].__cause__)
    assert [cause.args for cause in causes] == [(number,) for number in range(10)]


@EACH_KIND
def test_resuming_writes_the_dead_letters_and_counts(
    reason: str, fail: Callable[[Failures, Exception], None]
) -> None:
    decided = Decided(HandlerResponse.resume([DEAD_LETTER]))

    fail(decided.failures, ValueError("bad"))

    assert decided.dead_letters == [DEAD_LETTER]
    assert decided.dropped == [("step", reason)]


def test_the_dead_letter_of_a_record_without_a_timestamp_has_timestamp_0() -> None:
    dead_letter = DEAD_LETTER._replace(timestamp=-1)
    decided = Decided(HandlerResponse.resume([dead_letter]))
    stopped = Decided(HandlerResponse.fail([dead_letter]))

    decided.failures.deserialization(ValueError("bad"), RAW, "step", "value")
    with pytest.raises(RecordError) as caught:
        stopped.failures.deserialization(ValueError("bad"), RAW, "step", "value")

    assert [each.timestamp for each in decided.dead_letters] == [0]
    assert [each.timestamp for each in caught.value.dead_letters] == [0]


@EACH_KIND
@pytest.mark.parametrize("response", [HandlerResponse.fail([DEAD_LETTER]), HandlerResponse.retry()])
def test_anything_else_stops_with_the_place_of_the_record(
    reason: str, fail: Callable[[Failures, Exception], None], response: HandlerResponse
) -> None:
    decided = Decided(response)
    cause = ValueError("bad")

    with pytest.raises(RecordError) as caught:
        fail(decided.failures, cause)

    error = caught.value
    assert error.__cause__ is cause
    assert (error.node, error.topic, error.partition, error.offset) == ("step", "orders", 2, 14)
    assert "ValueError: bad" in str(error)
    assert decided.dead_letters == list(response.dead_letters)
    assert decided.dropped == []


@EACH_KIND
def test_a_handler_receives_the_location_and_the_bytes(
    reason: str, fail: Callable[[Failures, Exception], None]
) -> None:
    decided = Decided(HandlerResponse.resume())

    fail(decided.failures, ValueError("bad"))

    [context] = decided.contexts
    assert (context.topic, context.partition, context.offset) == ("orders", 2, 14)
    assert (context.node, context.task_id) == ("step", "1_2")
    assert (context.source_raw_key, context.source_raw_value) == (b"k", b"v")


def test_a_note_names_where_the_step_was_made() -> None:
    decided = Decided(HandlerResponse.fail())

    with pytest.raises(RecordError) as caught:
        decided.failures.processing(ValueError(), None, "step", "app.py:31", None, 9)

    assert str(caught.value).startswith("Step 'step' failed at the punctuation of 9: ValueError.")
    assert caught.value.__notes__ == ["The step was made at app.py:31."]


def test_in_a_punctuation_there_is_no_place() -> None:
    decided = Decided(HandlerResponse.resume())

    decided.failures.processing(ValueError(), None, "step", None, None, 9)

    [context] = decided.contexts
    assert (context.topic, context.partition, context.offset) == (None, -1, -1)
    assert (context.headers, context.timestamp) == (NO_HEADERS, 9)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad"), "ValueError: bad"),
        (ValueError("bad."), "ValueError: bad"),
        (KeyError(), "KeyError"),
    ],
)
def test_an_error_as_part_of_a_sentence(error: Exception, text: str) -> None:
    assert describe_error(error) == text


def test_a_message_that_quotes_data_has_its_control_characters_escaped() -> None:
    assert describe_error(ValueError("bad \x1b[2J")) == "ValueError: bad \\u001b[2J"


def test_a_message_that_quotes_data_stays_in_its_line() -> None:
    forged = "bad\n2026-11-18 12:00:00 INFO All is well"

    assert describe_error(ValueError(forged)) == (
        "ValueError: bad\\n2026-11-18 12:00:00 INFO All is well"
    )


@EACH_KIND
def test_the_first_failure_of_a_step_and_reason_is_kept(
    reason: str, fail: Callable[[Failures, Exception], None]
) -> None:
    decided = Decided(HandlerResponse.resume())
    with pytest.raises(ValueError, match="bad") as caught:
        raise ValueError("bad")

    for error in (caught.value, KeyError("later")):
        fail(decided.failures, error)

    (first,) = decided.failures.first.values()
    assert (first.node, first.reason) == ("step", reason)
    assert first.text == (
        "Step 'step' skipped the record at offset 14 of topic 'orders', partition 2 "
        f"({reason}): ValueError: bad"
    )
    assert first.line is not None
    assert first.line.startswith("test_record_failures.py:")


def test_an_error_outside_the_code_of_users_has_no_line() -> None:
    decided = Decided(HandlerResponse.resume())

    decided.failures.deserialization(ValueError("bad"), RAW, "step", "value")

    assert decided.failures.first["step", "deserialization"].line is None


def test_a_topic_that_does_not_exist_is_a_first_failure_too() -> None:
    decided = Decided(HandlerResponse.resume())
    record = ProducerRecord("gone", None, 1, b"k", b"v")

    decided.failures.production(UnknownTopicError("gone"), RAW, "step", record)

    assert "offset 14 of topic 'orders'" in decided.failures.first["step", "production"].text
