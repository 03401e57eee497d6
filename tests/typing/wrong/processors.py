"""A processor that does not fit its stream, its context or its store is refused."""

from __future__ import annotations

from headrace import FixedKeyProcessor, FixedKeyRecord, Processor, Record, Stores, StreamsBuilder

counts = Stores.key_value("Counts", str, int)


class Count(Processor[str, str, str, int]):
    def process(self, record: Record[str, str]) -> None:
        store = self.context.get_state_store(counts)
        store.put(record.key, "one")  # E: arg-type; pyright: reportArgumentType
        store.put(1, 1)  # E: arg-type; pyright: reportArgumentType
        total: int = store.get(record.key)  # E: assignment; pyright: reportAssignmentType
        self.context.forward(record)  # E: arg-type; pyright: reportArgumentType
        self.context.forward(record.with_value(total))
        self.context.schedule("1s", "WALL_CLOCK_TIME", print)  # E: arg-type; pyright: reportArgumentType


class Keep(FixedKeyProcessor[str, str, str]):
    def process(self, record: FixedKeyRecord[str, str]) -> None:
        record.with_key("other")  # E: attr-defined; pyright: reportAttributeAccessIssue
        self.context.forward(record)


class Incomplete(Processor[str, str, str, int]):
    pass


builder = StreamsBuilder()
numbers = builder.stream("numbers", key=str, value=int)
texts = builder.stream("texts", key=str, value=str)

texts.process(Count)
numbers.process(Count)  # E: arg-type; pyright: reportArgumentType
numbers.process_values(Keep)  # E: arg-type; pyright: reportArgumentType
texts.process(Count())  # E: arg-type; pyright: reportArgumentType
Incomplete()  # E: abstract; pyright: reportAbstractUsage
