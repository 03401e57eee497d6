"""Messages, responses and delivery reports for their parts, and what is known of both."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace


class MessageStatus(StrEnum):
    """How far a message has come."""

    IN_PROGRESS = "IN_PROGRESS"
    SENT = "SENT"
    DELIVERED = "DELIVERED"


class Message(Struct, frozen=True, rename="camel"):
    """A text message on its way out."""

    text: str
    total_parts_count: int
    status: MessageStatus = MessageStatus.IN_PROGRESS

    def update_status(self, status: MessageStatus) -> Message:
        """Return the message with another status."""
        return replace(self, status=status)


class MessagePart(Struct, frozen=True, rename="camel"):
    """The response of the provider: it has sent this part, under an id of its own."""

    message_id: str
    part: int
    total_parts_count: int
    recp_id: str
    out_id: str


class DeliveryReport(Struct, frozen=True):
    """The report of a phone, which knows only the provider's id of the part."""

    status: str


class Parts(Struct):
    """The numbers of the parts of a message."""

    numbers: list[int] = []

    def add_part(self, part: MessagePart) -> Parts:
        """Return these parts and one more; a part that is there already changes nothing."""
        return self if part.part in self.numbers else Parts([*self.numbers, part.part])


def check(key: str | None, value: object) -> None:
    """Refuse a record that the program cannot use; its dead letter says why."""
    if key is None or value is None:
        msg = "The record has no key." if key is None else "The record has no value."
        raise ValueError(msg)


def check_id(message_id: str | None, _message: Message | None) -> None:
    """Refuse a message without an id, which a table would leave out; its dead letter says why."""
    if message_id is None:
        msg = "The message has no id."
        raise ValueError(msg)
