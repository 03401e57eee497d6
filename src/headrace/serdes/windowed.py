"""Windowed keys, in the layouts Kafka uses on topics."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from headrace.durations import MAX_MS
from headrace.errors import TopologyError
from headrace.records import K
from headrace.serdes.base import Serde, serde_for_topic, wrong_type
from headrace.windows.window import Window, Windowed

_LONG = struct.Struct(">q")
_TWO_LONGS = struct.Struct(">qq")


@dataclass(frozen=True)
class TimeWindowedSerde(Serde[Windowed[K]]):
    """Keys of windows of one size: the key and the start of its window.

    ::

        key │ start (8 bytes)
    """

    inner: Serde[K]
    """Writes and reads the key without its window; the partition follows from these bytes alone."""
    size_ms: int
    """How long a window is. Records hold only its start."""

    def __post_init__(self) -> None:
        if self.size_ms <= 0:
            msg = f"A window of {self.size_ms} ms is empty. Give TimeWindowedSerde a size above 0."
            raise TopologyError(msg)

    def serialize(self, value: Windowed[K], /) -> bytes:
        if not isinstance(value, Windowed):
            raise wrong_type(self, "Windowed", value)
        return self.inner.serialize(value.key) + _LONG.pack(value.window.start)

    def deserialize(self, data: bytes, /) -> Windowed[K]:
        split = len(data) - _LONG.size
        if split < 0:
            raise _too_short(self, data)
        start: int = _LONG.unpack_from(data, split)[0]
        end = start + self.size_ms
        window = Window(start, end if end <= MAX_MS else MAX_MS)
        return Windowed(self.inner.deserialize(data[:split]), window)

    def base_key(self, data: bytes) -> bytes:
        """Return the part of ``data`` that is the inner key, which decides the partition."""
        return data[: -_LONG.size]

    def for_topic(self, topic: str, *, is_key: bool) -> TimeWindowedSerde[K]:
        """Return the serde to use on ``topic``: one whose inner serde is bound to it."""
        inner = serde_for_topic(self.inner, topic, is_key=is_key)
        return TimeWindowedSerde(inner, self.size_ms)


@dataclass(frozen=True)
class SessionWindowedSerde(Serde[Windowed[K]]):
    """Keys of sessions: the key, the end and the start of its session.

    ::

        key │ end (8 bytes) │ start (8 bytes)
    """

    inner: Serde[K]
    """Writes and reads the key without its window; the partition follows from these bytes alone."""

    def serialize(self, value: Windowed[K], /) -> bytes:
        if not isinstance(value, Windowed):
            raise wrong_type(self, "Windowed", value)
        window = value.window
        return self.inner.serialize(value.key) + _TWO_LONGS.pack(window.end, window.start)

    def deserialize(self, data: bytes, /) -> Windowed[K]:
        split = len(data) - _TWO_LONGS.size
        if split < 0:
            raise _too_short(self, data)
        end, start = _TWO_LONGS.unpack_from(data, split)
        return Windowed(self.inner.deserialize(data[:split]), Window(start, end))

    def base_key(self, data: bytes) -> bytes:
        """Return the part of ``data`` that is the inner key, which decides the partition."""
        return data[: -_TWO_LONGS.size]

    def for_topic(self, topic: str, *, is_key: bool) -> SessionWindowedSerde[K]:
        """Return the serde to use on ``topic``: one whose inner serde is bound to it."""
        return SessionWindowedSerde(serde_for_topic(self.inner, topic, is_key=is_key))


def _too_short(serde: object, data: bytes) -> ValueError:
    return ValueError(
        f"{type(serde).__name__} reads a key and its window, but got {len(data)} bytes, "
        "too few for a window. Read the data with the serde that wrote it."
    )
