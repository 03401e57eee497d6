"""The Serde protocol: how keys and values become bytes and come back."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

T = TypeVar("T")


@runtime_checkable
class Serde(Protocol[T]):
    """Turns values into bytes and back. Never sees None: None is Kafka's null.

    A serde may also have ``for_topic(topic, *, is_key) -> Serde``; it is called once for each topic
    that the serde is used on, and its answer is used there (schema registry subjects need this).
    """

    def serialize(self, value: T, /) -> bytes:
        """Return the bytes of ``value``."""
        ...

    def deserialize(self, data: bytes, /) -> T:
        """Return the value that ``data`` holds."""
        ...


SerdeLike: TypeAlias = type[T] | Serde[T]
"""What `key=` and `value=` take: a type, or a serde."""


def serde_for_topic(serde: Serde[Any], topic: str, *, is_key: bool) -> Serde[Any]:
    """Return the serde to use on ``topic``: what ``for_topic`` answers, or the serde itself."""
    for_topic = getattr(serde, "for_topic", None)
    bound: Serde[Any] = serde if for_topic is None else for_topic(topic, is_key=is_key)
    return bound
