"""Messages, the responses to their parts, and what is known of both."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace


class MessageStatus(StrEnum):
    """How far a message has come."""

    IN_PROGRESS = "IN_PROGRESS"
    SENT = "SENT"


class Message(Struct, frozen=True, rename="camel"):
    """A text message on its way out."""

    text: str
    total_parts_count: int
    status: MessageStatus = MessageStatus.IN_PROGRESS

    def update_status(self, status: MessageStatus) -> Message:
        """Return the message with another status."""
        return replace(self, status=status)


class MessagePart(Struct, frozen=True, rename="camel"):
    """The response of the provider: it has sent this part."""

    part: int
    total_parts_count: int


class SentParts(Struct):
    """The numbers of the parts that are sent."""

    parts: list[int] = []

    def add_part(self, part: MessagePart) -> SentParts:
        """Return these parts and one more.

        Raises:
            ValueError: The part was there before.
        """
        if part.part in self.parts:
            msg = f"The response for part {part.part} is a duplicate."
            raise ValueError(msg)
        return SentParts([*self.parts, part.part])


def check(key: str | None, value: object) -> None:
    """Refuse a record that the program cannot use; its dead letter says why."""
    if key is None or value is None:
        msg = "The record has no key." if key is None else "The record has no value."
        raise ValueError(msg)
