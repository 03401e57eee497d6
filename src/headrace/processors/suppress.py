"""Hold the changes of a table back until their window closes, or a time has passed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headrace.errors import ProcessingError, SuppressBufferFullError
from headrace.processors.operation import (
    NodeContext,
    Process,
    StoredValue,
    TableOperation,
    ValueGetter,
)
from headrace.records import Headers
from headrace.state.suppress_buffer import SuppressBuffer

_NO_LIMIT = 2**63


@dataclass(frozen=True, kw_only=True)
class Suppress(TableOperation):
    """Emit the last change of each key, once stream time has passed what it waits for.

    Stream time is this operation's own: the latest timestamp of the changes that came here. An
    emitted change has the timestamp, headers and old value of the last change.
    """

    buffer: str
    """The store of the changes that wait."""
    wait_ms: int
    """How long a change waits, counted from its timestamp or from the end of its window."""
    until_close: bool
    """Whether it waits for its window to close; then deletions are never emitted."""
    max_records: int | None = None
    max_bytes: int | None = None
    emits_early: bool = False
    """Whether a full buffer emits its first changes; else it stops the application."""

    stateless = False

    def stores_read(self, own: Iterable[str], parents: Iterable[str]) -> Iterable[str]:
        return *own, *parents

    def getter(self, node: NodeContext, parent: Callable[[], ValueGetter]) -> ValueGetter:
        prior, get = node.store(self.buffer).prior, parent().get

        def emitted(key: Any) -> StoredValue:
            waits, value = prior(key)
            if not waits:
                return get(key)
            # The buffer does not store when the value was emitted.
            return None if value is None else (value, -1)

        return ValueGetter(emitted)

    def bind(self, node: NodeContext) -> Process:
        buffer: SuppressBuffer[Any, Any] = node.store(self.buffer)
        times, fail = node.times, node.fail
        put, emit_first = buffer.put, self._emitter(node, buffer)
        wait_ms, until_close, emits_early = self.wait_ms, self.until_close, self.emits_early
        max_records = _NO_LIMIT if self.max_records is None else self.max_records
        max_bytes = _NO_LIMIT if self.max_bytes is None else self.max_bytes
        stream_time: int = times.get("stream_time", -1)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            nonlocal stream_time
            new, old, _ = value
            if timestamp > stream_time:
                stream_time = times["stream_time"] = timestamp
            try:
                time = key.window.end if until_close else timestamp
                put(time, key, new, old, timestamp, headers, node.record)
            except Exception as error:
                return fail(error, key, new, timestamp, headers)
            expired = stream_time - wait_ms
            while buffer.earliest <= expired:
                emit_first()
            if buffer.records <= max_records and buffer.bytes <= max_bytes:
                return None
            if not emits_early:
                return self._refuse(node, (key, new, timestamp, headers))
            while buffer.records > max_records or buffer.bytes > max_bytes:
                emit_first()
            return None

        return process

    def _emitter(self, node: NodeContext, buffer: SuppressBuffer[Any, Any]) -> Callable[[], None]:
        forward, drops_deletions = node.forward, self.until_close

        def emit_first() -> None:
            waiting = buffer.first()
            if waiting.new is not None or not drops_deletions:
                buffer.emitted += 1
                current, node.record = node.record, waiting.record
                change = (waiting.new, waiting.old, True)
                try:
                    forward(waiting.key, change, waiting.timestamp, waiting.headers)
                finally:
                    node.record = current
            # Until here a look-up still sees what was emitted before, as in Kafka.
            buffer.remove_first()

        return emit_first

    def _refuse(self, node: NodeContext, record: tuple[Any, Any, int, Headers]) -> None:
        limits = {"records": self.max_records, "bytes": self.max_bytes}
        limit = " and ".join(f"{most} {what}" for what, most in limits.items() if most is not None)
        error = SuppressBufferFullError(node.name, limit=limit)
        try:
            node.fail(error, *record)
        except ProcessingError:
            raise error from None
