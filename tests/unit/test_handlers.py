from __future__ import annotations

import logging
import pickle
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from headrace.processors.handlers import (
    ErrorHandlerContext,
    HandlerKind,
    HandlerResponse,
    built_in_handler,
    dead_letter,
    handler_from,
    handler_named,
)
from headrace.records import Headers, ProducerRecord

CONTEXT = ErrorHandlerContext(
    topic="in",
    partition=0,
    offset=1,
    headers=Headers([("h", b"2")]),
    timestamp=1,
    node="KSTREAM-MAPVALUES-0000000001",
    task_id="0_0",
    source_raw_key=bytes.fromhex("61"),
    source_raw_value=bytes.fromhex("0000000000000003"),
)
DEAD_LETTER = ProducerRecord("dlq", None, 1, b"a", b"3")


class UserError(Exception):
    pass


def _raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def test_a_response_has_an_action_and_dead_letters() -> None:
    assert HandlerResponse.resume() == HandlerResponse("resume", ())
    assert HandlerResponse.fail([DEAD_LETTER]) == HandlerResponse("fail", (DEAD_LETTER,))
    assert HandlerResponse.resume(iter([DEAD_LETTER])).dead_letters == (DEAD_LETTER,)
    assert HandlerResponse.retry() == HandlerResponse("retry")


def test_context_and_response_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        CONTEXT.topic = "other"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        HandlerResponse.retry().result = "fail"  # type: ignore[misc]


# Recorded from Kafka Streams 4.3.1 (errors/processing-dead-letter); it leaves the stack trace out.
RECORDED = [
    ["h", "2"],
    ["__streams.errors.exception", "oracle.Functions$UserError"],
    ["__streams.errors.message", "fail_if 3"],
    ["__streams.errors.topic", "in"],
    ["__streams.errors.partition", "0"],
    ["__streams.errors.offset", "1"],
]


def test_a_dead_letter_is_the_source_record_with_headers_about_the_error() -> None:
    written = dead_letter("dlq", CONTEXT, _raised(UserError("fail_if 3")))

    assert written[:5] == ("dlq", None, 1, b"a", bytes.fromhex("0000000000000003"))
    headers = [[name, (value or b"").decode()] for name, value in written.headers]
    stack = headers.pop(3)
    assert stack[0] == "__streams.errors.stacktrace"
    assert stack[1].startswith("Traceback (most recent call last):")
    assert stack[1].endswith("test_handlers.UserError: fail_if 3\n")
    java = {"__streams.errors.exception"}
    assert [pair for pair in headers if pair[0] not in java] == [
        pair for pair in RECORDED if pair[0] not in java
    ]
    assert [name for name, _ in headers] == [name for name, _ in RECORDED]
    assert headers[1][1].endswith("test_handlers.UserError")


def test_a_built_in_exception_is_named_without_its_module() -> None:
    written = dead_letter("dlq", CONTEXT, ValueError("no"))

    assert written.headers.last("__streams.errors.exception") == b"ValueError"
    assert written.headers.last("__streams.errors.stacktrace") == b"ValueError: no\n"


def test_a_punctuation_has_no_source_record_to_send() -> None:
    context = ErrorHandlerContext(None, -1, -1, Headers(), 5, "PROCESSOR", "0_0")

    written = dead_letter("dlq", context, ValueError())

    assert (written.key, written.value, written.timestamp) == (None, None, 5)
    assert written.headers.last("__streams.errors.topic") is None
    assert written.headers.last("__streams.errors.partition") == b"-1"
    assert written.headers.last("__streams.errors.offset") == b"-1"
    assert written.headers.last("__streams.errors.message") == b""


def test_a_message_that_is_no_utf_8_can_be_written() -> None:
    written = dead_letter("dlq", CONTEXT, ValueError("bad \ud800"))

    assert written.headers.last("__streams.errors.message") == b"bad \\ud800"


@pytest.mark.parametrize(
    ("kind", "result", "level"),
    [("fail", "fail", logging.ERROR), ("continue", "resume", logging.WARNING)],
)
def test_a_built_in_handler_logs_where_it_happened_and_decides(
    kind: HandlerKind, result: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    error = _raised(ValueError("no"))

    with caplog.at_level(logging.DEBUG):
        response = built_in_handler(kind)(CONTEXT, object(), error)

    assert (response.result, response.dead_letters) == (result, ())
    (logged,) = caplog.records
    assert logged.levelno == level
    first, *traceback = logged.getMessage().splitlines()
    assert first == (
        "Step KSTREAM-MAPVALUES-0000000001 of task 0_0 failed on offset 1 of topic in, partition 0."
    )
    assert traceback[0] == "  Traceback (most recent call last):"
    assert traceback[-1] == "  ValueError: no"


@pytest.mark.parametrize("kind", ["fail", "continue"])
def test_a_built_in_handler_writes_the_dead_letter_if_there_is_a_topic(kind: HandlerKind) -> None:
    error = _raised(UserError("fail_if 3"))

    response = built_in_handler(kind, "dlq")(CONTEXT, object(), error)

    assert response.dead_letters == (dead_letter("dlq", CONTEXT, error),)


def test_a_built_in_handler_is_a_value_that_can_be_shipped() -> None:
    handler = built_in_handler("continue", "dlq")

    assert pickle.loads(pickle.dumps(handler)) == handler


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("fail", "fail"),
        ("continue", "continue"),
        ("LogAndFailExceptionHandler", "fail"),
        ("LogAndContinueExceptionHandler", "continue"),
        ("org.apache.kafka.streams.errors.LogAndContinueExceptionHandler", "continue"),
        ("org.apache.kafka.streams.errors.LogAndFailProcessingExceptionHandler", "fail"),
        ("LogAndContinueProcessingExceptionHandler", "continue"),
        ("org.apache.kafka.streams.errors.DefaultProductionExceptionHandler", "fail"),
    ],
)
def test_a_handler_may_be_named_as_kafka_does(value: str, kind: str) -> None:
    assert handler_named(value) == kind


def test_a_function_is_its_own_handler() -> None:
    def handle(context: ErrorHandlerContext, record: Any, error: Exception) -> HandlerResponse:
        return HandlerResponse.resume([DEAD_LETTER])

    assert handler_named(handle) is handle
    assert handler_from(handle, "dlq") is handle


@pytest.mark.parametrize("value", ["skip", "x.fail", "", 5, None])
def test_a_wrong_handler_is_refused_with_the_choices(value: object) -> None:
    with pytest.raises(ValueError, match=r'is not an exception handler\. Use "fail", "continue"'):
        handler_named(value)


def test_the_handler_of_a_setting_writes_to_the_topic_of_the_other_setting() -> None:
    assert handler_from("fail", "dlq") == built_in_handler("fail", "dlq")
    assert handler_from("continue") == built_in_handler("continue")


def test_a_context_names_the_part_that_a_serde_refused() -> None:
    assert CONTEXT.origin is None
    assert replace(CONTEXT, origin="key").origin == "key"


def test_a_built_in_handler_logs_no_control_characters(caplog: pytest.LogCaptureFixture) -> None:
    built_in_handler("continue")(CONTEXT, None, _raised(ValueError("bad \x1b[2J")))

    assert "ValueError: bad \\u001b[2J" in caplog.text
    assert "\x1b" not in caplog.text


def test_a_built_in_handler_logs_no_line_that_a_record_forges(
    caplog: pytest.LogCaptureFixture,
) -> None:
    built_in_handler("continue")(CONTEXT, None, _raised(ValueError("bad\n12:00 INFO All is well")))

    assert "\n  12:00 INFO All is well" in caplog.text


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"key": "a"}, "The key of a dead letter is bytes or None, and not str"),
        ({"value": 3}, "The value of a dead letter is bytes or None, and not int"),
        ({"headers": [("h", "x")]}, "The value of header 'h' is bytes or None"),
        ({"timestamp": 2**63}, "The timestamp 9223372036854775808 of a dead letter"),
    ],
)
def test_a_response_refuses_dead_letters_that_no_log_takes(
    changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(TypeError, match=problem):
        HandlerResponse.resume([DEAD_LETTER._replace(**changes)])


def test_a_response_refuses_dead_letters_that_are_no_records() -> None:
    dead_letters: Any = "text"

    with pytest.raises(TypeError, match="A dead letter is a `ProducerRecord`, and not 't'"):
        HandlerResponse.fail(dead_letters)


def test_the_log_names_no_record_where_none_is_known(caplog: pytest.LogCaptureFixture) -> None:
    built_in_handler("continue")(replace(CONTEXT, topic=None, offset=-1), None, UserError("x"))

    assert "Step KSTREAM-MAPVALUES-0000000001 of task 0_0 failed.\n" in caplog.text
