"""Write to a topic with more partitions and read it again, so that more tasks share a slow step."""

from __future__ import annotations

from headrace import FixedKeyProcessor, FixedKeyRecord, KafkaStreams, StreamsBuilder
from headrace.examples.intermediate_topic.model import NamedView, View, look_up


class LookUp(FixedKeyProcessor[str, View, NamedView]):
    """Adds the name of the product; this takes long."""

    def process(self, record: FixedKeyRecord[str, View]) -> None:
        name = look_up(record.value.product_id)
        view = NamedView(record.value.browser_hash, name, self.context.task_id)
        self.context.forward(record.with_value(view))


def browser(_key: str | None, view: View) -> str:
    return view.browser_hash


builder = StreamsBuilder()
stream1 = builder.stream("logs", key=str, value=View).select_key(browser)
stream1.to("my-topic")

stream2 = builder.stream("my-topic", key=str, value=View)
stream2.process_values(LookUp, value=NamedView).to("named-views")

app = KafkaStreams(
    builder.build(),
    application_id="intermediate-topic",
    deserialization_exception_handler="continue",
    processing_exception_handler="continue",
    errors_dead_letter_queue_topic_name="intermediate-topic-dead",
)

if __name__ == "__main__":
    raise SystemExit(app.run())
