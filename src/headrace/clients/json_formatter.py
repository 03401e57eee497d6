"""JsonFormatter: log records as JSON objects, with the fields of logback's JSON layout."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec

from headrace.config.objects import object_from
from headrace.errors import ConfigError

Fields: TypeAlias = Iterator[tuple[str, Any]]

_PLAIN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
"""The attributes that every log record has; `extra` adds others."""
_MARKERS = "markers"
_OF_THE_CALLER = {"context", "arguments"}
"""Providers of fields whose names the caller chooses."""

_fields: ContextVar[Mapping[str, Any]] = ContextVar("headrace_log_context", default={})  # noqa: B039


@contextmanager
def log_context(**fields: Any) -> Iterator[None]:
    """Add fields to every log record of a ``with`` block, as Java's ``MDC`` does.

    They belong to the running thread or asyncio task; blocks can be nested.
    """
    token = _fields.set({**_fields.get(), **fields})
    try:
        yield
    finally:
        _fields.reset(token)


class JsonFormatter(logging.Formatter):
    """Formats each log record as one JSON object; ``dictConfig`` can make it.

    Args:
        providers: Which fields there are, and in which order. Left out: all.

            - ``"timestamp"``: ``@timestamp``, in UTC;
            - ``"version"``: ``@version``, which is 1;
            - ``"level"``, ``"logger"``, ``"thread"`` and ``"message"``: ``level``,
              ``logger_name``, ``thread_name`` and ``message``;
            - ``"constants"``: the fields of ``constants``;
            - ``"context"``: the fields of `log_context` and of ``context``;
            - ``"arguments"``: the fields of ``extra``, and of arguments that are a mapping;
            - ``"markers"``: ``tags``, the names in ``extra={"markers": […]}``;
            - ``"stack_trace"``: ``stack_trace``, if the record has an exception or a stack.
        constants: Fields with a value that never changes: ``{"appName": "shop"}``.
        context: Context variables of yours by the name of their field, each a ``ContextVar`` or
            ``"module:name"`` of one. A variable without a value has no field.

    A field of the context or of arguments never replaces one of the others.

    Raises:
        ConfigError: A provider is not in the list, or a context variable is none.
    """

    def __init__(
        self,
        providers: Iterable[str] | None = None,
        *,
        constants: Mapping[str, Any] | None = None,
        context: Mapping[str, ContextVar[Any] | str] | None = None,
    ) -> None:
        super().__init__()
        self._constants = dict(constants or {})
        self._context = {name: _variable(given) for name, given in (context or {}).items()}
        known: dict[str, Callable[[logging.LogRecord], Fields]] = {
            "timestamp": _timestamp,
            "version": lambda _: iter([("@version", "1")]),
            "level": lambda record: iter([("level", record.levelname)]),
            "logger": lambda record: iter([("logger_name", record.name)]),
            "constants": lambda _: iter(self._constants.items()),
            "thread": lambda record: iter([("thread_name", record.threadName)]),
            "message": lambda record: iter([("message", record.getMessage())]),
            "context": self._context_fields,
            _MARKERS: _markers,
            "arguments": _arguments,
            "stack_trace": self._stack_trace,
        }
        names = list(known if providers is None else providers)
        if unknown := [name for name in names if name not in known]:
            msg = f"There is no provider {unknown[0]!r}. The providers are: {', '.join(known)}."
            raise ConfigError(msg)
        self._providers = [(known[name], name in _OF_THE_CALLER) for name in names]

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as JSON, without a line break."""
        provided = [(list(provider(record)), theirs) for provider, theirs in self._providers]
        ours = {name for pairs, theirs in provided if not theirs for name, _ in pairs}
        fields: dict[str, Any] = {}
        for pairs, theirs in provided:
            fields |= {name: value for name, value in pairs if not (theirs and name in ours)}
        try:
            return msgspec.json.encode(fields, enc_hook=str).decode()
        except (TypeError, ValueError, RecursionError):
            encodable = {_text(name): _encodable(value) for name, value in fields.items()}
            return msgspec.json.encode(encodable, enc_hook=str).decode()

    def _context_fields(self, _: logging.LogRecord) -> Fields:
        yield from _fields.get().items()
        for name, variable in self._context.items():
            value = variable.get(_UNSET)
            if value is not _UNSET:
                yield name, value

    def _stack_trace(self, record: logging.LogRecord) -> Fields:
        parts = []
        if record.exc_info:
            parts.append(self.formatException(record.exc_info))
        if record.stack_info:
            parts.append(self.formatStack(record.stack_info))
        if parts:
            yield "stack_trace", "\n".join(parts)


_UNSET = object()


def _timestamp(record: logging.LogRecord) -> Fields:
    at = datetime.fromtimestamp(record.created, UTC)
    yield "@timestamp", at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _markers(record: logging.LogRecord) -> Fields:
    if markers := getattr(record, _MARKERS, None):
        yield "tags", [markers] if isinstance(markers, str) else list(markers)


def _arguments(record: logging.LogRecord) -> Fields:
    if isinstance(record.args, Mapping):
        for name, value in record.args.items():
            yield str(name), value
    for name, value in vars(record).items():
        if name not in _PLAIN and name != _MARKERS:
            yield name, value


def _variable(given: ContextVar[Any] | str) -> ContextVar[Any]:
    try:
        variable = object_from(given, "context")
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if not isinstance(variable, ContextVar):
        msg = f'`context` has {given!r}. Use a `ContextVar`, or "module:name" of one.'
        raise ConfigError(msg)
    return variable


def _encodable(value: object) -> object:
    """Return a value that JSON takes: itself, or else its ``repr``."""
    try:
        msgspec.json.encode(value, enc_hook=str)
    except (TypeError, ValueError, RecursionError):
        return _text(repr(value))
    return value


def _text(name: object) -> str:
    """Return text that is UTF-8."""
    return str(name).encode("utf-8", "backslashreplace").decode()
