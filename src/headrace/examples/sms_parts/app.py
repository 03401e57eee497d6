"""Put the parts of text messages together, and forget messages that never become whole."""

from __future__ import annotations

from typing import Any

from headrace import (
    KafkaStreams,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    StoreBuilder,
    Stores,
    StreamsBuilder,
)
from headrace.examples.sms_parts.model import Message, MessagePart

MINUTE = 60_000
WAIT = 60 * MINUTE
"""How long a message waits for its parts, and for duplicates of them, in milliseconds."""

messages = Stores.key_value("messages", str, Message)


class PutTogether(Processor[str, MessagePart, str, Message]):
    """Collects parts by the id of their message; forwards a message when its last part comes.

    A whole message stays in the store until its time is over, so that a part that comes again is
    still a duplicate. A message that is not whole by then is forwarded as it is.
    """

    def stores(self) -> list[StoreBuilder[Any]]:
        return [messages]

    def init(self, context: ProcessorContext[str, Message]) -> None:
        super().init(context)
        self.messages = context.get_state_store(messages)
        context.schedule("1m", PunctuationType.WALL_CLOCK_TIME, self.clean_up)

    def process(self, record: Record[str, MessagePart]) -> None:
        if record.key is None or record.value is None:
            msg = "The record has no message id." if record.key is None else "The part is missing."
            raise ValueError(msg)
        now = self.context.current_system_time_ms()
        message = self.messages.get(record.key) or Message(record.value.total_parts_count, now)
        message = message.add_part(record.value)
        self.messages.put(record.key, message)
        if message.is_whole:
            self.context.forward(record.with_value(message))

    def clean_up(self, now: int) -> None:
        for key, message in self.messages.all():
            if message.first_at + WAIT <= now:
                self.messages.delete(key)
                if not message.is_whole:
                    self.context.forward(Record(key, message, now))


builder = StreamsBuilder()
collected = builder.stream("incoming-msg-parts", key=str, value=MessagePart).process(
    PutTogether, key=str, value=Message
)
whole = collected.filter(lambda _, message: message.is_whole)
whole.map_values(lambda message: message.text, value=str).to("incoming-messages")
collected.filter_not(lambda _, message: message.is_whole).to("incomplete-messages")

app = KafkaStreams(
    builder.build(),
    application_id="incoming-msg-parts-processor",
    deserialization_exception_handler="continue",
    processing_exception_handler="continue",
    errors_dead_letter_queue_topic_name="incoming-msg-parts-dead",
)

if __name__ == "__main__":
    raise SystemExit(app.run())
