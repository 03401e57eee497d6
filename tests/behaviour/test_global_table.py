"""Behaviour of global tables and global stores."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import (
    GlobalKTable,
    KeyValueStore,
    Materialized,
    ProcessingError,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    StateStoreError,
    Stores,
    StreamsBuilder,
    Topology,
    TopologyError,
)
from headrace.testing import DriverFactory, TopologyTestDriver

RATES = Stores.key_value("rates", str, int)


class Maintains(Processor[str, int, None, None]):
    """Keeps twice the value of each key."""

    def init(self, context: ProcessorContext[None, None]) -> None:
        super().init(context)
        self.rates: KeyValueStore[str, int] = context.get_state_store(RATES)

    def process(self, record: Record[str, int]) -> None:
        self.rates.put(record.key, None if record.value is None else record.value * 2)


class LooksUp(Processor[str, int, str, int]):
    """Forwards what the global store has for the key."""

    def __init__(self, store: str = "rates") -> None:
        self.store = store

    def process(self, record: Record[str, int]) -> None:
        found: Any = self.context.get_state_store(self.store).get(record.key)
        self.context.forward(record.with_value(getattr(found, "value", found)))


def with_store() -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.add_global_store(RATES, "rates-topic", Maintains, key=str, value=int, name="rates")
    builder.stream("in", key=str, value=int).process(LooksUp, key=str, value=int).to("out")
    return builder


def test_a_global_store_is_maintained_by_its_processor_and_read_by_others(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(with_store().build())

    driver.create_input_topic("rates-topic").pipe_input("a", 4)
    driver.create_input_topic("in").pipe_key_value_list([("a", 1), ("b", 1)])

    assert driver.create_output_topic("out").read_key_values_to_list() == [("a", 8), ("b", None)]


def test_every_partition_sees_the_whole_global_store(topology_driver: DriverFactory) -> None:
    driver = topology_driver(with_store().build(), partitions=3)

    names = ["ann", "bob", "cat", "dan"]
    driver.create_input_topic("rates-topic").pipe_key_value_list([(name, 4) for name in names])
    driver.create_input_topic("in").pipe_key_value_list([(name, 1) for name in names])

    read = driver.create_output_topic("out").read_key_values_to_map()
    assert read == dict.fromkeys(names, 8)


def test_a_global_table_keeps_the_last_value_and_deletes(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    table = builder.global_table("rates-topic", key=str, value=int, materialized="rates")
    driver = topology_driver(builder.build())

    topic = driver.create_input_topic("rates-topic")
    topic.pipe_key_value_list([("a", 1), ("b", 2), ("a", 3), ("b", None)])

    assert list(driver.get_key_value_store("rates").all()) == [("a", 3)]
    assert table.queryable_store_name == "rates"


def test_a_global_table_counts_records_without_a_key(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    builder.global_table("rates-topic", key=str, value=int)
    driver = topology_driver(builder.build())

    driver.create_input_topic("rates-topic").pipe_input(None, 1)

    dropped = {name.tags: n for name, n in driver.metrics().items() if "dropped-r" in name.name}
    assert dropped == {(("task-id", "-1_0"),): 1}


def test_a_global_table_leaves_out_what_it_cannot_read(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    builder.global_table("rates-topic", key=str, value=int, materialized="rates")
    driver = topology_driver(builder.build())

    topic = driver.create_input_topic("rates-topic", value=bytes)
    topic.pipe_key_value_list([("a", b"bad"), ("b", bytes(8))])

    assert list(driver.get_key_value_store("rates").all()) == [("b", 0)]


def test_a_topic_the_topology_writes_can_feed_a_global_table(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    builder.global_table("rates-topic", key=str, value=int, materialized="rates")
    builder.stream("in", key=str, value=int).to("rates-topic")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input("a", 1)

    assert driver.get_key_value_store("rates").get("a") == 1


def test_only_its_own_processor_writes_a_global_store(topology_driver: DriverFactory) -> None:
    class Writes(Processor[str, int, str, int]):
        def process(self, record: Record[str, int]) -> None:
            self.context.get_state_store(RATES).put("a", 1)

    builder = with_store()
    builder.stream("other", key=str, value=int).process(Writes)
    driver = topology_driver(builder.build())

    with pytest.raises(ProcessingError, match="Global store 'rates' can only be read") as caught:
        driver.create_input_topic("other").pipe_input("a", 1)

    assert isinstance(caught.value.__cause__, StateStoreError)


def test_the_low_level_way_gives_the_same(topology_driver: DriverFactory) -> None:
    topology = Topology()
    topology.add_global_store(RATES, "s", "rates-topic", "p", Maintains, key=str, value=int)
    driver = topology_driver(topology)

    driver.create_input_topic("rates-topic").pipe_input("a", 1)

    assert driver.get_state_store(RATES).get("a") == 2
    assert driver.get_all_state_stores()["rates"].get("a") == 2


def test_a_global_store_is_described_apart() -> None:
    assert str(with_store().build().describe()) == (
        "Topologies:\n"
        "   Sub-topology: 0 for global store (will not generate tasks)\n"
        "    Source: rates-source (topics: [rates-topic])\n"
        "      --> rates\n"
        "    Processor: rates (stores: [rates])\n"
        "      --> none\n"
        "      <-- rates-source\n"
        "  Sub-topology: 1\n"
        "    Source: KSTREAM-SOURCE-0000000002 (topics: [in])\n"
        "      --> KSTREAM-PROCESSOR-0000000003\n"
        "    Processor: KSTREAM-PROCESSOR-0000000003 (stores: [])\n"
        "      --> KSTREAM-SINK-0000000004\n"
        "      <-- KSTREAM-SOURCE-0000000002\n"
        "    Sink: KSTREAM-SINK-0000000004 (topic: out)\n"
        "      <-- KSTREAM-PROCESSOR-0000000003\n\n"
    )


def test_a_global_table_has_no_operations_of_its_own() -> None:
    public = {name for name in dir(GlobalKTable) if not name.startswith("_")}

    assert public & {"filter", "map_values", "group_by", "join", "to_stream", "to"} == set()


def test_a_global_table_cannot_be_versioned() -> None:
    builder = StreamsBuilder()

    with pytest.raises(TopologyError, match=r"'t' cannot be versioned. Use `table`"):
        builder.global_table("t", materialized=Materialized("s", history_retention="1h"))


def test_the_processor_of_a_global_store_cannot_forward(topology_driver: DriverFactory) -> None:
    class Forwards(Maintains):
        def process(self, record: Record[str, int]) -> None:
            self.context.forward(Record(None, None, 0))

    topology = Topology()
    topology.add_global_store(RATES, "s", "rates-topic", "p", Forwards, key=str, value=int)
    driver = topology_driver(topology)

    with pytest.raises(ProcessingError, match="processor of a global store at 's' forwarded"):
        driver.create_input_topic("rates-topic").pipe_input("a", 1)


def test_the_processor_of_a_global_store_cannot_schedule() -> None:
    class Schedules(Maintains):
        def init(self, context: ProcessorContext[None, None]) -> None:
            context.schedule(1, PunctuationType.WALL_CLOCK_TIME, print)

    topology = Topology()
    topology.add_global_store(RATES, "s", "rates-topic", "p", Schedules, key=str, value=int)

    with pytest.raises(TopologyError, match="'s' made a schedule, but it only follows its topic"):
        TopologyTestDriver(topology)
