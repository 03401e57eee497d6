"""The parts of a text message, and the message that they make."""

from __future__ import annotations

from msgspec import Struct


class MessagePart(Struct, rename="camel"):
    """A part of a text message: its number, from 1, and how many parts the message has."""

    part: int
    total_parts_count: int
    text: str


class Message(Struct, rename="camel"):
    """The parts of a message that have arrived, by number."""

    total_parts_count: int
    first_at: int
    """When the first part came, by the wall clock in milliseconds."""
    parts: dict[int, str] = {}

    def add_part(self, part: MessagePart) -> Message:
        """Return the message with one more part.

        Raises:
            ValueError: The part came before, or belongs to no message of this length.
        """
        if part.part in self.parts:
            msg = f"Part {part.part} of {part.total_parts_count} is a duplicate."
            raise ValueError(msg)
        if not 1 <= part.part <= part.total_parts_count == self.total_parts_count:
            msg = f"There is no part {part.part} of {part.total_parts_count} in this message."
            raise ValueError(msg)
        parts = {**self.parts, part.part: part.text}
        return Message(self.total_parts_count, self.first_at, parts)

    @property
    def is_whole(self) -> bool:
        """Whether every part has arrived."""
        return len(self.parts) == self.total_parts_count

    @property
    def text(self) -> str:
        """The text of the parts, in the order of their numbers."""
        return "".join(self.parts[number] for number in sorted(self.parts))
