"""Handlers of records that fail, their responses, and dead letters."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from textwrap import indent
from typing import Any, Literal, TypeAlias, cast

from headrace.control_characters import escape_controls
from headrace.errors import message_of
from headrace.records import MAX_TIMESTAMP, Headers, ProducerRecord, headers_of

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ErrorHandlerContext:
    """The step and the record on which something failed."""

    topic: str | None
    """The topic the source record was read from; None in a punctuation."""
    partition: int
    """Its partition, or -1."""
    offset: int
    """Its offset, or -1."""
    headers: Headers
    """The headers of the source record."""
    timestamp: int
    """The timestamp of the source record, or of the punctuation."""
    node: str
    """The step that failed."""
    task_id: str
    """The task it ran in: ``<subtopology>_<partition>``."""
    source_raw_key: bytes | None = None
    """The key of the source record as it was read; None in a punctuation."""
    source_raw_value: bytes | None = None
    """The value of the source record as it was read; None in a punctuation."""
    origin: Literal["key", "value"] | None = None
    """The part that a serde could not read or write; None for every other failure."""


@dataclass(frozen=True, slots=True)
class HandlerResponse:
    """The decision of a handler. Made by `resume`, `fail` or `retry`."""

    result: Literal["resume", "fail", "retry"]
    dead_letters: tuple[ProducerRecord, ...] = ()
    """Records to write along with the output; `dead_letter` makes them.

    One without a timestamp (-1), as that of its source record, gets 0: a broker would refuse it.
    """

    def __post_init__(self) -> None:
        checked = tuple(map(_checked_dead_letter, self.dead_letters))
        object.__setattr__(self, "dead_letters", checked)

    @classmethod
    def resume(cls, dead_letters: Iterable[ProducerRecord] = ()) -> HandlerResponse:
        """Drop the record and continue with the next."""
        return cls("resume", tuple(dead_letters))

    @classmethod
    def fail(cls, dead_letters: Iterable[ProducerRecord] = ()) -> HandlerResponse:
        """Stop the application."""
        return cls("fail", tuple(dead_letters))

    @classmethod
    def retry(cls) -> HandlerResponse:
        """Try to write the record again; for the production handler alone."""
        return cls("retry")


def _checked_dead_letter(record: object) -> ProducerRecord:
    """Return a dead letter as a log takes it."""
    if not isinstance(record, ProducerRecord):
        msg = f"A dead letter is a `ProducerRecord`, and not {record!r}. `dead_letter` makes one."
        raise TypeError(msg)
    for part, data in (("key", record.key), ("value", record.value)):
        if data is not None and not isinstance(data, bytes):
            msg = f"The {part} of a dead letter is bytes or None, and not {type(data).__name__}."
            raise TypeError(msg)
    if not isinstance(record.timestamp, int) or record.timestamp > MAX_TIMESTAMP:
        msg = f"The timestamp {record.timestamp!r} of a dead letter is no int of 64 bits."
        raise TypeError(msg)
    return record._replace(timestamp=max(0, record.timestamp), headers=headers_of(record.headers))


ExceptionHandler: TypeAlias = Callable[[ErrorHandlerContext, Any, Exception], HandlerResponse]
"""``f(context, record, error)``: one shape for deserialization, processing and production.

The record is what failed there: the `ConsumerRecord` that was read, the `Record` that was
processed, or the `ProducerRecord` that was to be written.
"""

HandlerKind: TypeAlias = Literal["fail", "continue"]
"""The handlers that need no code."""

_ERRORS = "__streams.errors."
_MAX_FACT_BYTES = 500
"""How much a shortened dead letter keeps of a header."""

_KINDS: dict[str, HandlerKind] = {"fail": "fail", "continue": "continue"}
_KAFKA_HANDLERS: dict[str, HandlerKind] = {
    "LogAndFailExceptionHandler": "fail",
    "LogAndContinueExceptionHandler": "continue",
    "LogAndFailProcessingExceptionHandler": "fail",
    "LogAndContinueProcessingExceptionHandler": "continue",
    "DefaultProductionExceptionHandler": "fail",
}


def handler_named(value: object) -> HandlerKind | ExceptionHandler:
    """Return what a setting names: ``"fail"``, ``"continue"``, or the function itself.

    Kafka's class names, with or without their package, mean one of the two.

    Raises:
        ValueError: The value is neither text that names a handler nor callable.
    """
    if isinstance(value, str):
        kind = _KINDS.get(value) or _KAFKA_HANDLERS.get(value.rpartition(".")[2])
        if kind is not None:
            return kind
    elif callable(value):
        return cast(ExceptionHandler, value)
    msg = (
        f"{value!r} is not an exception handler. "
        'Use "fail", "continue" or a function f(context, record, error) -> HandlerResponse.'
    )
    raise ValueError(msg)


@dataclass(frozen=True)
class _BuiltInHandler:
    """Log the error, write the dead letter if there is a topic for it, and answer ``kind``."""

    kind: HandlerKind
    dead_letter_topic: str | None

    def __call__(
        self, context: ErrorHandlerContext, record: object, error: Exception, /
    ) -> HandlerResponse:
        topic = self.dead_letter_topic
        dead_letters = () if topic is None else (dead_letter(topic, context, error),)
        level = logging.ERROR if self.kind == "fail" else logging.WARNING
        trace = escape_controls("".join(traceback.format_exception(error)), keep="\n\t")
        # Neither key nor value: a log is read by more people than a topic.
        _log.log(
            level,
            "Step %s of task %s failed%s.\n%s",
            context.node,
            context.task_id,
            _record_text(context),
            # Indented, so that a message that quotes a record cannot forge a line of a log.
            indent(trace.rstrip(), "  "),
        )
        if self.kind == "fail":
            return HandlerResponse.fail(dead_letters)
        return HandlerResponse.resume(dead_letters)


def _record_text(context: ErrorHandlerContext) -> str:
    if context.topic is None:  # in a punctuation, or the source record is not known any more
        return ""
    return f" on offset {context.offset} of topic {context.topic}, partition {context.partition}"


def built_in_handler(kind: HandlerKind, dead_letter_topic: str | None = None) -> ExceptionHandler:
    """Return the handler that fails or continues, and writes dead letters if there is a topic."""
    return _BuiltInHandler(kind, dead_letter_topic)


def handler_from(
    handler: HandlerKind | ExceptionHandler, dead_letter_topic: str | None = None
) -> ExceptionHandler:
    """Return the function to call for what a setting holds.

    A function of the user's makes its own dead letters, so the topic is for the built-in ones.
    """
    return handler if callable(handler) else built_in_handler(handler, dead_letter_topic)


def dead_letter(topic: str, context: ErrorHandlerContext, error: BaseException) -> ProducerRecord:
    """Return the record that describes a failure, as Kafka's handlers write it.

    Key and value are the bytes of the source record. Its headers are followed by
    ``__streams.errors.exception``, ``.message``, ``.stacktrace``, ``.topic``, ``.partition`` and
    ``.offset``, all of them text in UTF-8.
    """
    facts = {
        "exception": _class_name(type(error)),
        "message": message_of(error),
        "stacktrace": "".join(traceback.format_exception(error)),
        "topic": context.topic,
        "partition": str(context.partition),
        "offset": str(context.offset),
    }
    headers = Headers(
        (*context.headers, *((f"{_ERRORS}{name}", _utf8(text)) for name, text in facts.items()))
    )
    return ProducerRecord(
        topic, None, context.timestamp, context.source_raw_key, context.source_raw_value, headers
    )


def shorter_dead_letters(record: ProducerRecord) -> list[ProducerRecord]:
    """Return shorter versions of a dead letter, for a topic that refuses it; none of other records.

    The first has no key and no value. The second has, besides, only the headers that say where and
    why the record failed, without the stack.
    """
    if not any(name == f"{_ERRORS}offset" for name, _ in record.headers):
        return []
    facts = [
        (name, value and value[:_MAX_FACT_BYTES].decode(errors="ignore").encode())
        for name, value in record.headers
        if name.startswith(_ERRORS) and not name.endswith(".stacktrace")
    ]
    bare = record._replace(key=None, value=None)
    return [bare, bare._replace(headers=Headers(facts))]


def _class_name(error: type[BaseException]) -> str:
    if error.__module__ == "builtins":
        return error.__qualname__
    return f"{error.__module__}.{error.__qualname__}"


def _utf8(text: str | None) -> bytes | None:
    # A message may quote half a surrogate pair, which UTF-8 cannot write.
    return None if text is None else text.encode(errors="backslashreplace")
