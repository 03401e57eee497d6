"""The records that a task measures, and the figures that it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

import pytest

from headrace import StreamsBuilder, StreamsConfig, Topology
from headrace.config.topology_defaults import topology_defaults
from headrace.engine.samples import CYCLE, LATENESS_SECONDS, MEASURED, SourceSamples
from headrace.engine.settings import TaskSettings
from headrace.engine.task import Task
from headrace.records import NO_HEADERS, ConsumerRecord
from headrace.state.maps import MemoryStores

SOURCE = "KSTREAM-SOURCE-0000000000"


def copying() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).to("out")
    return builder.build()


def opened(topology: Topology, timer: Callable[[], float] | None) -> Task:
    config = StreamsConfig(application_id="app", statestore_cache_max_bytes=0)
    lowered = topology.lowered(topology_defaults(config))
    settings = TaskSettings.from_config(config, application_id="app")
    return Task(lowered.subtopologies, settings, MemoryStores(), timer=timer)


def records(
    offsets: Iterable[int], *, topic: str = "in", time: Callable[[int], int] = lambda offset: offset
) -> list[ConsumerRecord]:
    return [
        ConsumerRecord(topic, 0, offset, time(offset), b"k", b"%d" % offset, NO_HEADERS)
        for offset in offsets
    ]


def ticking() -> Callable[[], float]:
    """Return a timer that says one second more at each call."""
    ticks = count()
    return lambda: float(next(ticks))


def measured(task: Task) -> int:
    return sum(samples.seconds.total for samples in task.take_samples().values())


def test_some_records_of_each_cycle_are_measured() -> None:
    task = opened(copying(), ticking())

    task.enqueue("in", records(range(3 * CYCLE)))
    task.process()

    samples = task.take_samples()[SOURCE]
    assert samples.seconds.total == 3 * MEASURED
    assert samples.seconds.sum == 3 * MEASURED
    assert task.take_samples() == {}


@pytest.mark.parametrize("size", [1, 7, MEASURED, MEASURED + 1, 1_000])
def test_each_batch_has_measured_records(size: int) -> None:
    task = opened(copying(), ticking())

    for batch in range(5):
        task.enqueue("in", records(range(batch * size, (batch + 1) * size)))
        task.process()
        assert measured(task) == min(size, MEASURED)


def test_the_measured_records_are_at_another_place_in_each_batch() -> None:
    places = []
    for batch in range(20):
        task = opened(copying(), ticking())
        task.enqueue("in", records(range(batch * 100, (batch + 1) * 100)))
        places.append(task._inputs.place_of(MEASURED))

    assert len(set(places)) == 20
    assert max(places) <= 100 - MEASURED


def test_a_limit_of_records_is_kept() -> None:
    task = opened(copying(), ticking())
    task.enqueue("in", records(range(100)))

    assert [task.process(10), task.process(50), task.process()] == [10, 50, 40]
    assert measured(task) == 3 * MEASURED


def test_measured_records_give_the_same_output_in_the_same_order() -> None:
    builder = StreamsBuilder()
    one = builder.stream("in", key=str, value=str)
    one.merge(builder.stream("other", key=str, value=str)).to("out")
    outputs = []
    for timer in (None, ticking()):
        task = opened(builder.build(), timer)
        task.enqueue("in", records(range(2 * CYCLE), time=lambda offset: 3 * offset))
        task.enqueue("other", records(range(CYCLE), topic="other", time=lambda offset: offset))
        assert task.process() == 3 * CYCLE
        outputs.append(task.take_outputs())

    assert outputs[0] == outputs[1]


def test_the_lateness_is_the_time_behind_stream_time() -> None:
    task = opened(copying(), ticking())

    task.enqueue("in", records([0, 1, 2, 3], time=lambda offset: [1_000, 500, 2_000, 0][offset]))
    task.process()

    lateness = task.take_samples()[SOURCE].lateness
    assert lateness.sum == 2.5
    assert lateness.counts[LATENESS_SECONDS.index(0.0)] == 2


def test_a_record_that_fails_is_not_measured() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=str)
    stream.map_values(lambda value: 1 // int(value), value=int).to("out")
    config = StreamsConfig(application_id="app", processing_exception_handler="continue")
    lowered = builder.build().lowered(topology_defaults(config))
    settings = TaskSettings.from_config(config, application_id="app")
    task = Task(lowered.subtopologies, settings, MemoryStores(), timer=ticking())

    task.enqueue("in", records([0, 1, 2]))
    task.process()

    assert task.dropped_by_node() != {}
    assert measured(task) == 3  # a handler has skipped it: its way was short


def test_samples_of_two_tasks_are_added() -> None:
    one, other = SourceSamples(), SourceSamples()
    other.seconds.add([1.0], (2.0,))

    one.merge(other)

    assert one == other
