"""Mark messages as sent, then as delivered, when responses and reports of all parts are there."""

from __future__ import annotations

from typing import Any

from headrace import (
    FixedKeyProcessor,
    FixedKeyProcessorContext,
    FixedKeyRecord,
    KafkaStreams,
    KStream,
    KTable,
    StoreBuilder,
    Stores,
    StreamsBuilder,
)
from headrace.examples.delivery_reports.model import (
    DeliveryReport,
    Message,
    MessagePart,
    MessageStatus,
    Parts,
    check,
    check_id,
)

statuses = Stores.key_value("statuses", str, str)


class InOrder(FixedKeyProcessor[str, Message, Message]):
    """Lets each status of a message pass once, and DELIVERED only after SENT."""

    def stores(self) -> list[StoreBuilder[Any]]:
        return [statuses]

    def init(self, context: FixedKeyProcessorContext[str, Message]) -> None:
        super().init(context)
        self.statuses = context.get_state_store(statuses)

    def process(self, record: FixedKeyRecord[str, Message]) -> None:
        known, status = self.statuses.get(record.key) or "", record.value.status
        if status in known.split():
            return
        self.statuses.put(record.key, f"{known} {status}")
        if status is MessageStatus.SENT or known:
            self.context.forward(record)
        if status is MessageStatus.SENT and known:
            delivered = record.value.update_status(MessageStatus.DELIVERED)
            self.context.forward(record.with_value(delivered))


def add(_message_id: str, part: MessagePart, parts: Parts) -> Parts:
    """Return the parts and one more."""
    return parts.add_part(part)


def when_whole(
    parts: KTable[str, Parts], messages: KTable[str, Message], status: MessageStatus
) -> KStream[str, Message]:
    """Return the messages all of whose parts are there, with a new status."""

    def with_status(parts: Parts, message: Message) -> Message:
        is_whole = len(parts.numbers) >= message.total_parts_count
        return message.update_status(status) if is_whole else message

    joined = parts.join(messages, with_status).to_stream()
    return joined.filter(lambda _, message: message is not None and message.status is status)


builder = StreamsBuilder()
messages = builder.stream("send-in-progress", key=str, value=Message).peek(check_id).to_table()
responses = builder.stream("msg-parts-send-resp", key=str, value=MessagePart).peek(check)
reports = builder.stream("msg-parts-delivery", key=str, value=DeliveryReport).peek(check)

sent_parts = responses.group_by_key().aggregate(Parts, add, materialized="sent-parts")

response_by_out_id = responses.group_by(
    lambda _, part: f"{part.recp_id}-{part.out_id}", key=str
).reduce(lambda first, _: first, materialized="responses-by-out-id")
delivered_parts = (
    reports.to_table(materialized="reports-by-out-id")
    .join(response_by_out_id, lambda _report, part: part, value=MessagePart)
    .to_stream()
    .filter(lambda _, part: part is not None)
    .group_by(lambda _, part: part.message_id, key=str)
    .aggregate(Parts, add, materialized="delivered-parts")
)

sent = when_whole(sent_parts, messages, MessageStatus.SENT)
delivered = when_whole(delivered_parts, messages, MessageStatus.DELIVERED)
sent.merge(delivered).process_values(InOrder, value=Message).to("mt-messages")

app = KafkaStreams(
    builder.build(),
    application_id="delivery-reports-processor",
    deserialization_exception_handler="continue",
    processing_exception_handler="continue",
    errors_dead_letter_queue_topic_name="delivery-reports-dead",
)

if __name__ == "__main__":
    raise SystemExit(app.run())
