"""Ask the application's handlers about records that fail, and say what happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from headrace.engine.settings import TaskSettings
from headrace.errors import (
    DeserializationError,
    ProcessingError,
    RecordError,
    SchemaRegistryUnavailableError,
    SerializationError,
)
from headrace.processors.handlers import ErrorHandlerContext, ExceptionHandler, HandlerResponse
from headrace.records import (
    NO_HEADERS,
    ConsumerRecord,
    Headers,
    ProducerRecord,
    Record,
)

Origin = Literal["key", "value"]

_LONGEST_KEY = 100


class Failures:
    """What a task does about records that fail: one method per kind of failure.

    Each returns if the record is to be left out, after counting it, and raises if the application
    is to stop. Dead letters are written either way.
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

    def deserialization(
        self, error: Exception, raw: ConsumerRecord, node: str, part: Origin | Literal["headers"]
    ) -> None:
        """Decide about a record whose bytes do not fit the serde of its source, or no text."""
        origin: Origin | None
        if part == "headers":
            origin, remedy = None, "Let its producer name headers in UTF-8"
        else:
            origin, remedy = part, f"Correct the `{part}=` of the source"
        context = self._context(raw, node, raw.timestamp, raw.headers, origin)
        if self._stops(self._settings.on_deserialization_error, context, raw, error):
            msg = (
                f"Source {node!r} could not read the {part} of the record at {_place(raw)}: "
                f"{describe_error(error)}. {remedy}, or set "
                '`deserialization_exception_handler="continue"` to leave such records out.'
            )
            raise DeserializationError(msg, **_where(node, raw)) from error
        self._drop(node, "deserialization")

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
        headers = NO_HEADERS if record is None else record.headers
        context = self._context(raw, node, timestamp, headers, None)
        if self._stops(self._settings.on_processing_error, context, record, error):
            if raw is None:
                what = f"at the punctuation of {timestamp}"
            else:
                what = f"on the record at {_place(raw)}"
            msg = (
                f"Step {node!r} failed {what}: {describe_error(error)}. Correct the function, or "
                'set `processing_exception_handler="continue"` to leave such records out.'
            )
            failure = ProcessingError(msg, **_where(node, raw))
            if origin is not None:
                failure.add_note(f"The step was made at {origin}.")
            raise failure from error
        self._drop(node, "processing")

    def serialization(
        self,
        error: Exception,
        raw: ConsumerRecord | None,
        node: str,
        origin: Origin,
        record: ProducerRecord,
    ) -> None:
        """Decide about an output record whose key or value does not fit the serde of its sink."""
        context = self._context(raw, node, record.timestamp, record.headers, origin)
        # Kafka lets a value of the wrong type stop the application whatever the handler says: no
        # other record would fare better.
        wrong_type = isinstance(error, TypeError)
        if wrong_type or self._stops(self._settings.on_production_error, context, record, error):
            msg = (
                f"Sink {node!r} could not write the {origin} of a record to topic "
                f"{record.topic!r}: {describe_error(error)}. "
                f"Give the step that made it the right `{origin}=`."
            )
            raise SerializationError(msg, **_where(node, raw)) from error
        self._drop(node, "serialization")

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

    def _stops(
        self,
        handler: ExceptionHandler,
        context: ErrorHandlerContext,
        record: object,
        error: Exception,
    ) -> bool:
        """Ask the handler, write its dead letters, and return whether to stop."""
        if isinstance(error, SchemaRegistryUnavailableError | MemoryError):
            raise error  # no record is at fault, so none is dropped
        try:
            response = handler(context, record, error)
        except Exception as own:
            reason = describe_error(own)
            msg = f"The exception handler itself failed at step {context.node!r}: {reason}."
            raise RecordError(msg, **_place_of(context)) from own
        if not isinstance(response, HandlerResponse):
            msg = (
                f"The exception handler answered {response!r} at step {context.node!r}. "
                "Return `HandlerResponse.resume()` or `HandlerResponse.fail()`."
            )
            raise RecordError(msg, **_place_of(context)) from error
        for letter in response.dead_letters:
            self._write(letter)
        return response.result != "resume"


def _place(raw: ConsumerRecord) -> str:
    place = f"offset {raw.offset} of topic {raw.topic!r}, partition {raw.partition}"
    return place if raw.key is None else f"{place}, key {_shown(raw.key)}"


def _shown(key: bytes) -> str:
    """Return a key as text if it is text, and not more of it than helps to find the record."""
    try:
        text = repr(key.decode())
    except UnicodeDecodeError:
        text = repr(key)
    return text if len(text) <= _LONGEST_KEY else f"{text[:_LONGEST_KEY]}…"


def describe_error(error: Exception) -> str:
    """Return an error as part of a sentence: its class and its message."""
    text = str(error)
    name = type(error).__name__
    return f"{name}: {text.rstrip('.')}" if text else name


def _where(node: str, raw: ConsumerRecord | None) -> dict[str, Any]:
    if raw is None:
        return {"node": node}
    return {"node": node, "topic": raw.topic, "partition": raw.partition, "offset": raw.offset}


def _place_of(context: ErrorHandlerContext) -> dict[str, Any]:
    return {
        "node": context.node,
        "topic": context.topic,
        "partition": context.partition,
        "offset": context.offset,
    }
