"""Behaviour of schedules: which clock, when, cancelled, and renewed with their processor."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from headrace import (
    ProcessingError,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Topology,
    TopologyError,
)
from headrace.testing import DriverFactory, TopologyTestDriver

STREAM, WALL = PunctuationType.STREAM_TIME, PunctuationType.WALL_CLOCK_TIME


class Ticker(Processor[str, int, str, int]):
    """Schedules in `init`, and forwards the time of each punctuation."""

    def __init__(self, kind: PunctuationType, interval: int, start_time: int | None = None) -> None:
        self.arguments = interval, kind
        self.start_time = start_time

    def init(self, context: ProcessorContext[str, int]) -> None:
        super().init(context)
        self.schedule = context.schedule(*self.arguments, self.tick, start_time=self.start_time)

    def process(self, record: Record[str, int]) -> None: ...

    def tick(self, timestamp: int) -> None:
        self.context.forward(Record("tick", timestamp, timestamp))


def topology_of(supplier: Callable[[], Processor[Any, Any, Any, Any]]) -> Topology:
    topology = Topology().add_source("source", "in", key=str, value=int)
    topology.add_processor("p", supplier, "source")
    return topology.add_sink("sink", "out", "p", key=str, value=int)


def ticks(driver: TopologyTestDriver) -> list[int]:
    return driver.create_output_topic("out").read_values_to_list()


def pipe_times(driver: TopologyTestDriver, *times: int) -> None:
    topic = driver.create_input_topic("in")
    for time in times:
        topic.pipe_input("a", 1, timestamp=time)


def test_stream_time_fires_with_the_first_record_and_then_at_most_once_per_interval(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(topology_of(partial(Ticker, STREAM, 10)))

    pipe_times(driver, 42, 42, 51, 52, 61, 65, 71, 72, 95, 101, 102)

    assert ticks(driver) == [42, 51, 61, 71, 95, 101]


def test_stream_time_does_not_move_with_the_wall_clock(topology_driver: DriverFactory) -> None:
    driver = topology_driver(topology_of(partial(Ticker, STREAM, 10)))

    driver.advance_wall_clock_time("1h")

    assert ticks(driver) == []


def test_the_wall_clock_fires_one_interval_from_now_and_once_per_advance(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(topology_of(partial(Ticker, WALL, 10)))

    for step in (5, 9, 1, 20, 5):
        driver.advance_wall_clock_time(step)

    assert ticks(driver) == [14, 35, 40]


def test_the_wall_clock_does_not_move_with_records(topology_driver: DriverFactory) -> None:
    driver = topology_driver(topology_of(partial(Ticker, WALL, 10)))

    pipe_times(driver, 100, 200)

    assert ticks(driver) == []


def test_missed_intervals_are_not_made_up_for(topology_driver: DriverFactory) -> None:
    driver = topology_driver(topology_of(partial(Ticker, WALL, 100)))

    for step in (99, 1, 99, 1, 801, 1, 98):
        driver.advance_wall_clock_time(step)

    assert ticks(driver) == [100, 200, 1001, 1100]


def test_a_start_time_anchors_the_grid(topology_driver: DriverFactory) -> None:
    wall = topology_driver(topology_of(partial(Ticker, WALL, 10, 3)), initial_wall_clock_time=15)
    stream = topology_driver(topology_of(partial(Ticker, STREAM, 10, 25)))

    for _ in range(20):
        wall.advance_wall_clock_time(1)
    pipe_times(stream, 20, 26, 34, 36)

    assert ticks(wall) == [23, 33]
    assert ticks(stream) == [26, 36]


def test_a_schedule_continues_when_its_processor_is_renewed(topology_driver: DriverFactory) -> None:
    driver = topology_driver(topology_of(partial(Ticker, WALL, 10)), commit_each_record=False)

    for _ in range(6):
        driver.advance_wall_clock_time(4)
        driver.commit()

    assert ticks(driver) == [12, 20]


def test_two_schedules_of_one_kind_are_distinguished_by_their_order(
    topology_driver: DriverFactory,
) -> None:
    class Two(Processor[str, int, str, int]):
        def init(self, context: ProcessorContext[str, int]) -> None:
            super().init(context)
            for name in ("first", "second"):
                context.schedule(10, STREAM, partial(self.tick, name))

        def tick(self, name: str, timestamp: int) -> None:
            self.context.forward(Record(name, timestamp, timestamp))

        def process(self, record: Record[str, int]) -> None: ...

    driver = topology_driver(topology_of(Two))

    pipe_times(driver, 5, 15)

    expected = [("first", 5), ("second", 5), ("first", 15), ("second", 15)]
    assert driver.create_output_topic("out").read_key_values_to_list() == expected


def test_a_schedule_can_be_cancelled_in_its_own_callback_for_good(
    topology_driver: DriverFactory,
) -> None:
    class Once(Ticker):
        def tick(self, timestamp: int) -> None:
            super().tick(timestamp)
            self.schedule.cancel()

    driver = topology_driver(topology_of(partial(Once, STREAM, 10)))

    pipe_times(driver, 1, 20, 40)

    assert ticks(driver) == [1]


def test_a_schedule_can_be_cancelled_before_it_fires(topology_driver: DriverFactory) -> None:
    class Never(Ticker):
        def init(self, context: ProcessorContext[str, int]) -> None:
            super().init(context)
            self.schedule.cancel()

    driver = topology_driver(topology_of(partial(Never, STREAM, 10)))

    pipe_times(driver, 1, 20)

    assert ticks(driver) == []


class SchedulesInProcess(Processor[str, int, str, int]):
    """Schedules its method when the first record comes."""

    def process(self, record: Record[str, int]) -> None:
        if record.value == 0:
            self.schedule = self.context.schedule(10, WALL, self.tick)

    def tick(self, timestamp: int) -> None:
        self.context.forward(Record("tick", timestamp, timestamp))


def test_a_method_scheduled_while_processing_is_called_on_the_renewed_processor(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(topology_of(SchedulesInProcess))

    driver.create_input_topic("in").pipe_input("a", 0)
    driver.advance_wall_clock_time(10)
    driver.create_input_topic("in").pipe_input("a", 1)
    driver.advance_wall_clock_time(10)

    assert ticks(driver) == [10, 20]


def test_a_schedule_made_while_processing_can_be_cancelled(topology_driver: DriverFactory) -> None:
    class Cancels(SchedulesInProcess):
        def process(self, record: Record[str, int]) -> None:
            super().process(record)
            if record.value == 1:
                self.schedule.cancel()

    driver = topology_driver(topology_of(Cancels), commit_each_record=False)

    driver.create_input_topic("in").pipe_input("a", 0)
    driver.advance_wall_clock_time(10)
    driver.create_input_topic("in").pipe_input("a", 1)
    driver.advance_wall_clock_time(10)

    assert ticks(driver) == [10]


def test_only_a_method_can_be_scheduled_while_processing(topology_driver: DriverFactory) -> None:
    class Lambda(Processor[str, int, str, int]):
        def process(self, record: Record[str, int]) -> None:
            self.context.schedule(10, STREAM, lambda timestamp: None)

    driver = topology_driver(topology_of(Lambda))

    with pytest.raises(ProcessingError) as caught:
        pipe_times(driver, 1)

    assert isinstance(caught.value.__cause__, TopologyError)
    assert "schedule one, or schedule in `init`" in str(caught.value)


def test_a_schedule_that_a_renewed_init_omits_ends(topology_driver: DriverFactory) -> None:
    made: list[int] = []

    class FirstOnly(Ticker):
        def init(self, context: ProcessorContext[str, int]) -> None:
            made.append(1)
            if len(made) == 1:
                super().init(context)

    driver = topology_driver(topology_of(partial(FirstOnly, WALL, 10)))

    driver.create_input_topic("in").pipe_input("a", 1)
    driver.advance_wall_clock_time(10)

    assert ticks(driver) == []


def test_there_is_no_record_in_a_punctuation(topology_driver: DriverFactory) -> None:
    seen: list[Any] = []

    class Looks(Ticker):
        def tick(self, timestamp: int) -> None:
            seen.append(self.context.record_metadata)

    driver = topology_driver(topology_of(partial(Looks, STREAM, 10)))

    pipe_times(driver, 1)

    assert seen == [None]


def test_a_punctuation_that_fails_names_step_and_time(topology_driver: DriverFactory) -> None:
    class Fails(Ticker):
        def tick(self, timestamp: int) -> None:
            raise ValueError("no")

    driver = topology_driver(topology_of(partial(Fails, STREAM, 10)))

    with pytest.raises(
        ProcessingError, match="Step 'p' failed at the punctuation of 7: ValueError: no"
    ) as caught:
        pipe_times(driver, 7)

    assert (caught.value.node, caught.value.topic, caught.value.offset) == ("p", None, -1)


def test_a_child_that_fails_in_a_punctuation_is_reported_once(
    topology_driver: DriverFactory,
) -> None:
    class Child(Processor[str, int, str, int]):
        def process(self, record: Record[str, int]) -> None:
            raise ValueError("no")

    topology = topology_of(partial(Ticker, STREAM, 10)).add_processor("child", Child, "p")
    driver = topology_driver(topology)

    with pytest.raises(ProcessingError, match="Step 'child' failed at the punctuation"):
        pipe_times(driver, 7)


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        ((1.5, STREAM, print), "`interval` is 1.5, which is not a duration"),
        ((None, STREAM, print), "`interval` is None, which is not a duration"),
        ((10, "wall_clock_time", print), "with type 'wall_clock_time'. Use `PunctuationType"),
        ((10, STREAM, None), "to call None, which is not callable"),
    ],
)
@pytest.mark.parametrize("in_init", [True, False])
def test_a_schedule_of_a_wrong_type_is_refused_where_it_is_made(
    arguments: tuple[Any, Any, Any], refusal: str, *, in_init: bool
) -> None:
    class Wrong(Processor[str, int, str, int]):
        def init(self, context: ProcessorContext[str, int]) -> None:
            super().init(context)
            if in_init:
                context.schedule(*arguments)

        def process(self, record: Record[str, int]) -> None:
            self.context.schedule(*arguments)

    with pytest.raises((TopologyError, ProcessingError)) as caught:
        pipe_times(TopologyTestDriver(topology_of(Wrong)), 1)

    error = caught.value if in_init else caught.value.__cause__
    assert isinstance(error, TopologyError)
    assert str(error).startswith("Processor 'p' made a schedule ")
    assert refusal in str(error)


def test_a_schedule_from_a_time_of_a_wrong_type_is_refused() -> None:
    with pytest.raises(TopologyError, match="'p' made a schedule from '12:00'"):
        TopologyTestDriver(topology_of(partial(Ticker, STREAM, 10, "12:00")))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("interval", "start", "message"),
    [
        (0, None, "'p' scheduled every 0 ms. Use one millisecond or more"),
        (5, -1, "'p' scheduled from -1 on. Use a time of zero or more"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(
    interval: int, start: int | None, message: str
) -> None:
    with pytest.raises(TopologyError, match=message):
        TopologyTestDriver(topology_of(partial(Ticker, STREAM, interval, start)))
