"""Processors, their contexts and their stores are typed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, assert_type

from headrace import (
    Cancellable,
    FixedKeyProcessor,
    FixedKeyProcessorContext,
    FixedKeyRecord,
    KeyValueStore,
    KStream,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    RecordMetadata,
    StoreBuilder,
    Stores,
    StreamsBuilder,
    Topology,
    ValueAndTimestamp,
)

counts = Stores.key_value("Counts", int, int)
assert_type(counts, StoreBuilder[KeyValueStore[int, int]])
assert_type(
    Stores.timestamped_key_value("Latest", str, float),
    StoreBuilder[KeyValueStore[str, ValueAndTimestamp[float]]],
)


class ProductCount(Processor[int, str, int, int]):
    def init(self, context: ProcessorContext[int, int]) -> None:
        super().init(context)
        self.counts = context.get_state_store(counts)
        assert_type(self.counts, KeyValueStore[int, int])
        assert_type(context.get_state_store("Counts"), Any)
        schedule = context.schedule("1s", PunctuationType.WALL_CLOCK_TIME, self.punctuate)
        assert_type(schedule, Cancellable)
        assert_type(context.record_metadata, RecordMetadata | None)
        assert_type(context.current_stream_time_ms(), int)

    def process(self, record: Record[int, str]) -> None:
        assert_type(record.key, int)
        assert_type(record.value, str)
        seen = self.counts.get(record.key)
        assert_type(seen, int | None)
        self.counts.put(record.key, (seen or 0) + 1)

    def punctuate(self, timestamp: int) -> None:
        assert_type(self.counts.all(), Iterator[tuple[int, int]])
        for product, views in self.counts.all():
            self.context.forward(Record(product, views, timestamp))
        self.context.commit()

    def stores(self) -> Iterable[StoreBuilder[Any]]:
        return [counts]


class Length(FixedKeyProcessor[str, str, int]):
    def init(self, context: FixedKeyProcessorContext[str, int]) -> None:
        super().init(context)

    def process(self, record: FixedKeyRecord[str, str]) -> None:
        assert_type(record.with_value(1), FixedKeyRecord[str, int])
        self.context.forward(record.with_value(len(record.value)))


builder = StreamsBuilder()
views = builder.stream("views", key=int, value=str)
assert_type(views.process(ProductCount, key=int, value=int), KStream[int, int])
assert_type(views.process(lambda: ProductCount(), key=int, value=int), KStream[int, int])

texts = builder.stream("texts", key=str, value=str)
assert_type(texts.process_values(Length, value=int), KStream[str, int])

record = Record("key", 1, 0)
assert_type(record, Record[str, int])
assert_type(record.with_key(2), Record[int, int])
assert_type(record.with_value("x"), Record[str, str])

topology = Topology()
topology.add_source("SOURCE", "logs", key=int, value=str)
topology.add_processor("COUNTER", ProductCount, "SOURCE")
topology.add_sink("SINK", "counts", "COUNTER", key=int, value=int)
assert_type(str(topology.describe()), str)
