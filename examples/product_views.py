"""Count product views with the Processor API, and report them every second of wall-clock time."""

from __future__ import annotations

from headrace import (
    KafkaStreams,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Stores,
    Topology,
)

counts = Stores.key_value("Counts", int, int)


class ProductCount(Processor[int, str, int, int]):
    def init(self, context: ProcessorContext[int, int]) -> None:
        super().init(context)
        self.counts = context.get_state_store(counts)
        context.schedule("1s", PunctuationType.WALL_CLOCK_TIME, self.punctuate)

    def process(self, record: Record[int, str]) -> None:
        self.counts.put(record.key, (self.counts.get(record.key) or 0) + 1)

    def punctuate(self, timestamp: int) -> None:
        for product, views in self.counts.all():
            self.context.forward(Record(product, views, timestamp))
        self.context.commit()


topology = Topology()
topology.add_source("SOURCE", "logs", key=int, value=str)
topology.add_processor("PRODUCT_COUNTER", ProductCount, "SOURCE")
topology.add_state_store(counts, "PRODUCT_COUNTER")
topology.add_sink("SINK", "counter_topic", "PRODUCT_COUNTER", key=int, value=int)

app = KafkaStreams(topology, application_id="product-views")

if __name__ == "__main__":
    raise SystemExit(app.run())
