"""KafkaHandler: log records as records of a topic."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Literal, Unpack

from headrace.clients.log_keys import Keying, key_function
from headrace.clients.producer import KafkaProducer
from headrace.clients.settings import ClientConfig, ProducerSettings
from headrace.durations import Duration, duration_ms
from headrace.errors import ConfigError, StreamsError

_OWN_LOGGERS = ("headrace", "concurrent.futures")
"""Loggers that writing itself uses: writing their records would never end."""


class KafkaHandler(logging.Handler):
    """Writes each log record, formatted, to a topic. ``logging.config.dictConfig`` can make it.

    Args:
        topic: The topic to write to.
        level: The lowest level to write.
        config: The settings of the producer, as `KafkaProducer` takes them.
        keying: What decides the key, and with it the partition: ``"logger"``, its name;
            ``"none"``; ``"host"``, ``"thread"`` or ``"context"``, the four bytes of Java's hash of
            the name, as logback's appender writes them; a function ``f(log_record)`` that returns
            text, bytes or None; or ``"module:name"`` of one.
        context_name: The name that ``keying="context"`` hashes.
        delivery: ``"asynchronous"`` returns at once; ``"blocking"`` waits until the record is
            written.
        timeout: How long ``"blocking"`` waits.
        fallback: The handler, or the name of one, that gets the log records that could not be
            written. Without it Python's `logging.raiseExceptions` decides.
        settings: Those of `KafkaProducer`, as keywords; they win over ``config``.

    Raises:
        ConfigError: Settings that cannot be used, or no handler has the name ``fallback``.
    """

    def __init__(
        self,
        topic: str,
        level: int | str = logging.NOTSET,
        *,
        config: ClientConfig | None = None,
        keying: Keying = "logger",
        context_name: str = "default",
        delivery: Literal["asynchronous", "blocking"] = "asynchronous",
        timeout: Duration = "30s",
        fallback: logging.Handler | str | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        super().__init__(level)
        self.topic = topic
        self._key = key_function(keying, context_name)
        if delivery not in {"asynchronous", "blocking"}:
            msg = f'`delivery` is {delivery!r}. Use "asynchronous" or "blocking".'
            raise ConfigError(msg)
        self._is_blocking = delivery == "blocking"
        self._seconds = duration_ms(timeout, what="timeout") / 1000
        self._fallback = _handler_named(fallback) if isinstance(fallback, str) else fallback
        self._producer = KafkaProducer(config, key=bytes, value=str, **settings)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a log record."""
        if record.name.partition(".")[0] in _OWN_LOGGERS or record.name in _OWN_LOGGERS:
            return
        try:
            key = self._key(record)
            sent = self._producer.send(
                self.topic,
                key.encode() if isinstance(key, str) else key,
                self.format(record),
                timestamp=int(record.created * 1000),
                on_completion=None if self._is_blocking else partial(self._completed, record),
            )
            if self._is_blocking:
                sent.result(self._seconds)
        except Exception:
            self._failed(record)

    def flush(self) -> None:
        """Wait until everything is written."""
        self._producer.flush()

    def close(self) -> None:
        """Write the buffered records, and close the producer."""
        self._producer.close()
        super().close()

    def _completed(self, record: logging.LogRecord, _: object, error: StreamsError | None) -> None:
        if error is not None:
            try:
                raise error
            except StreamsError:
                self._failed(record)

    def _failed(self, record: logging.LogRecord) -> None:
        """Give a log record to the fallback; to be called where its error is caught."""
        if self._fallback is None:
            self.handleError(record)
        else:
            self._fallback.handle(record)


def _handler_named(name: str) -> logging.Handler:
    handlers: Any = logging._handlers  # type: ignore[attr-defined] # noqa: SLF001
    handler = handlers.get(name)
    if not isinstance(handler, logging.Handler):
        msg = (
            f"`fallback` is {name!r}, but no handler has this name yet. `dictConfig` makes "
            "handlers in the order of their names: let the fallback's come first."
        )
        raise ConfigError(msg)
    return handler
