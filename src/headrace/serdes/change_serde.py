"""Changes of a table as bytes, which a regrouped table sends to another partition."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Any

from headrace.serdes.base import Serde, serde_for_topic

_HAS_NEW, _HAS_OLD, _IS_LATEST = 1, 2, 4
_LENGTH = Struct(">I")


@dataclass(frozen=True)
class ChangeSerde(Serde[tuple[Any, Any, bool]]):
    """A new value, an old value and whether the change is the latest.

    ::

        flags: 1 byte   1 = there is a new value, 2 = there is an old value, 4 = the latest
        length: 4 bytes of the new value, big-endian; only if there are both
        new value, old value

    Kafka's ``ChangedSerializer`` carries the same in another layout; the topic is internal.
    """

    inner: Serde[Any]

    def for_topic(self, topic: str, *, is_key: bool) -> ChangeSerde:
        """Return this serde for the values of one topic."""
        return ChangeSerde(serde_for_topic(self.inner, topic, is_key=is_key))

    def serialize(self, value: tuple[Any, Any, bool], /) -> bytes:
        new, old, latest = value
        flags = _IS_LATEST if latest else 0
        if old is None:
            if new is None:
                return bytes((flags,))
            return bytes((flags | _HAS_NEW,)) + self.inner.serialize(new)
        old_bytes = self.inner.serialize(old)
        if new is None:
            return bytes((flags | _HAS_OLD,)) + old_bytes
        new_bytes = self.inner.serialize(new)
        head = bytes((flags | _HAS_NEW | _HAS_OLD,)) + _LENGTH.pack(len(new_bytes))
        return b"".join((head, new_bytes, old_bytes))

    def deserialize(self, data: bytes, /) -> tuple[Any, Any, bool]:
        flags = data[0]
        latest = bool(flags & _IS_LATEST)
        decode = self.inner.deserialize
        match flags & (_HAS_NEW | _HAS_OLD):
            case 0:
                return None, None, latest
            case 1:
                return decode(data[1:]), None, latest
            case 2:
                return None, decode(data[1:]), latest
        (length,) = _LENGTH.unpack_from(data, 1)
        start = 1 + _LENGTH.size
        return decode(data[start : start + length]), decode(data[start + length :]), latest
