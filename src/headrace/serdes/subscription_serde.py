"""The messages between the two sides of a foreign-key join, as bytes."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple

from headrace.serdes.base import Serde, serde_for_topic

DIGEST_SIZE = 16
"""The bytes of the digest of a left value."""

_HAS_DIGEST, _HAS_VALUE = 1, 2
_SUBSCRIPTION = Struct(">BBi")
_RESPONSE = Struct(">Bi")


class Subscription(NamedTuple):
    """A request of the left side to the partition of a foreign key, the record's key."""

    digest: bytes | None
    """The digest of the left value this is about; None if the row was deleted."""
    instruction: int
    """The request; see `headrace.processors.foreign_key_join`."""
    primary_key: Any
    partition: int
    """The partition of the left row, where the answer is sent."""


class Response(NamedTuple):
    """An answer of the right side; the record's key is the primary key."""

    digest: bytes | None
    """The digest that came with the subscription."""
    foreign_value: Any
    """The value of the right side, or None."""
    partition: int


@dataclass(frozen=True)
class SubscriptionSerde(Serde[Subscription]):
    """A `Subscription`.

    ::

        flags: 1 byte          1 = there is a digest
        instruction: 1 byte
        partition: 4 bytes, big-endian
        digest: 16 bytes, if there is one
        primary key: the rest
    """

    key: Serde[Any]

    def for_topic(self, topic: str, *, is_key: bool) -> SubscriptionSerde:
        """Return this serde for one topic, on which primary keys have a name of their own."""
        return SubscriptionSerde(serde_for_topic(self.key, f"{topic}-pk", is_key=True))

    def serialize(self, value: Subscription, /) -> bytes:
        digest, instruction, key, partition = value
        head = _SUBSCRIPTION.pack(0 if digest is None else _HAS_DIGEST, instruction, partition)
        return b"".join((head, digest or b"", self.key.serialize(key)))

    def deserialize(self, data: bytes, /) -> Subscription:
        flags, instruction, partition = _SUBSCRIPTION.unpack_from(data)
        digest, rest = _digest_and_rest(data, _SUBSCRIPTION.size, flags)
        return Subscription(digest, instruction, self.key.deserialize(rest), partition)


@dataclass(frozen=True)
class ResponseSerde(Serde[Response]):
    """A `Response`.

    ::

        flags: 1 byte          1 = there is a digest, 2 = there is a foreign value
        partition: 4 bytes, big-endian
        digest: 16 bytes, if there is one
        foreign value: the rest, if there is one
    """

    value: Serde[Any]

    def for_topic(self, topic: str, *, is_key: bool) -> ResponseSerde:
        """Return this serde for one topic."""
        return ResponseSerde(serde_for_topic(self.value, topic, is_key=is_key))

    def serialize(self, value: Response, /) -> bytes:
        digest, foreign_value, partition = value
        flags = 0 if digest is None else _HAS_DIGEST
        if foreign_value is None:
            return _RESPONSE.pack(flags, partition) + (digest or b"")
        head = _RESPONSE.pack(flags | _HAS_VALUE, partition)
        return b"".join((head, digest or b"", self.value.serialize(foreign_value)))

    def deserialize(self, data: bytes, /) -> Response:
        flags, partition = _RESPONSE.unpack_from(data)
        digest, rest = _digest_and_rest(data, _RESPONSE.size, flags)
        value = self.value.deserialize(rest) if flags & _HAS_VALUE else None
        return Response(digest, value, partition)


def _digest_and_rest(data: bytes, start: int, flags: int) -> tuple[bytes | None, bytes]:
    if not flags & _HAS_DIGEST:
        return None, data[start:]
    end = start + DIGEST_SIZE
    return data[start:end], data[end:]
