"""Count the events of each key, in a store that three instances share."""

from __future__ import annotations

from headrace import KafkaStreams, StreamsBuilder

STORE = "key-counts"


def check(key: str | None, event: str | None) -> None:
    """Refuse a record that cannot be counted; its dead letter says why."""
    if key is None or event is None:
        msg = "The record has no key." if key is None else "The record has no event."
        raise ValueError(msg)


builder = StreamsBuilder()
(
    builder.stream("events", key=str, value=str)
    .peek(check)
    .group_by_key()
    .count(materialized=STORE)
    .to_stream()
    .to("event-counts")
)

app = KafkaStreams(
    builder.build(),
    application_id="instances",
    deserialization_exception_handler="continue",
    processing_exception_handler="continue",
    errors_dead_letter_queue_topic_name="events-dead",
)

if __name__ == "__main__":
    raise SystemExit(app.run())
