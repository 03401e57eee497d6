"""Mark a message as sent when the provider has answered for each of its parts."""

from __future__ import annotations

from headrace import KafkaStreams, StreamsBuilder
from headrace.examples.send_responses.model import (
    Message,
    MessagePart,
    MessageStatus,
    SentParts,
    check,
)


def add(_message_id: str, part: MessagePart, sent: SentParts) -> SentParts:
    """Return the sent parts and one more."""
    return sent.add_part(part)


def with_status(sent: SentParts, message: Message) -> Message:
    """Return the message, as SENT if all its parts are."""
    if len(sent.parts) < message.total_parts_count:
        return message
    return message.update_status(MessageStatus.SENT)


def is_sent(_message_id: str, message: Message | None) -> bool:
    """Return whether the message is SENT; a message that was deleted is not."""
    return message is not None and message.status is MessageStatus.SENT


def check_id(message_id: str | None, _message: Message | None) -> None:
    """Refuse a message without an id, which a table would leave out; its dead letter says why."""
    if message_id is None:
        msg = "The message has no id."
        raise ValueError(msg)


builder = StreamsBuilder()
messages = builder.stream("send-in-progress", key=str, value=Message).peek(check_id).to_table()
responses = builder.stream("msg-parts-send-resp", key=str, value=MessagePart).peek(check)
(
    responses.group_by_key()
    .aggregate(SentParts, add, materialized="sent-parts")
    .join(messages, with_status)
    .to_stream()
    .filter(is_sent)
    .to("mt-messages")
)

app = KafkaStreams(
    builder.build(),
    application_id="send-responses-processor",
    deserialization_exception_handler="continue",
    processing_exception_handler="continue",
    errors_dead_letter_queue_topic_name="send-responses-dead",
)

if __name__ == "__main__":
    raise SystemExit(app.run())
