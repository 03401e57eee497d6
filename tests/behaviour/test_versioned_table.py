"""Behaviour of versioned tables, and of versioned and forgetting stores in processors."""

from __future__ import annotations

import pytest

from headrace import (
    Materialized,
    Processor,
    ProcessorContext,
    Record,
    Stores,
    StreamsBuilder,
    TopologyError,
    ValueAndTimestamp,
    VersionedRecord,
)
from headrace.testing import DriverFactory, TopologyTestDriver

VERSIONED = Materialized("versions", history_retention=100)


def dropped(driver: TopologyTestDriver) -> float:
    return sum(n for name, n in driver.metrics().items() if "dropped-records-total" in str(name))


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_table_that_is_versioned_can_be_read_as_of_a_time(
    topology_driver: DriverFactory, partitions: int
) -> None:
    builder = StreamsBuilder()
    builder.table("in", key=str, value=int, materialized=VERSIONED)
    driver = topology_driver(builder.build(), partitions=partitions)

    topic = driver.create_input_topic("in")
    for value, timestamp in ((1, 10), (3, 30), (2, 20)):
        topic.pipe_input("k", value, timestamp=timestamp)

    store = driver.get_versioned_key_value_store("versions")
    assert store.get("k") == VersionedRecord(3, 30)
    assert store.get("k", as_of=25) == VersionedRecord(2, 20)
    assert store.get("k", 5) is None


def test_updates_that_are_too_old_go_nowhere_and_are_counted(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.to_table(materialized=VERSIONED).to_stream().to("out")
    driver = topology_driver(builder.build())

    topic = driver.create_input_topic("in")
    for value, timestamp in ((1, 200), (2, 100), (3, 99)):
        topic.pipe_input("k", value, timestamp=timestamp)

    assert driver.create_output_topic("out").read_values_to_list() == [1, 2]
    assert dropped(driver) == 1


def test_a_global_table_cannot_be_versioned() -> None:
    with pytest.raises(TopologyError, match="cannot be versioned"):
        StreamsBuilder().global_table("in", key=str, value=int, materialized=VERSIONED)


HISTORY = Stores.versioned_key_value("history", str, int, history_retention=100)


class Remembers(Processor[str, int, str, int]):
    """Puts each value, and forwards what was valid ten milliseconds before."""

    def init(self, context: ProcessorContext[str, int]) -> None:
        super().init(context)
        self.history = context.get_state_store(HISTORY)

    def process(self, record: Record[str, int]) -> None:
        if record.value is None:
            self.history.delete(record.key, record.timestamp)
        else:
            self.history.put(record.key, record.value, record.timestamp)
        before = self.history.get(record.key, record.timestamp - 10)
        if before is not None:
            self.context.forward(record.with_value(before.value))


def test_a_processor_reads_what_was_valid_before(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.process(Remembers, stores=[HISTORY], key=str, value=int).to("out")
    driver = topology_driver(builder.build())

    topic = driver.create_input_topic("in")
    for value, timestamp in ((1, 10), (2, 20), (None, 30), (4, 45), (5, 29)):
        topic.pipe_input("k", value, timestamp=timestamp)

    assert driver.create_output_topic("out").read_values_to_list() == [1, 2, 1]


FRESH = Stores.timestamped_key_value("fresh", str, int, ttl=10, caching=True)
RECENT = Stores.lru_map("recent", str, int, capacity=2)


class Keeps(Processor[str, int, str, int]):
    """Puts each value into two stores that forget."""

    def process(self, record: Record[str, int]) -> None:
        recent = self.context.get_state_store(RECENT)
        recent.put(record.key, record.value)
        self.context.get_state_store(FRESH).put(
            record.key, ValueAndTimestamp(record.value, record.timestamp)
        )


def test_stores_that_forget_do(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).process(Keeps, stores=[FRESH, RECENT])
    driver = topology_driver(builder.build())

    topic = driver.create_input_topic("in")
    for key, timestamp in (("a", 1), ("b", 2), ("c", 3), ("a", 9), ("d", 12)):
        topic.pipe_input(key, timestamp, timestamp=timestamp)

    assert dict(driver.get_key_value_store("recent").all()) == {"a": 9, "d": 12}
    assert dict(driver.get_key_value_store("fresh").all()) == {"a": 9, "c": 3, "d": 12}
    assert driver.get_key_value_store("fresh").get("b") is None
