"""Count the views of each user: a stream of events becomes a table that can be asked."""

from __future__ import annotations

from headrace import KafkaStreams, StreamsBuilder
from headrace.examples.user_views.model import View


def viewer(_key: str | None, view: View) -> str:
    return view.user


builder = StreamsBuilder()
(
    builder.stream("views", key=str, value=View)
    .group_by(viewer)
    .count(materialized="user-views")
    .to_stream()
    .to("user-view-counts")
)

app = KafkaStreams(
    builder.build(),
    application_id="user-views",
    deserialization_exception_handler="continue",
    processing_exception_handler="continue",
    errors_dead_letter_queue_topic_name="user-views-dead",
)

if __name__ == "__main__":
    raise SystemExit(app.run())
