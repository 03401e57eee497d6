"""Laws of operations on tables: their final results, independent of cuts and partitions."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Materialized, StreamsBuilder
from headrace.engine.settings import TaskSettings
from headrace.engine.task import Task
from headrace.engine.task_state import TaskState, decode_task_state, encode_task_state
from headrace.records import ConsumerRecord, ProducerRecord
from headrace.state.maps import MemoryStores
from headrace.testing import TopologyTestDriver
from headrace.topology.lower import TopologyDefaults
from headrace.topology.topology import Topology
from tests.effort import examples


class Row(NamedTuple):
    """An update of a table."""

    topic: str
    key: str
    value: str | None
    timestamp: int


LETTERS = st.sampled_from("xyz")
ROWS = st.lists(
    st.builds(
        Row,
        topic=st.sampled_from(["left", "right"]),
        key=LETTERS,
        value=st.one_of(st.none(), st.text("xyz", min_size=1, max_size=2)),
        timestamp=st.integers(0, 20),
    ),
    max_size=25,
)


def pair(left: str | None, right: str | None) -> str:
    return f"{left}+{right}"


def joined(kind: str) -> Topology:
    builder = StreamsBuilder()
    left = builder.table("left", key=str, value=str)
    right = builder.table("right", key=str, value=str)
    result = getattr(left, kind)(right, pair, materialized=Materialized("result", value=str))
    result.to_stream().to("out")
    return builder.build()


def joined_by_foreign_key(kind: str) -> Topology:
    builder = StreamsBuilder()
    left = builder.table("left", key=str, value=str)
    right = builder.table("right", key=str, value=str)
    result = getattr(left, kind)(
        right,
        pair,
        foreign_key=lambda value: value[0],
        materialized=Materialized("result", value=str),
    )
    result.to_stream().to("out")
    return builder.build()


def grouped() -> Topology:
    builder = StreamsBuilder()
    left = builder.table("left", key=str, value=str)
    builder.table("right", key=str, value=str)
    rows = left.group_by(lambda key, value: (value[0], key), key=str, value=str)
    rows.count(materialized="result").to_stream().to("out")
    rows.aggregate(
        str, lambda _, key, keys: keys + key, lambda _, key, keys: keys.replace(key, "", 1)
    ).to_stream().to("keys")
    return builder.build()


PROGRAMS: dict[str, Callable[[], Topology]] = {
    "join": lambda: joined("join"),
    "left join": lambda: joined("left_join"),
    "outer join": lambda: joined("outer_join"),
    "foreign key": lambda: joined_by_foreign_key("join"),
    "foreign key, left": lambda: joined_by_foreign_key("left_join"),
    "grouped": grouped,
}


def expected(program: str, rows: Iterable[Row]) -> dict[str, Any]:
    """Return what a program ends with, from the last value of each key alone."""
    last: dict[str, dict[str, str]] = {"left": {}, "right": {}}
    for topic, key, value, _ in rows:
        if value is None:
            last[topic].pop(key, None)
        else:
            last[topic][key] = value
    left, right = last["left"], last["right"]
    match program:
        case "grouped":
            return dict(Counter(value[0] for value in left.values()))
        case "join":
            return {key: pair(left[key], right[key]) for key in left if key in right}
        case "left join":
            return {key: pair(left[key], right.get(key)) for key in left}
        case "outer join":
            return {key: pair(left.get(key), right.get(key)) for key in {*left, *right}}
        case "foreign key":
            return {k: pair(v, right[v[0]]) for k, v in left.items() if v[0] in right}
    return {k: pair(v, right.get(v[0])) for k, v in left.items()}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("partitions", [1, 3])
@settings(max_examples=examples(40))
@given(rows=ROWS, cache=st.sampled_from([0, 200, 100_000]))
def test_a_table_ends_with_what_the_last_values_give(
    program: str, partitions: int, rows: list[Row], cache: int
) -> None:
    topology = PROGRAMS[program]()

    with TopologyTestDriver(
        topology, partitions=partitions, statestore_cache_max_bytes=cache
    ) as driver:
        for topic, key, value, timestamp in rows:
            driver.create_input_topic(topic).pipe_input(key, value, timestamp=timestamp)
        result = dict(driver.get_key_value_store("result").all())

    # A group that lost its last row stays, with a count of zero.
    assert {key: value for key, value in result.items() if value != 0} == expected(program, rows)


class Host:
    """Feeds a task of all subtopologies, and brings back what it writes for itself."""

    def __init__(self, topology: Topology) -> None:
        self.parts = topology.lowered(TopologyDefaults()).subtopologies
        self.data = MemoryStores()
        self.outputs: list[ProducerRecord] = []
        self.dropped: Counter[tuple[str, str]] = Counter()
        self.offsets: Counter[str] = Counter()
        self.task = self._opened(None)

    def _opened(self, task_state: TaskState | None) -> Task:
        return Task(self.parts, TaskSettings(), self.data, task_state=task_state)

    def pipe(self, row: Row) -> None:
        value = None if row.value is None else row.value.encode()
        first = (row.topic, row.timestamp, row.key.encode(), value)
        waiting: deque[tuple[str, int, bytes | None, bytes | None]] = deque([first])
        while waiting:
            topic, timestamp, key, data = waiting.popleft()
            record = ConsumerRecord(topic, 0, self.offsets[topic], timestamp, key, data)
            self.offsets[topic] += 1
            self.task.enqueue(topic, [record])
            self.task.process()
            for output in self.task.take_outputs():
                if self.task.reads(output.topic):
                    waiting.append((output.topic, output.timestamp, output.key, output.value))
                else:
                    self.outputs.append(output)

    def cut(self) -> None:
        self.task.commit()
        task_state = decode_task_state(encode_task_state(self.task.save()), "application")
        self.task.close()
        self.dropped.update(self.task.dropped)
        self.task = self._opened(task_state)


@pytest.mark.parametrize("program", PROGRAMS)
@settings(max_examples=examples(40))
@given(rows=ROWS, cuts=st.sets(st.integers(0, 25), max_size=5))
def test_cuts_are_not_visible(program: str, rows: list[Row], cuts: set[int]) -> None:
    topology = PROGRAMS[program]()
    uncut, cut = Host(topology), Host(topology)

    for number, row in enumerate(rows):
        uncut.pipe(row)
        if number in cuts:
            cut.cut()
        cut.pipe(row)
    for host in (uncut, cut):
        host.cut()

    assert cut.outputs == uncut.outputs
    assert cut.dropped == uncut.dropped
