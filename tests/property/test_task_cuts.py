"""Cutting the input of a task into batches changes nothing that it writes, with the cache off.

At each cut the task commits, saves and closes; another is opened over the same entries with what
the first remembered, as Spark does between two batches. To test an operation, add a program to
`PROGRAMS`. It reads the topics ``a`` and ``b`` (keys: text, values: whole numbers, both may be
None) and runs in one task, so it has no repartition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import (
    EmitStrategy,
    JoinWindows,
    KeyValueStore,
    KStream,
    KTable,
    Materialized,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    UnlimitedWindows,
    UsePartitionTimeOnInvalidTimestamp,
    ValueTransformerWithKey,
)
from headrace.engine.settings import TaskSettings
from headrace.engine.task import Task
from headrace.engine.task_state import TaskState, decode_task_state, encode_task_state
from headrace.processors.api import CommonContext
from headrace.processors.handlers import built_in_handler
from headrace.records import ConsumerRecord, Headers, ProducerRecord
from headrace.serdes import Serdes
from headrace.state.maps import MemoryStores
from headrace.topology.lower import TopologyDefaults
from headrace.topology.topology import Topology
from tests.effort import examples

SETTINGS = TaskSettings(
    on_deserialization_error=built_in_handler("continue"),
    on_processing_error=built_in_handler("continue"),
)

DEFAULTS = TopologyDefaults(optimizations=frozenset({"single.store.self.join"}))

# -- programs -----------------------------------------------------------------------------------


@dataclass
class Inputs:
    """The streams a program may read."""

    builder: StreamsBuilder = field(default_factory=StreamsBuilder)

    def stream(self, topic: str, **options: Any) -> KStream[str, int]:
        return self.builder.stream(topic, key=str, value=int, **options)

    def table(self, topic: str, **options: Any) -> KTable[str, int]:
        return self.builder.table(topic, key=str, value=int, **options)


def stateless(inputs: Inputs) -> None:
    stream = inputs.stream("a").merge(inputs.stream("b"))
    large = stream.filter(lambda _, value: value is not None and value > 0)
    large.map(lambda key, value: (key, value * 2), key=str, value=int).to("large")
    stream.flat_map_values(lambda value: range(value or 0), value=int).to("each")


def failing(inputs: Inputs) -> None:
    inputs.stream("a").map_values(lambda value: 10 // value, value=int).to("out")


def branches(inputs: Inputs) -> None:
    found = (
        inputs.stream("a")
        .split(name="by-")
        .branch(lambda _, value: value is None, "none")
        .branch(lambda _, value: value % 2 == 0, "even")
        .default_branch("odd")
    )
    for name, branch in found.items():
        branch.to(name)


def partition_time(inputs: Inputs) -> None:
    for topic in ("a", "b"):
        extractor = UsePartitionTimeOnInvalidTimestamp()
        inputs.stream(topic, timestamp_extractor=lambda r, t, e=extractor: e(r, max(t, 0))).to(
            "out"
        )


COUNTS = Stores.key_value("counts", str, int)


class Counts(Processor[str, int, str, int]):
    """Counts in a store, and sends all counts whenever stream time or the clock moved on."""

    def init(self, context: ProcessorContext[str, int]) -> None:
        super().init(context)
        self.counts: KeyValueStore[str, int] = context.get_state_store(COUNTS)
        context.schedule(7, PunctuationType.STREAM_TIME, self.send)
        context.schedule(7, PunctuationType.STREAM_TIME, self.send, start_time=3)
        self.clock = context.schedule(5, PunctuationType.WALL_CLOCK_TIME, self.send_and_end)

    def process(self, record: Record[str, int]) -> None:
        key = record.key or "none"
        count = (self.counts.get(key) or 0) + 1
        self.counts.put(key, None if count > 4 else count)
        self.context.forward(Record(key, count, record.timestamp, record.headers))
        self.context.forward(Record("time", self.context.current_stream_time_ms(), 0))
        if record.value == 3:
            self.context.schedule(4, PunctuationType.WALL_CLOCK_TIME, self.send)

    def send(self, timestamp: int) -> None:
        for key, count in self.counts.all():
            self.context.forward(Record(key, count, timestamp))

    def send_and_end(self, timestamp: int) -> None:
        self.send(timestamp)
        if timestamp > 20:
            self.clock.cancel()


def processor(inputs: Inputs) -> None:
    stream = inputs.stream("a").merge(inputs.stream("b"))
    stream.process(Counts, stores=[COUNTS], key=str, value=int).to("out")


def tables(inputs: Inputs) -> None:
    table = inputs.table("a", materialized="table")
    table.to_stream().to("changes")
    table.filter(lambda _, value: value > 0).to_stream().to("large")
    table.filter_not(lambda _, value: value > 0, materialized="small").to_stream().to("small")
    table.map_values(lambda value: value + 1, value=int, materialized="more").to_stream().to("more")
    inputs.table("b").map_values(lambda value: -value, value=int).to_stream().to("negative")


class Remembers(ValueTransformerWithKey[str, int, int]):
    """Adds what it remembers of a key."""

    def init(self, context: CommonContext) -> None:
        super().init(context)
        self.counts: KeyValueStore[str, int] = context.get_state_store(COUNTS)

    def transform(self, key: str, value: int | None) -> int | None:
        total = (self.counts.get(key) or 0) + (value or 0)
        self.counts.put(key, total)
        return None if value is None else total


def transformed(inputs: Inputs) -> None:
    table = inputs.table("a", materialized="table")
    table.transform_values(
        Remembers, stores=[COUNTS], value=int, materialized="result"
    ).to_stream().to("out")


def aggregated(inputs: Inputs) -> None:
    grouped = inputs.stream("a").merge(inputs.stream("b")).group_by_key()
    grouped.count(materialized="count").to_stream().to("counts")
    grouped.reduce(lambda one, other: one + other, materialized="sum").to_stream().to("sums")
    inputs.stream("a").to_table(materialized="last").to_stream().to("last")


def joined_tables(inputs: Inputs) -> None:
    left, right = inputs.table("a"), inputs.table("b", materialized="right")
    large = left.filter(lambda _, value: value > 0)
    joined = large.outer_join(right, lambda one, other: (one or 0) * 10 + (other or 0), value=int)
    joined.to_stream().to("outer")
    left.left_join(
        joined, lambda one, other: one + (other or 0), value=int, materialized="again"
    ).to_stream().to("left")
    left.join(right, lambda one, other: one - other, value=int).to_stream().to("inner")


def suppressed(inputs: Inputs) -> None:
    table = inputs.table("a", materialized="table")
    some = table.suppress(Suppressed.until_time_limit(6, max_records=2))
    some.to_stream().to("some")
    some.left_join(inputs.table("b"), lambda one, other: one + (other or 0), value=int).suppress(
        Suppressed.until_time_limit(3, max_bytes=150)
    ).to_stream().to("joined")


def numbered(one: int | None, other: int | None) -> int:
    return 100 * (10 if one is None else one) + (10 if other is None else other)


def joined_streams(inputs: Inputs) -> None:
    left, right = inputs.stream("a"), inputs.stream("b")
    near = JoinWindows(5, grace=2)
    left.join(right, numbered, near, value=int).to("inner")
    left.left_join(right, numbered, near, value=int, store_type="in_memory").to("left")
    uneven = JoinWindows(before=7, after=1, grace=1)
    left.outer_join(right, numbered, uneven, value=int).to("outer")


def joined_with_itself(inputs: Inputs) -> None:
    stream = inputs.stream("a")
    stream.join(stream, numbered, JoinWindows(4, grace=1), value=int).to("out")


def joined_with_versions(inputs: Inputs) -> None:
    stream = inputs.stream("a")
    versions = Materialized("versions", history_retention=12)
    table = inputs.table("b", materialized=versions)
    stream.join(table, numbered, value=int).to("inner")
    stream.left_join(table, numbered, value=int, grace=3).to("waited")
    table.to_stream().to("versions")


def windowed(inputs: Inputs) -> None:
    grouped = inputs.stream("a").group_by_key()
    close = EmitStrategy.on_window_close()
    kinds: dict[str, TimeWindows | SlidingWindows | UnlimitedWindows] = {
        "tumbling": TimeWindows(8, grace=3),
        "hopping": TimeWindows(9, advance=4),
        "sliding": SlidingWindows(6, grace=4),
        "unlimited": UnlimitedWindows(5),
    }
    for name, windows in kinds.items():
        grouped.windowed_by(windows).count().to_stream().to(name)
        if not isinstance(windows, UnlimitedWindows):
            closing = grouped.windowed_by(windows).emit_strategy(close)
            closing.reduce(added, materialized=Materialized(retention=30)).to_stream().to("closed")
    in_memory = Materialized(store_type="in_memory")
    grouped.windowed_by(TimeWindows(8)).reduce(added, materialized=in_memory).to_stream().to(
        "memory"
    )


def added(one: int | None, other: int | None) -> Any:
    """Add two values; their sum may be None, which deletes."""
    return None if other is None else (one or 0) + other


def in_sessions(inputs: Inputs) -> None:
    left, right = inputs.stream("a").group_by_key(), inputs.stream("b").group_by_key()
    sessions = left.windowed_by(SessionWindows(3, grace=2))
    sessions.count().to_stream().to("counts")
    closing = sessions.emit_strategy(EmitStrategy.on_window_close())
    closing.reduce(added).to_stream().to("closed")
    together = left.cogroup(count_or_add).cogroup(right, count_or_add)
    together.aggregate(int).to_stream().to("together")
    together.windowed_by(SessionWindows(4)).aggregate(
        int, lambda _key, one, other: one + other
    ).to_stream().to("together-in-sessions")
    windows = together.windowed_by(TimeWindows(10, grace=5)).aggregate(int)
    windows.suppress(Suppressed.until_window_closes()).to_stream().to("suppressed")


def count_or_add(_key: str, value: int | None, total: int) -> int:
    return total + (1 if value is None else value)


RECENT = Stores.lru_map("recent", str, int, capacity=2)
FRESH = Stores.key_value("fresh", str, int, ttl=6)


class Forgets(Processor[str, int, str, Any]):
    """Sends what two stores that forget still know."""

    def process(self, record: Record[str, int]) -> None:
        for store in (RECENT, FRESH):
            known = self.context.get_state_store(store)
            key = record.key or "none"
            value = known.get(key)
            self.context.forward(Record(key, -9 if value is None else value, record.timestamp))
            known.put(key, record.value)
            for other, kept in known.all():
                self.context.forward(Record(other, kept, record.timestamp))


def forgetting(inputs: Inputs) -> None:
    stream = inputs.stream("a").merge(inputs.stream("b"))
    stream.process(Forgets, stores=[RECENT, FRESH], key=str, value=int).to("out")


PROGRAMS: list[Callable[[Inputs], None]] = [
    stateless,
    failing,
    branches,
    partition_time,
    processor,
    tables,
    transformed,
    aggregated,
    joined_tables,
    suppressed,
    joined_streams,
    joined_with_itself,
    joined_with_versions,
    windowed,
    in_sessions,
    forgetting,
]

# -- inputs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Piped:
    """A record of a topic."""

    topic: str
    key: str | None
    value: int | None
    timestamp: int
    headers: Headers = field(default=Headers(), repr=False)


@dataclass(frozen=True)
class Tick:
    """The wall clock moves on."""

    by: int


EVENTS = st.lists(
    st.one_of(
        st.builds(
            Piped,
            topic=st.sampled_from("ab"),
            key=st.sampled_from(["x", "y", "z", None]),
            value=st.one_of(st.none(), st.integers(-2, 5)),
            timestamp=st.integers(0, 40),
            headers=st.sampled_from([Headers(), Headers([("h", b"\xff"), ("h", None)])]),
        ),
        st.builds(Tick, by=st.integers(1, 9)),
    ),
    max_size=30,
)

# -- running ------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """The outputs, dropped records and stream time of a run."""

    outputs: list[ProducerRecord] = field(default_factory=list)
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    stream_time: int = -1


def run(
    topology: Topology, events: list[Piped | Tick], cuts: Iterable[int], *, by_one: bool = False
) -> Outcome:
    """Run events through a task, with another task from each cut on.

    The task knows which topics have more records, so the order of two topics is always that of
    their timestamps.
    """
    parts = topology.lowered(DEFAULTS).subtopologies
    data, outcome, task_state = MemoryStores(), Outcome(), None
    offsets: Counter[str] = Counter()
    clock = 0
    bounds = [0, *sorted(cuts), len(events)]
    for start, end in pairwise(bounds):
        task = Task(parts, SETTINGS, data, task_state=task_state, wall_clock=clock)
        tell(task, events[start:])
        for at in range(start, end):
            event = events[at]
            if isinstance(event, Piped):
                record = raw(event, offsets[event.topic])
                offsets[event.topic] += 1
                enqueue(task, event.topic, [record], events[at + 1 :])
            else:
                process(task, by_one=by_one)
                clock += event.by
                task.advance_wall_clock(clock)
        tell(task, events[end:])
        process(task, by_one=by_one)
        task.commit()
        task_state = through_bytes(task.save())
        task.close()
        outcome.outputs += task.take_outputs()
        outcome.dropped.update(task.dropped)
        outcome.stream_time = task.stream_time
    return outcome


def raw(event: Piped, offset: int) -> ConsumerRecord:
    key = None if event.key is None else Serdes.string().serialize(event.key)
    value = None if event.value is None else Serdes.long().serialize(event.value)
    return ConsumerRecord(event.topic, 0, offset, event.timestamp, key, value, event.headers)


def enqueue(
    task: Task, topic: str, records: list[ConsumerRecord], to_come: list[Piped | Tick]
) -> None:
    if task.reads(topic):
        more = any(isinstance(event, Piped) and event.topic == topic for event in to_come)
        task.enqueue(topic, records, has_more=more)


def tell(task: Task, to_come: list[Piped | Tick]) -> None:
    """Pass a task the topics that have more records, as a host does from its planned offsets."""
    for topic in ("a", "b"):
        enqueue(task, topic, [], to_come)


def process(task: Task, *, by_one: bool) -> None:
    if not by_one:
        task.process()
        return
    while task.process(limit=1):
        pass


def through_bytes(task_state: TaskState) -> TaskState:
    """Return what a host reads back."""
    return decode_task_state(encode_task_state(task_state), "application")


def built(program: Callable[[Inputs], None]) -> Topology:
    inputs = Inputs()
    program(inputs)
    return inputs.builder.build()


@pytest.mark.parametrize("program", PROGRAMS)
@settings(max_examples=examples(60))
@given(events=EVENTS, data=st.data())
def test_cuts_are_not_visible(
    program: Callable[[Inputs], None], events: list[Piped | Tick], data: st.DataObject
) -> None:
    topology = built(program)
    cuts = data.draw(st.lists(st.integers(0, len(events)), max_size=5), label="cuts")

    uncut = run(topology, events, [])
    cut = run(topology, events, cuts)

    assert cut == uncut


@pytest.mark.parametrize("program", PROGRAMS)
@settings(max_examples=examples(20))
@given(events=EVENTS)
def test_one_record_at_a_time_is_the_same_as_all_at_once(
    program: Callable[[Inputs], None], events: list[Piped | Tick]
) -> None:
    topology = built(program)

    assert run(topology, events, [], by_one=True) == run(topology, events, [])
