"""Errors on their way from a worker through Spark to the driver."""

from __future__ import annotations

import base64
import re
import sys
import traceback
from pathlib import Path

import pytest

from headrace import (
    DeserializationError,
    ProcessingError,
    RecordError,
    StreamsConfig,
    StreamsError,
)
from headrace import errors as errors_module
from headrace.brokers import open_log
from headrace.errors import BrokerError, OffsetOutOfRangeError, UnknownTopicError
from headrace.spark.worker_errors import WorkerFailure, error_from, errors_to_driver, reason_of

SPARK_SAYS = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage \
failure: Task 0 in stage 3.0 failed 4 times: org.apache.spark.api.python.PythonException: \
Traceback (most recent call last):
  File "/opt/spark/python/worker.py", line 1, in main
headrace.spark.worker_errors.WorkerFailure: {text}

	at org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)
	at java.base/java.lang.Thread.run(Thread.java:1)
Driver stacktrace: SQLSTATE: XXKST
"""


def divide(value: int) -> float:
    return 1 / value


def brought(error: StreamsError) -> StreamsError:
    """Return an error as the driver sees it after Spark has wrapped it."""
    with pytest.raises(WorkerFailure) as caught, errors_to_driver():
        raise error
    found = error_from(SPARK_SAYS.format(text=caught.value))
    assert found is not None
    return found


def failed_step() -> ProcessingError:
    try:
        divide(0)
    except ZeroDivisionError as error:
        failure = ProcessingError("Step 'x' failed.", node="x", topic="in", partition=1, offset=7)
        failure.__cause__ = error
        return failure
    raise AssertionError


def test_an_error_arrives_as_what_it_was() -> None:
    error = brought(failed_step())

    assert type(error) is ProcessingError
    assert (error.node, error.topic, error.partition, error.offset) == ("x", "in", 1, 7)


def test_the_text_shows_the_user_s_file_and_line_and_nothing_of_java() -> None:
    error = brought(failed_step())

    lines = str(error).splitlines()
    line = divide.__code__.co_firstlineno + 1
    assert lines[0] == "Step 'x' failed."
    assert f'File "{__file__}", line {line}, in divide' in str(error)
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert not re.search("org.apache|java|PythonRunner|SQLSTATE", str(error))


class OwnError(ValueError):
    """An exception of the user's, with a constructor of its own."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def failed_with(cause: Exception) -> ProcessingError:
    def fail() -> None:
        raise cause

    try:
        fail()
    except Exception as error:
        failure = ProcessingError("Step 'x' failed.", node="x")
        failure.__cause__ = error
    return failure


@pytest.mark.parametrize("cause", [KeyError("x"), OwnError(1, 2), UnicodeError(), ValueError("ü")])
def test_the_user_s_exception_is_the_cause(cause: Exception) -> None:
    arrived = brought(failed_with(cause)).__cause__

    assert isinstance(arrived, type(cause))
    assert type(arrived).__name__ == type(cause).__name__
    assert str(arrived) == str(cause)
    *_, last = traceback.extract_tb(arrived.__traceback__)
    assert (last.filename, last.name) == (__file__, "fail")
    assert last.lineno == failed_with.__code__.co_firstlineno + 2
    assert last.line == "raise cause"


def test_a_class_that_the_driver_does_not_know_keeps_its_name() -> None:
    class_ = type("FarError", (Exception,), {"__module__": "of_a_worker_alone"})

    arrived = brought(failed_with(class_("far"))).__cause__

    assert type(arrived).__name__ == "FarError"
    assert type(arrived).__module__ == "of_a_worker_alone"
    assert str(arrived) == "far"
    assert "of_a_worker_alone" not in sys.modules


class DemandingError(Exception):
    """An exception that cannot be made without arguments."""

    def __new__(cls, first: int) -> DemandingError:
        return super().__new__(cls, first)


class CodedError(Exception):
    """An exception whose subclasses need a code."""

    code = 0

    def __init_subclass__(cls, *, code: int) -> None:
        cls.code = code


@pytest.mark.parametrize(
    "cause", [ExceptionGroup("two", [KeyError("x")]), DemandingError(1), CodedError("x")]
)
def test_a_class_that_cannot_be_made_keeps_its_name_and_text(cause: Exception) -> None:
    arrived = brought(failed_with(cause)).__cause__

    assert type(arrived).__name__ == type(cause).__name__
    assert str(arrived) == str(cause)


class SilentError(Exception):
    """An exception that cannot be printed."""

    def __str__(self) -> str:
        raise RuntimeError


def test_an_exception_that_cannot_be_printed_arrives_too() -> None:
    error = brought(failed_with(SilentError()))

    assert str(error).endswith("SilentError: <exception str() failed>")
    assert isinstance(error.__cause__, SilentError)
    assert str(error.__cause__) == "<exception str() failed>"


def test_an_error_of_ours_alone_has_no_cause() -> None:
    assert brought(DeserializationError("The bytes do not fit.")).__cause__ is None


def test_a_note_of_an_error_arrives_too() -> None:
    failure = failed_step()
    failure.add_note("The step was made at app.py:31.")

    assert brought(failure).__notes__ == ["The step was made at app.py:31."]


def test_an_error_without_user_code_is_its_message_alone(tmp_path: Path) -> None:
    (tmp_path / "topics.db").write_text("no database")
    config = StreamsConfig(application_id="app", state_dir=tmp_path)
    with pytest.raises(BrokerError) as caught:
        open_log(config).list_topics()
    error = caught.value
    assert error.__traceback__ is not None
    inside = error.with_traceback(error.__traceback__.tb_next)

    found = error_from(str(WorkerFailure(inside)))

    assert type(found) is type(error)
    assert str(found) == str(error)


def test_a_record_error_has_its_location() -> None:
    error = brought(DeserializationError("The bytes do not fit.", topic="in", offset=3))

    assert isinstance(error, RecordError)
    assert (error.node, error.topic, error.partition, error.offset) == (None, "in", -1, 3)


def test_an_error_whose_constructor_writes_the_message_keeps_it() -> None:
    original = OffsetOutOfRangeError("in", 0, offset=3, beginning=5)

    error = brought(original)

    assert type(error) is OffsetOutOfRangeError
    assert str(error).startswith(str(original))


def test_a_message_may_hold_anything() -> None:
    message = "Topic ']] [[headrace-error:' 'ü' \"\n{}"

    assert str(brought(StreamsError(message))).startswith(message)


def test_a_message_that_utf8_cannot_encode_arrives_too() -> None:
    error = brought(DeserializationError("The key '\udcff' does not fit.", topic="in", offset=3))

    assert type(error) is DeserializationError
    assert str(error).startswith(r"The key '\udcff' does not fit.")


def test_a_record_cannot_pose_as_an_error() -> None:
    posing = WorkerFailure(BrokerError("All is lost."))

    error = brought(DeserializationError(f"The key {str(posing)!r} does not fit.", topic="in"))

    assert type(error) is DeserializationError


def test_an_error_of_an_unknown_class_keeps_its_name() -> None:
    class NewerError(StreamsError):
        pass

    error = brought(NewerError("Something new."))

    assert type(error) is StreamsError
    assert str(error).startswith("NewerError: Something new.")


def test_a_name_that_is_no_error_of_ours_is_not_made() -> None:
    shipped = base64.b64encode(b'{"kind": "Iterable", "message": "What?"}').decode()

    error = error_from(f"[[headrace-error:{shipped}]]")

    assert hasattr(errors_module, "Iterable")
    assert type(error) is StreamsError
    assert str(error) == "Iterable: What?"


@pytest.mark.parametrize(
    "text",
    [
        "java.lang.OutOfMemoryError: Java heap space",
        "",
        "]] [[headrace-error:",
        "[[headrace-error:!!!]]",
        "[[headrace-error:bm90IGpzb24=]]",
    ],
)
def test_a_text_without_an_error_of_ours_holds_none(text: str) -> None:
    assert error_from(text) is None


def test_other_errors_pass_untouched() -> None:
    with pytest.raises(KeyError), errors_to_driver():
        raise KeyError("mine")


def test_the_last_of_several_errors_from_spark_counts() -> None:
    first, second = WorkerFailure(UnknownTopicError("a")), WorkerFailure(UnknownTopicError("b"))

    error = error_from(f"{first}\nCaused by: {second}")

    assert str(error).startswith("There is no topic 'b'.")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "org.apache.spark.SparkException: \nTraceback\nImportError: no name",
            "ImportError: no name",
        ),
        (
            "org.apache.spark.SparkException: it broke.\nValueError: x",
            "org.apache.spark.SparkException: it broke",
        ),
        ("org.apache.spark.SparkException: \nat Some.scala", "org.apache.spark.SparkException"),
        ("no exception at all.", "no exception at all"),
    ],
)
def test_the_first_line_with_a_cause_is_the_reason(text: str, reason: str) -> None:
    assert reason_of(RuntimeError(text)) == reason


def test_what_the_user_s_code_raised_has_no_control_characters() -> None:
    failure = ProcessingError("Step 'x' failed.")
    with pytest.raises(ValueError, match="bad") as caught:
        raise ValueError("bad \x1b[2J")
    failure.__cause__ = caught.value

    assert str(brought(failure)).endswith("ValueError: bad \\u001b[2J")
