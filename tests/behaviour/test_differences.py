"""The differences of docs/differences.md that the scenario language cannot express."""

from __future__ import annotations

from collections.abc import Iterator

from headrace import (
    ConsumerRecord,
    EmitStrategy,
    Serdes,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    Topology,
)
from headrace.config.topology_defaults import topology_defaults
from headrace.engine.settings import TaskSettings
from headrace.engine.task import Task
from headrace.engine.task_state import TaskState
from headrace.state.maps import MemoryStores
from headrace.testing import DriverFactory


def opened(
    topology: Topology,
    data: MemoryStores,
    task_state: TaskState | None = None,
    *,
    partition: int = 0,
) -> Task:
    config = StreamsConfig(application_id="test", statestore_cache_max_bytes=0)
    return Task(
        topology.lowered(topology_defaults(config)).subtopologies,
        TaskSettings.from_config(config, application_id="test"),
        data,
        task_state=task_state,
        partition=partition,
        partitions_of=lambda topic: 4 if topic == "spread" else 1,
    )


def record(
    topic: str, key: str | None, timestamp: int, *, value: str = "v", partition: int = 0
) -> ConsumerRecord:
    encode = Serdes.string().serialize
    raw_key = None if key is None else encode(key)
    return ConsumerRecord(topic, partition, timestamp, timestamp, raw_key, encode(value))


def test_a_flat_map_that_fails_half_way_forwards_nothing_of_that_record(
    topology_driver: DriverFactory,
) -> None:
    def halves(value: str) -> Iterator[str]:
        yield value
        if value == "bad":
            raise ValueError(value)

    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).flat_map_values(halves, value=str).to("out")
    driver = topology_driver(builder.build(), processing_exception_handler="continue")

    driver.create_input_topic("in").pipe_key_value_list([("a", "bad"), ("a", "good")])

    assert driver.create_output_topic("out").read_values_to_list() == ["good"]


def test_a_late_record_stays_late_after_a_restart() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=str, value=str).group_by_key()
    grouped.windowed_by(TimeWindows(10)).count().to_stream().to("out")
    topology, data = builder.build(), MemoryStores()
    before = opened(topology, data)
    before.enqueue("in", [record("in", "a", 25)])
    before.process()
    before.commit()
    before.close()

    after = opened(topology, data, before.save())
    after.enqueue("in", [record("in", "a", 3)])
    after.process()

    assert after.take_outputs() == []
    assert sum(after.dropped.values()) == 1


def test_closed_windows_are_emitted_without_waiting_for_the_wall_clock(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=str, value=str).group_by_key()
    windowed = grouped.windowed_by(TimeWindows(10)).emit_strategy(EmitStrategy.on_window_close())
    windowed.count().to_stream().to("out")
    driver = topology_driver(builder.build())

    topic = driver.create_input_topic("in")
    for timestamp in (0, 10, 20):
        topic.pipe_input("a", "v", timestamp=timestamp)

    assert driver.create_output_topic("out").queue_size == 2


def test_records_of_equal_timestamp_are_taken_by_topic() -> None:
    builder = StreamsBuilder()
    one = builder.stream("b", key=str, value=str)
    one.merge(builder.stream("a", key=str, value=str)).to("out")
    task = opened(builder.build(), MemoryStores())

    task.enqueue("b", [record("b", "k", 5, value="of b")])
    task.enqueue("a", [record("a", "k", 5, value="of a")])
    task.process()

    assert [output.value for output in task.take_outputs()] == [b"of a", b"of b"]


def test_a_record_without_a_key_goes_to_the_partition_of_its_task() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).to("spread")
    task = opened(builder.build(), MemoryStores(), partition=3)

    task.enqueue("in", [record("in", None, 1, partition=3)])
    task.process()

    assert [output.partition for output in task.take_outputs()] == [3]
