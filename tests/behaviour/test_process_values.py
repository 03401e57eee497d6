"""Behaviour of `process_values` and `FixedKeyProcessor`."""

from __future__ import annotations

from headrace import (
    FixedKeyProcessor,
    FixedKeyProcessorContext,
    FixedKeyRecord,
    KeyValueStore,
    Processor,
    Record,
    Stores,
    StreamsBuilder,
)
from headrace.testing import DriverFactory

TOTALS = Stores.key_value("totals", str, int)


class Total(FixedKeyProcessor[str, int, int]):
    """Adds the values of each key up."""

    def init(self, context: FixedKeyProcessorContext[str, int]) -> None:
        super().init(context)
        self.totals: KeyValueStore[str, int] = context.get_state_store(TOTALS)

    def process(self, record: FixedKeyRecord[str, int]) -> None:
        total = (self.totals.get(record.key) or 0) + record.value
        self.totals.put(record.key, total)
        self.context.forward(record.with_value(total).with_timestamp(record.timestamp + 1))


def test_a_fixed_key_processor_changes_all_but_the_key(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.process_values(Total, stores=[TOTALS], value=int).to("out")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_key_value_list([("a", 1), ("a", 2)], start=10)

    expected = [Record("a", 1, 11), Record("a", 3, 11)]
    assert driver.create_output_topic("out").read_records_to_list() == expected


def test_grouping_after_process_values_needs_no_repartition() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.process_values(Total, stores=[TOTALS], value=int).group_by_key().count()

    assert len(builder.build().describe().subtopologies) == 1


def test_a_processor_of_a_stream_that_may_change_keys_needs_one() -> None:
    class Anything(Processor[str, int, str, int]):
        def process(self, record: Record[str, int]) -> None: ...

    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.process(Anything, key=str, value=int).group_by_key().count()

    assert len(builder.build().describe().subtopologies) == 2
