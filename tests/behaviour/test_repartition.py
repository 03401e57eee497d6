"""Behaviour of `repartition`, and of several partitions."""

from __future__ import annotations

import re

import pytest

from headrace import (
    KeyValueStore,
    Processor,
    ProcessorContext,
    Record,
    Stores,
    StreamsBuilder,
    TopologyError,
)
from headrace.serdes.partitioner import partition_for_key
from headrace.testing import DriverFactory

COUNTS = Stores.key_value("counts", str, int)


class CountByKey(Processor[str, int, str, str]):
    """Counts per key in a store, and forwards the task it ran in."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        self.counts: KeyValueStore[str, int] = context.get_state_store(COUNTS)

    def process(self, record: Record[str, int]) -> None:
        self.counts.put(record.key, (self.counts.get(record.key) or 0) + 1)
        self.context.forward(record.with_value(self.context.task_id))


def test_a_repartition_moves_each_record_to_the_partition_of_its_new_key(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    (
        builder.stream("in", key=str, value=str)
        .select_key(lambda _, value: value, key=str)
        .repartition()
        .map_values(lambda value: 1, value=int)
        .process(CountByKey, stores=[COUNTS], key=str, value=str)
        .to("out")
    )
    driver = topology_driver(builder.build(), partitions=3)

    names = ["ann", "bob", "cat", "dan", "eve"]
    driver.create_input_topic("in").pipe_key_value_list([("same", name) for name in names])

    read = driver.create_output_topic("out").read_key_values_to_map()
    assert read == {name: f"1_{partition_for_key(name.encode(), 3)}" for name in names}


def test_every_partition_has_a_store_of_its_own(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.process(CountByKey, stores=[COUNTS], key=str, value=str).to("out")
    driver = topology_driver(builder.build(), partitions=3)

    names = ["ann", "bob", "cat", "dan", "eve", "ann"]
    driver.create_input_topic("in").pipe_key_value_list([(name, 1) for name in names])

    store = driver.get_state_store("counts")
    held = [[key for key, _ in subtopology.all()] for subtopology in store.partitions]
    expected = [
        sorted({name for name in names if partition_for_key(name.encode(), 3) == number})
        for number in range(3)
    ]
    assert held == expected
    assert store.get("ann") == 2


def test_tasks_are_named_by_sub_topology_and_partition(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).repartition().to("out")

    driver = topology_driver(builder.build(), partitions=2)

    tasks = [dict(name.tags)["task-id"] for name in driver.metrics() if name.name[0] == "p"]
    assert tasks == ["0_0", "0_1", "1_0", "1_1", "-1_0"]


def test_a_repartition_may_have_a_number_of_partitions_of_its_own(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).repartition(partitions=4).process(
        CountByKey, stores=[COUNTS], key=str, value=str
    ).to("out")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input("eve", 1)

    expected = f"1_{partition_for_key(b'eve', 4)}"
    assert driver.create_output_topic("out").read_value() == expected


def test_a_repartition_may_have_a_partitioner(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).repartition(
        partitioner=lambda _topic, _key, value, _count: value
    ).process(CountByKey, stores=[COUNTS], key=str, value=str).to("out")
    driver = topology_driver(builder.build(), partitions=3)

    driver.create_input_topic("in").pipe_key_value_list([("a", 2), ("b", 0)])

    assert [partition_for_key(key, 3) for key in (b"a", b"b")] != [2, 0], "without a partitioner"
    assert driver.create_output_topic("out").read_values_to_list() == ["1_2", "1_0"]


def test_a_repartition_leaves_out_records_without_a_key_and_counts_none(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).repartition(name="moved").to("out")
    driver = topology_driver(builder.build(), application_id="app")

    driver.create_input_topic("in").pipe_key_value_list([(None, 1), ("a", 2)])

    counted = {str(name): count for name, count in driver.metrics().items()}
    assert driver.create_output_topic("out").read_key_values_to_list() == [("a", 2)]
    assert driver.produced_topic_names() == {"app-moved-repartition", "out"}
    assert counted["dropped-records-total"] == 0


def test_a_left_join_after_it_keeps_records_without_a_key(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    table = builder.table("table", key=str, value=int)
    keyed = builder.stream("in", key=str, value=int).select_key(lambda key, _: key, key=str)
    keyed.filter(lambda *_: True).left_join(
        table, lambda left, right: left if right is None else right, value=int
    ).to("out")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input(None, 1)

    assert driver.create_output_topic("out").read_key_value() == (None, 1)


def test_a_repartition_into_no_partition_is_refused() -> None:
    stream = StreamsBuilder().stream("in", key=str, value=int)

    with pytest.raises(TopologyError, match="`partitions` of `repartition` is 0"):
        stream.repartition(partitions=0)


def test_a_pattern_does_not_read_what_a_repartition_writes(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    pattern = re.compile("in|.*-read-by-itself-repartition")  # no topic of another test
    stream = builder.stream(pattern, key=str, value=int)
    stream.repartition(name="read-by-itself").to("out")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input("a", 1)

    assert driver.create_output_topic("out").read_key_values_to_list() == [("a", 1)]
