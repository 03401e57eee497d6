"""Task: records in, records out, and its task state."""

from __future__ import annotations

import re
from typing import Any

import pytest

from headrace import (
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    Topology,
    UsePartitionTimeOnInvalidTimestamp,
    ValueTransformerWithKey,
)
from headrace.engine.settings import TaskSettings
from headrace.engine.task import Task
from headrace.engine.task_state import TaskState
from headrace.processors.api import CommonContext
from headrace.processors.handlers import built_in_handler
from headrace.records import ConsumerRecord, Headers
from headrace.state.maps import MemoryStores
from headrace.topology.lower import TopologyDefaults


def task_of(topology: Topology, task_state: TaskState | None = None, **options: Any) -> Task:
    """Return a task of every subtopology."""
    subtopologies = topology.lowered(TopologyDefaults()).subtopologies
    settings = options.pop("settings", TaskSettings())
    data = options.pop("data", None) or MemoryStores()
    return Task(subtopologies, settings, data, task_state=task_state, **options)


def record(topic: str, offset: int, timestamp: int, value: bytes = bytes(8)) -> ConsumerRecord:
    return ConsumerRecord(topic, 0, offset, timestamp, b"k", value)


def at(topic: str, *times: int) -> list[ConsumerRecord]:
    return [record(topic, offset, time) for offset, time in enumerate(times)]


def two_inputs() -> Topology:
    builder = StreamsBuilder()
    builder.stream("a", key=str, value=int).merge(builder.stream("b", key=str, value=int)).to("out")
    return builder.build()


def one_input(**options: Any) -> Topology:
    builder = StreamsBuilder()
    builder.stream("a", key=str, value=int, **options).to("out")
    return builder.build()


def times(task: Task) -> list[int]:
    return [output.timestamp for output in task.take_outputs()]


# -- which record is next ---------------------------------------------------------------------


def test_the_smallest_head_is_next_and_no_queue_is_sorted() -> None:
    task = task_of(two_inputs())
    task.enqueue("a", at("a", 1, 3, 5))
    task.enqueue("b", at("b", 2, 4, 6))
    task.process(limit=1), task.process(limit=1)

    task.enqueue("a", at("a", 2, 4))
    task.process()

    assert times(task) == [1, 2, 3, 4, 5, 2, 4, 6]


def test_of_equal_heads_the_first_topic_is_next() -> None:
    task = task_of(two_inputs())
    task.enqueue("b", [record("b", 0, 5, bytes([0] * 7 + [2]))])
    task.enqueue("a", [record("a", 0, 5, bytes([0] * 7 + [1]))])

    task.process()

    assert [output.value for output in task.take_outputs()] == [
        b"\0" * 7 + b"\1",
        b"\0" * 7 + b"\2",
    ]


def test_stream_time_is_the_highest_time_taken() -> None:
    task = task_of(two_inputs())
    task.enqueue("a", at("a", 5, 2))

    seen = [task.stream_time]
    while task.process(limit=1):
        seen.append(task.stream_time)

    assert seen == [-1, 5, 5]


def test_an_input_that_has_more_holds_the_others_back() -> None:
    task = task_of(two_inputs())
    task.enqueue("a", at("a", 1, 3))
    task.enqueue("b", at("b", 2), has_more=True)

    taken = task.process()
    held = times(task)
    task.enqueue("b", at("b", 4))
    task.process()

    assert (taken, held, times(task)) == (2, [1, 2], [3, 4])


def test_with_a_negative_idle_time_nothing_is_waited_for() -> None:
    task = task_of(two_inputs(), settings=TaskSettings(max_task_idle_ms=-1))
    task.enqueue("b", [], has_more=True)
    task.enqueue("a", at("a", 1, 3))

    assert task.process() == 2


def test_a_positive_idle_time_waits_for_records_that_may_come() -> None:
    task = task_of(two_inputs(), settings=TaskSettings(max_task_idle_ms=100))
    task.enqueue("a", at("a", 1))

    before = task.process()
    task.advance_wall_clock(99)
    still = task.process()
    task.advance_wall_clock(100)

    assert (before, still, task.process()) == (0, 0, 1)


def test_a_single_input_is_never_waited_for() -> None:
    task = task_of(one_input(), settings=TaskSettings(max_task_idle_ms=100))
    task.enqueue("a", at("a", 1, 2), has_more=True)

    assert task.process() == 2


@pytest.mark.parametrize("step_by_step", [True, False])
def test_an_unreadable_record_is_left_out_in_both_ways_of_processing(step_by_step: bool) -> None:
    settings = TaskSettings(on_deserialization_error=built_in_handler("continue"))
    task = task_of(
        one_input(timestamp_extractor=UsePartitionTimeOnInvalidTimestamp()), settings=settings
    )
    good, bad = bytes(8), b"bad"
    task.enqueue(
        "a",
        [
            record("a", n, t, v)
            for n, (t, v) in enumerate([(5, good), (6, bad), (-1, good), (9, good), (-1, good)])
        ],
    )

    if step_by_step:
        while task.process(limit=1):
            pass
    else:
        task.process()

    assert times(task) == [5, 5, 9, 9]
    assert (task.processed, task.dropped) == (
        4,
        {("KSTREAM-SOURCE-0000000000", "deserialization"): 1},
    )


def test_processing_continues_with_a_record_that_was_decoded_before() -> None:
    task = task_of(two_inputs())
    task.enqueue("a", at("a", 1, 3))
    task.enqueue("b", at("b", 2), has_more=True)
    task.process()

    task.enqueue("b", [], has_more=False)
    task.process()

    assert times(task) == [1, 2, 3]


# -- topics -------------------------------------------------------------------------------------


def test_a_task_lists_the_topics_it_reads() -> None:
    task = task_of(one_input())

    assert (task.reads("a"), task.reads("b")) == (True, False)
    with pytest.raises(StreamsError, match="Task 0_0 does not read topic 'b'"):
        task.enqueue("b", [])


def test_a_topic_of_a_pattern_is_read_when_it_comes() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("x-.*"), key=str, value=int).to("out")
    task = task_of(builder.build())

    task.enqueue("x-2", at("x-2", 2))
    task.enqueue("x-1", at("x-1", 3), partition=4)
    task.process()

    assert (times(task), task.reads("y")) == ([2, 3], False)


# -- task state -------------------------------------------------------------------------------


def test_stream_time_and_partition_times_are_remembered() -> None:
    topology = one_input(timestamp_extractor=UsePartitionTimeOnInvalidTimestamp())
    first = task_of(topology)
    first.enqueue("a", at("a", 7, 5))
    first.process()

    second = task_of(topology, first.save())
    second.enqueue("a", at("a", -1))
    second.process()

    assert (times(second), second.stream_time) == ([7], 7)


def test_the_time_of_a_partition_that_sends_nothing_now_is_kept() -> None:
    builder = StreamsBuilder()
    builder.stream(
        re.compile("x-.*"),
        key=str,
        value=int,
        timestamp_extractor=UsePartitionTimeOnInvalidTimestamp(),
    ).to("out")
    topology = builder.build()
    first = task_of(topology)
    first.enqueue("x-1", at("x-1", 7))
    first.process()

    third = task_of(topology, task_of(topology, first.save()).save())
    third.enqueue("x-1", at("x-1", -1))
    third.process()

    assert times(third) == [7]


def test_records_that_were_held_back_go_first_next_time() -> None:
    topology = two_inputs()
    first = task_of(topology)
    first.enqueue("a", [ConsumerRecord("a", 0, 0, 3, b"k", None, Headers([("h", b"1")]))])
    first.enqueue("b", [], has_more=True)
    first.process()

    second = task_of(topology, first.save())
    second.enqueue("b", at("b", 1))
    second.process()

    outputs = second.take_outputs()
    assert [output.timestamp for output in outputs] == [1, 3]
    assert outputs[1].headers == [("h", b"1")]


def test_how_long_a_task_has_waited_is_remembered() -> None:
    settings = TaskSettings(max_task_idle_ms=100)
    first = task_of(two_inputs(), settings=settings, wall_clock=50)
    first.enqueue("a", at("a", 1))
    first.process()

    second = task_of(two_inputs(), first.save(), settings=settings, wall_clock=150)

    assert second.process() == 1


# -- commits and clocks -------------------------------------------------------------------------


class Ticks(Processor[str, int, str, int]):
    """Forwards the time of each punctuation."""

    def init(self, context: ProcessorContext[str, int]) -> None:
        super().init(context)
        context.schedule(10, PunctuationType.WALL_CLOCK_TIME, self.tick)

    def tick(self, timestamp: int) -> None:
        self.context.forward(Record("tick", timestamp, timestamp))

    def process(self, record: Record[str, int]) -> None:
        self.context.commit()


def ticking() -> Topology:
    topology = Topology().add_source("source", "a", key=str, value=int)
    topology.add_processor("p", Ticks, "source")
    return topology.add_sink("sink", "out", "p", key=str, value=int)


def test_the_clock_moves_only_when_it_is_set() -> None:
    task = task_of(ticking(), wall_clock=100)

    fired = [task.advance_wall_clock(now) for now in (105, 110, 111, 120)]

    assert fired == [False, True, False, True]
    assert times(task) == [110, 120]


def test_a_schedule_continues_in_the_next_task() -> None:
    first = task_of(ticking(), wall_clock=100)
    first.commit()
    first.close()

    second = task_of(ticking(), first.save(), wall_clock=105)
    second.advance_wall_clock(110)

    assert times(second) == [110]


def test_a_commit_that_was_asked_for_is_noted_until_it_is_made() -> None:
    task = task_of(ticking())
    task.enqueue("a", at("a", 1))
    task.process()

    asked = task.commit_requested
    task.commit()

    assert (asked, task.commit_requested) == (True, False)


def test_a_schedule_of_a_transformer_fires_also_when_a_whole_queue_is_processed() -> None:
    ticks: list[int] = []

    class Schedules(ValueTransformerWithKey[str, int, int]):
        def init(self, context: CommonContext) -> None:
            super().init(context)
            context.schedule(10, PunctuationType.STREAM_TIME, ticks.append)

        def transform(self, key: str, value: int | None) -> int | None:
            return value

    builder = StreamsBuilder()
    builder.table("a", key=str, value=int).transform_values(Schedules, value=int)
    task = task_of(builder.build())
    task.enqueue("a", at("a", 1, 5, 12))

    task.process()

    assert ticks == [1, 12]


def test_settings_come_from_the_config() -> None:
    config = StreamsConfig(application_id="app", max_task_idle="5ms", statestore_cache_max_bytes=9)

    settings = TaskSettings.from_config(config, application_id="app")

    assert (settings.application_id, settings.max_task_idle_ms, settings.cache_max_bytes) == (
        "app",
        5,
        9,
    )
    assert settings.app_configs["application.id"] == "app"
