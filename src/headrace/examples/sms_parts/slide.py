"""The program as the slide has it: a part that comes twice makes a message that is wrong."""

from __future__ import annotations

from msgspec import Struct

from headrace import KafkaStreams, StreamsBuilder, Topology
from headrace.examples.sms_parts.model import MessagePart


class ListedMessage(Struct, rename="camel"):
    """A message that keeps its parts in a list, so that it cannot see a duplicate."""

    total_parts_count: int = 0
    parts: list[str] = []


def add_part(_key: str, part: MessagePart, message: ListedMessage) -> ListedMessage:
    """Return the message with one more part."""
    return ListedMessage(part.total_parts_count, [*message.parts, part.text])


def topology() -> Topology:
    """Return the topology of the slide."""
    builder = StreamsBuilder()
    (
        builder.stream("incoming-msg-parts", key=str, value=MessagePart)
        .group_by_key()
        .aggregate(ListedMessage, add_part)
        .filter(lambda _, message: len(message.parts) == message.total_parts_count)
        .to_stream()
        .to("incoming-messages")
    )
    return builder.build()


app = KafkaStreams(
    topology(),
    application_id="incoming-msg-parts-slide",
    deserialization_exception_handler="continue",
    processing_exception_handler="continue",
    errors_dead_letter_queue_topic_name="incoming-msg-parts-dead",
)
