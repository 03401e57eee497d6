"""The stateful operations against bare Python dict loops, and memory over a long stream."""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable

from headrace import (
    ConsumerRecord,
    JoinWindows,
    Serdes,
    SessionWindows,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    Topology,
)
from headrace.config.topology_defaults import topology_defaults
from headrace.engine.settings import TaskSettings
from headrace.engine.task import Task
from headrace.records import NO_HEADERS
from headrace.state.maps import MemoryStores

RECORDS = 1_000_000
KEYS = 100_000
ROUNDS = 4
MINUTE = 60_000

_encode = Serdes.long().serialize
_decode = Serdes.long().deserialize
_decode_key = Serdes.string().deserialize


def records(topic: str, count: int, *, keys: int = KEYS, step: int = 1) -> list[ConsumerRecord]:
    """Return records whose keys come in a scattered order."""
    return [
        ConsumerRecord(
            topic, 0, i, i * step, f"key-{i * 7919 % keys}".encode(), _encode(i % 100), NO_HEADERS
        )
        for i in range(count)
    ]


def add(_key: str, value: int, total: int) -> int:
    return total + value


def running_sum() -> Topology:
    builder = StreamsBuilder()
    totals = builder.stream("in", key=str, value=int).group_by_key().aggregate(int, add)
    totals.to_stream().foreach(lambda _key, _total: None)
    return builder.build()


def running_sum_loop(inputs: list[ConsumerRecord]) -> None:
    totals: dict[str, int] = {}
    for _, _, _, _, raw_key, raw_value, _ in inputs:
        key, value = _decode_key(raw_key), _decode(raw_value)
        totals[key] = totals.get(key, 0) + value


def tumbling() -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=str, value=int).group_by_key()
    totals = grouped.windowed_by(TimeWindows(MINUTE, grace=MINUTE)).aggregate(int, add)
    totals.to_stream().foreach(lambda _key, _total: None)
    return builder.build()


def tumbling_loop(inputs: list[ConsumerRecord]) -> None:
    totals: dict[tuple[str, int], int] = {}
    for _, _, _, timestamp, raw_key, raw_value, _ in inputs:
        key, value = _decode_key(raw_key), _decode(raw_value)
        window = key, timestamp - timestamp % MINUTE
        totals[window] = totals.get(window, 0) + value


def sessions() -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=str, value=int).group_by_key()
    windowed = grouped.windowed_by(SessionWindows(MINUTE))
    totals = windowed.aggregate(int, add, lambda _key, one, other: one + other)
    totals.to_stream().foreach(lambda _key, _total: None)
    return builder.build()


def sessions_loop(inputs: list[ConsumerRecord]) -> None:
    open_sessions: dict[str, tuple[int, int, int]] = {}
    for _, _, _, timestamp, raw_key, raw_value, _ in inputs:
        key, value = _decode_key(raw_key), _decode(raw_value)
        start, end, total = open_sessions.get(key, (timestamp, timestamp, 0))
        if timestamp - end > MINUTE:
            start, total = timestamp, 0
        open_sessions[key] = start, timestamp, total + value


def stream_join() -> Topology:
    builder = StreamsBuilder()
    left = builder.stream("in", key=str, value=int)
    right = builder.stream("other", key=str, value=int)
    joined = left.join(right, lambda one, other: one + other, JoinWindows(MINUTE))
    joined.foreach(lambda _key, _total: None)
    return builder.build()


def stream_join_loop(inputs: list[ConsumerRecord]) -> None:
    sides: tuple[dict[str, list[tuple[int, int]]], ...] = ({}, {})
    for topic, _, _, timestamp, raw_key, raw_value, _ in inputs:
        key, value = _decode_key(raw_key), _decode(raw_value)
        mine, theirs = sides if topic == "in" else sides[::-1]
        for then, other in theirs.get(key, ()):
            if abs(timestamp - then) <= MINUTE:
                value + other  # what the joiner does
        kept = [each for each in mine.get(key, []) if timestamp - each[0] <= MINUTE]
        kept.append((timestamp, value))
        mine[key] = kept


def table_join() -> Topology:
    builder = StreamsBuilder()
    left = builder.table("in", key=str, value=int)
    right = builder.table("other", key=str, value=int)
    joined = left.join(right, lambda one, other: one + other, value=int)
    joined.to_stream().foreach(lambda _key, _total: None)
    return builder.build()


def table_join_loop(inputs: list[ConsumerRecord]) -> None:
    tables: tuple[dict[str, int], ...] = ({}, {})
    for topic, _, _, _, raw_key, raw_value, _ in inputs:
        key, value = _decode_key(raw_key), _decode(raw_value)
        mine, theirs = tables if topic == "in" else tables[::-1]
        mine[key] = value
        other = theirs.get(key)
        if other is not None:
            value + other  # what the joiner does


def two_topics(count: int) -> list[ConsumerRecord]:
    """Return records of two topics in turns."""
    both = records("in", count)
    return [
        record if number // KEYS % 2 == 0 else record._replace(topic="other")
        for number, record in enumerate(both)
    ]


def open_task(topology: Topology, *, cache: int = 0) -> Task:
    config = StreamsConfig(application_id="bench", statestore_cache_max_bytes=cache)
    lowered = topology.lowered(topology_defaults(config))
    settings = TaskSettings.from_config(config, application_id="bench")
    return Task(lowered.subtopologies, settings, MemoryStores())


def run_task(topology: Topology, inputs: list[ConsumerRecord], *, cache: int) -> float:
    task = open_task(topology, cache=cache)
    for topic in dict.fromkeys(record.topic for record in inputs):
        task.enqueue(topic, [record for record in inputs if record.topic == topic])
    gc.collect()
    started = time.process_time()
    task.process()
    task.commit()
    return time.process_time() - started


Loop = Callable[[list[ConsumerRecord]], None]
CACHE = 1 << 30
PROGRAMS: dict[str, tuple[Callable[[], Topology], Loop, bool, int, str]] = {
    "running aggregate, cache": (running_sum, running_sum_loop, False, CACHE, "4x"),
    "running aggregate": (running_sum, running_sum_loop, False, 0, ""),
    "tumbling windows, cache": (tumbling, tumbling_loop, False, CACHE, ""),
    "tumbling windows": (tumbling, tumbling_loop, False, 0, ""),
    "sessions": (sessions, sessions_loop, False, 0, ""),
    "stream-stream join": (stream_join, stream_join_loop, True, 0, ""),
    "table-table join": (table_join, table_join_loop, True, 0, ""),
}


def main() -> int:
    """Print the table, then the memory of a stream a hundred times longer than its retention."""
    one, two = records("in", RECORDS), two_topics(RECORDS)
    gc.freeze()  # the collector need not look at the harness's own records
    print(f"{'operation':28} {'task µs':>8} {'loop µs':>8} {'ratio':>6}  bar")
    for name, (topology, loop, joins, cache, bar) in PROGRAMS.items():
        inputs = two if joins else one
        tasks, loops = [], []
        for _ in range(ROUNDS):
            tasks.append(run_task(topology(), inputs, cache=cache))
            gc.collect()
            started = time.process_time()
            loop(inputs)
            loops.append(time.process_time() - started)
        task_us = min(tasks) / RECORDS * 1e6
        loop_us = min(loops) / RECORDS * 1e6
        figures = f"{task_us:8.2f} {loop_us:8.2f} {task_us / loop_us:5.1f}x"
        print(f"{name:28} {figures}  {bar}", flush=True)
    for name, topology in (("tumbling windows", tumbling), ("sessions", sessions)):
        memory_over_time(name, topology())
    return 0


def memory_over_time(name: str, topology: Topology) -> None:
    """Print how much memory the stores take, from one retention to a hundred."""
    task = open_task(topology)
    retention = 2 * MINUTE
    per_retention = 2_000
    tracemalloc.start()
    sizes = []
    for stretch in range(100):
        batch = records("in", per_retention, keys=500, step=retention // per_retention)
        later = [r._replace(timestamp=r.timestamp + stretch * retention) for r in batch]
        task.enqueue("in", later)
        task.process()
        task.commit()
        del batch, later
        if stretch in (4, 24, 49, 74, 99):
            gc.collect()
            sizes.append(f"{tracemalloc.get_traced_memory()[0] / 1e6:.2f} MB at {stretch + 1}x")
    tracemalloc.stop()
    print(f"memory, {name}: {', '.join(sizes)} the retention")


if __name__ == "__main__":
    sys.exit(main())
