"""Ask the application's handlers about records that fail, and describe the failures."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple

from headrace.engine.error_text import describe_error
from headrace.engine.errors_of_no_record import raise_unless_of_record
from headrace.engine.settings import TaskSettings
from headrace.errors import (
    DeserializationError,
    ProcessingError,
    ProductionError,
    RecordError,
    SerializationError,
    UnknownTopicError,
)
from headrace.processors.handlers import ErrorHandlerContext, ExceptionHandler, HandlerResponse
from headrace.records import (
    NO_HEADERS,
    ConsumerRecord,
    Headers,
    ProducerRecord,
    Record,
)
from headrace.serdes.base import WrongTypeError

Origin = Literal["key", "value"]

_LONGEST_KEY = 100
_LONGEST_TRACEBACK = 100
_SHOWN_CALLS = 20
"""How many calls at each end of a longer traceback are shown."""
_LONGEST_CHAIN = 10
_PACKAGE = str(Path(__file__).parents[1])
_PROGRAMS = str(Path(_PACKAGE) / "examples")
_LIBRARIES = (_PACKAGE, sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"])


class FirstFailure(NamedTuple):
    """The first record that a step skipped for a reason."""

    node: str
    reason: str
    text: str
    """The record and the error, in one sentence without its full stop."""
    line: str | None
    """The line of the user's code that raised."""


class Failures:
    """Asks the handlers of a task about records that fail: one method per kind of failure.

    If the handler skips the record, the method counts it and returns. If the application must stop,
    the method raises. It writes the dead letters in both cases.
    """

    def __init__(
        self,
        settings: TaskSettings,
        task_id: str,
        write: Callable[[ProducerRecord], None],
        drop: Callable[[str, str], None],
    ) -> None:
        self._settings = settings
        self._task_id = task_id
        self._write = write
        self._drop = drop
        self._dead_letters: tuple[ProducerRecord, ...] = ()
        self.first: dict[tuple[str, str], FirstFailure] = {}
        """The first failure that a handler skipped, by step and reason."""

    def deserialization(
        self,
        error: Exception,
        raw: ConsumerRecord,
        node: str,
        part: Origin | Literal["headers", "size"],
    ) -> None:
        """Decide about a record that is too large, or has parts that cannot be read."""
        raise_unless_of_record(error, f"read the {part} of {_record_text(raw)} at source {node!r}")
        origin: Origin | None = None
        what = f"the {part} of the record"
        if part == "headers":
            remedy = "Let its producer name headers in UTF-8"
        elif part == "size":
            what, remedy = "the record", "Raise `max_record_bytes`"
        else:
            origin, remedy = part, f"Correct the `{part}=` of the source"
        context = self._context(raw, node, raw.timestamp, raw.headers, origin)
        if self._stops(self._settings.on_deserialization_error, context, raw, error):
            msg = (
                f"Source {node!r} could not read {what} at {_location(raw)}: "
                f"{describe_error(error)}. {remedy}, or set "
                '`deserialization_exception_handler="continue"` to leave such records out.'
            )
            raise DeserializationError(msg, **self._where(node, raw)) from error
        self._skip(node, "deserialization", raw, error)

    def processing(
        self,
        error: Exception,
        raw: ConsumerRecord | None,
        node: str,
        origin: str | None,
        record: Record[Any, Any] | None,
        timestamp: int,
    ) -> None:
        """Decide about a record, or a punctuation, that user code could not handle."""
        raise_unless_of_record(error, f"process {_record_text(raw)} at step {node!r}")
        headers = NO_HEADERS if record is None else record.headers
        context = self._context(raw, node, timestamp, headers, None)
        if self._stops(self._settings.on_processing_error, context, record, error):
            if raw is None:
                what = f"at the punctuation of {timestamp}"
            else:
                what = f"on the record at {_location(raw)}"
            msg = (
                f"Step {node!r} failed {what}: {describe_error(error)}. Correct the function, or "
                'set `processing_exception_handler="continue"` to leave such records out.'
            )
            failure = ProcessingError(msg, **self._where(node, raw))
            if origin is not None:
                failure.add_note(f"The step was made at {origin}.")
            raise failure from error
        self._skip(node, "processing", raw, error)

    def serialization(
        self,
        error: Exception,
        raw: ConsumerRecord | None,
        node: str,
        origin: Origin,
        record: ProducerRecord,
    ) -> None:
        """Decide about an output record whose key or value does not fit the serde of its sink."""
        task = f"write the {origin} of what sink {node!r} got for {_record_text(raw)}"
        raise_unless_of_record(error, task)
        context = self._context(raw, node, record.timestamp, record.headers, origin)
        # As in Kafka, no handler is asked about a value of the wrong type: the program is wrong,
        # and every record would fail.
        wrong_type = isinstance(error, WrongTypeError)
        if wrong_type or self._stops(self._settings.on_production_error, context, record, error):
            msg = (
                f"Sink {node!r} could not write the {origin} of a record to topic "
                f"{record.topic!r}: {describe_error(error)}. "
                f"Give the step that made it the right `{origin}=`."
            )
            raise SerializationError(msg, **self._where(node, raw)) from error
        self._skip(node, "serialization", raw, error)

    def _skip(self, node: str, reason: str, raw: ConsumerRecord | None, error: Exception) -> None:
        """Count a failure, and keep the first of its step and reason."""
        self._drop(node, reason)
        if (node, reason) not in self.first:
            text = f"Step {node!r} skipped {_record_text(raw)} ({reason}): {describe_error(error)}"
            self.first[node, reason] = FirstFailure(node, reason, text, _line_of(error))

    def production(
        self,
        error: UnknownTopicError,
        raw: ConsumerRecord | None,
        node: str,
        record: ProducerRecord,
    ) -> None:
        """Decide about an output record for a topic that does not exist."""
        context = self._context(raw, node, record.timestamp, record.headers, None)
        if self._stops(self._settings.on_production_error, context, record, error):
            msg = (
                f"Sink {node!r} could not write a record: {error} Or set "
                '`production_exception_handler="continue"` to leave such records out.'
            )
            raise ProductionError(msg, **self._where(node, raw)) from error
        self._skip(node, "production", raw, error)

    def _context(
        self,
        raw: ConsumerRecord | None,
        node: str,
        timestamp: int,
        headers: Headers,
        origin: Origin | None,
    ) -> ErrorHandlerContext:
        if raw is None:
            return ErrorHandlerContext(
                None, -1, -1, headers, timestamp, node, self._task_id, origin=origin
            )
        return ErrorHandlerContext(
            raw.topic,
            raw.partition,
            raw.offset,
            raw.headers,
            timestamp,
            node,
            self._task_id,
            raw.key,
            raw.value,
            origin,
        )

    def _where(self, node: str, raw: ConsumerRecord | None) -> dict[str, Any]:
        facts: dict[str, Any] = {"node": node, "dead_letters": self._dead_letters}
        if raw is not None:
            facts |= {"topic": raw.topic, "partition": raw.partition, "offset": raw.offset}
        return facts

    def _stops(
        self,
        handler: ExceptionHandler,
        context: ErrorHandlerContext,
        record: object,
        error: Exception,
    ) -> bool:
        """Ask the handler, write its dead letters, and return whether to stop."""
        _shorten_tracebacks(error)
        try:
            response = handler(context, record, error)
        except Exception as own:
            reason = describe_error(own)
            msg = f"The exception handler itself failed at step {context.node!r}: {reason}."
            raise RecordError(msg, **_location_of(context)) from own
        if not isinstance(response, HandlerResponse):
            msg = (
                f"The exception handler answered {response!r} at step {context.node!r}. "
                "Return `HandlerResponse.resume()` or `HandlerResponse.fail()`."
            )
            raise RecordError(msg, **_location_of(context)) from error
        for dead_letter in response.dead_letters:
            self._write(dead_letter)
        stops = response.result != "resume"
        self._dead_letters = response.dead_letters if stops else ()
        return stops


def _location(raw: ConsumerRecord) -> str:
    location = _position(raw)
    return location if raw.key is None else f"{location}, key {_quoted_key(raw.key)}"


def _record_text(raw: ConsumerRecord | None) -> str:
    return "a punctuation" if raw is None else f"the record at {_position(raw)}"


def _position(raw: ConsumerRecord) -> str:
    return f"offset {raw.offset} of topic {raw.topic!r}, partition {raw.partition}"


def _line_of(error: Exception) -> str | None:
    """Return the last line of the user's code in a traceback."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = frame.filename
        if file.startswith(_PROGRAMS) or not file.startswith(_LIBRARIES):
            return f"{Path(frame.filename).name}:{frame.lineno}"
    return None


def _quoted_key(key: bytes) -> str:
    """Return a key as text if it is text, shortened to 100 characters."""
    try:
        text = repr(key.decode())
    except UnicodeDecodeError:
        text = repr(key)
    return text if len(text) <= _LONGEST_KEY else f"{text[:_LONGEST_KEY]}…"


def _shorten_tracebacks(error: BaseException) -> None:
    """Leave the middle out of long tracebacks of an error and of its causes.

    Python formats 1,000 calls of a recursion in 50 ms, and a handler may do so for every record.
    """
    cause: BaseException | None = error
    for _ in range(_LONGEST_CHAIN):
        if cause is None:
            return
        calls: list[TracebackType] = []
        call = cause.__traceback__
        while call is not None:
            calls.append(call)
            call = call.tb_next
        if len(calls) > _LONGEST_TRACEBACK:
            shown: TracebackType | None = calls[-_SHOWN_CALLS]
            for call in reversed(calls[:_SHOWN_CALLS]):
                shown = TracebackType(shown, call.tb_frame, call.tb_lasti, call.tb_lineno)
            cause.__traceback__ = shown
            omitted = len(calls) - 2 * _SHOWN_CALLS
            cause.add_note(f"{omitted} calls in the middle of this traceback are left out.")
        previous, cause = cause, cause.__cause__ or cause.__context__
    previous.__cause__ = previous.__context__ = None


def _location_of(context: ErrorHandlerContext) -> dict[str, Any]:
    return {
        "node": context.node,
        "topic": context.topic,
        "partition": context.partition,
        "offset": context.offset,
    }
