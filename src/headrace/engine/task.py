"""Runs subtopologies on one partition: records in, records out.

The engine does no I/O and reads no clock: the test driver and Spark both host this class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, TypeAlias

from headrace.durations import MAX_MS
from headrace.engine.context import BoundNode
from headrace.engine.partition_group import PartitionGroup, Ties
from headrace.engine.punctuation import Schedule, Schedules
from headrace.engine.read_only import ReadOnlyStore
from headrace.engine.record_failures import Failures
from headrace.engine.record_queue import Backlog, RecordQueue
from headrace.engine.samples import CYCLE, MEASURED, SourceSamples, Timer
from headrace.engine.settings import TaskSettings
from headrace.engine.sinks import Output, TracedOutputs, bind_sink
from headrace.engine.task_state import TaskState
from headrace.errors import RecordError, StreamsError
from headrace.processors.api import PunctuationType
from headrace.processors.operation import Process, ValueGetter
from headrace.records import ConsumerRecord, Headers, ProducerRecord
from headrace.serdes.partitioner import partition_for_key
from headrace.state.cache import CacheBudget
from headrace.state.changelog import Changelog
from headrace.state.maps import StoreBackend
from headrace.state.specs import StoreBuilder
from headrace.state.store_times import StoreTimes
from headrace.state.store_types.base import Opening
from headrace.state.store_types.lookup import bound_to, logged_type_of, type_of
from headrace.state.suppress_buffer import SuppressBuffer
from headrace.topology.java_order import in_java_hash_order
from headrace.topology.naming import changelog_topic
from headrace.topology.nodes import (
    Node,
    SinkNode,
)
from headrace.topology.sources import Sources
from headrace.topology.subtopologies import Subtopology

SUPPRESSION_EMIT = "suppression-emit"
"""The event of a change that a ``suppress`` emits, by Kafka's name."""

OnStep: TypeAlias = Callable[[str, Any, Any, int], None]
"""Gets the name of a node, and the key, value and timestamp of the record that it is about to
handle. The value of a table's change is a `Change`."""


class Task:
    """One partition of one or more subtopologies.

    Args:
        subtopologies: The subtopologies to run.
        settings: How the application treats records.
        data: The entries of the stores; an earlier task may have written them.
        task_id: ``<subtopology>_<partition>``.
        partition: The partition this task has of each source topic.
        global_stores: The global stores of the application, opened, by name.
        task_state: The result of `save` of an earlier task of this partition.
        wall_clock: The time of day, in milliseconds.
        partitions_of: Returns how many partitions a topic has.
        ties: Which of several records with one timestamp is processed first.
        logs_changes: Whether `changelogs` collects the changes of stores that can be queried.
        on_step: Called with the node, key, value and timestamp before a node handles a record.
        timer: Measures some records; None: none is measured.
    """

    def __init__(
        self,
        subtopologies: Sequence[Subtopology],
        settings: TaskSettings,
        data: StoreBackend,
        *,
        task_id: str = "0_0",
        partition: int = 0,
        global_stores: Mapping[str, Any] | None = None,
        task_state: TaskState | None = None,
        wall_clock: int = 0,
        partitions_of: Callable[[str], int] = lambda _topic: 1,
        ties: Ties = Ties.BY_TOPIC,
        logs_changes: bool = False,
        on_step: OnStep | None = None,
        timer: Timer | None = None,
    ) -> None:
        saved = task_state or TaskState()
        self.id = task_id
        self._on_step = on_step
        self._timer = timer
        self.partition = partition
        self.settings = settings
        self.wall_clock = wall_clock
        self.partitions_of = partitions_of
        self.stream_time = saved.stream_time
        self.record: ConsumerRecord | None = None
        """The input record being processed; None in a punctuation."""
        self.timestamp = -1
        """The timestamp at the running node, or of the punctuation; -1: that of `record`."""
        self.outputs: list[Output] = TracedOutputs(self) if settings.traces_outputs else []
        self.dropped: dict[tuple[str, str], int] = {}
        """How many records were dropped, by node and reason."""
        self.events: dict[str, dict[str, int]] = {}
        """How often something happened, by node and event."""
        self.processed = 0
        self.commit_requested = False
        self.start_actions: list[Callable[[], None]] = []
        self.commit_actions: list[Callable[[], None]] = []
        self.close_actions: list[Callable[[], None]] = []
        self.schedules = Schedules(saved.schedules)
        self.failures = Failures(settings, task_id, self._write, self.drop)
        cached = settings.cache_max_bytes > 0
        self.cache = CacheBudget(settings.cache_max_bytes, self) if cached else None
        self.global_stores = {
            name: ReadOnlyStore(store) for name, store in (global_stores or {}).items()
        }
        # Copies, because a host may retry a batch with the same task state.
        self._saved_store_times = dict(saved.store_times)
        self._store_times: dict[str, StoreTimes] = {}
        self._node_times = {node: dict(times) for node, times in saved.node_times.items()}
        self._partition_times = dict(saved.partition_times)
        self._nodes: dict[str, Node] = {
            name: node for subtopology in subtopologies for name, node in subtopology.nodes.items()
        }
        self.changelogs: dict[str, Changelog] = {}
        """The changes of the stores that can be queried, by store."""
        self.stores = {
            name: self._opened(store, data, logs_changes=logs_changes)
            for name, store in _stores_in_flush_order(subtopologies).items()
        }
        self._cached_stores = [store for store in self.stores.values() if store.caching]
        self._may_schedule = any(node.may_schedule for node in self._nodes.values())
        self._processes: dict[str, Process] = self._bind()
        self._sources = Sources(self._nodes.values(), settings.application_id)
        self._inputs = PartitionGroup(
            settings.max_task_idle_ms, ties=ties, deadlines=saved.deadlines
        )
        for topic in self._sources.by_topic:
            self._open_queue(topic, partition)
        self._start()
        for topic, number, offset, timestamp, key, value, headers in saved.buffered:
            buffered = ConsumerRecord(
                topic, number, offset, timestamp, key, value, Headers(headers)
            )
            self.enqueue(topic, [buffered], partition=number)

    def _opened(self, store: StoreBuilder[Any], data: StoreBackend, *, logs_changes: bool) -> Any:
        own_topic = changelog_topic(self.settings.application_id, store.name)
        changelog = None
        if logs_changes and store.queryable:
            changelog = logged_type_of(store).new_changelog(own_topic, self._time_of_change)
            self.changelogs[store.name] = changelog
        store_type = type_of(bound_to(store, store.changelog or own_topic))
        times = store_type.times.from_saved(self._saved_store_times.pop(store.name, {}))
        self._store_times[store.name] = times
        return store_type.open(Opening(data, self, times, changelog))

    def _time_of_change(self) -> int:
        if self.timestamp >= 0:
            return self.timestamp
        return self.stream_time if self.record is None else self.record.timestamp

    def reads(self, topic: str) -> bool:
        """Return whether records of ``topic`` belong here."""
        return self._sources.of(topic) is not None

    def runs(self, node: str) -> bool:
        """Return whether a node of the topology runs here."""
        return node in self._nodes

    def enqueue(
        self,
        topic: str,
        records: Iterable[ConsumerRecord],
        *,
        partition: int | None = None,
        has_more: bool = False,
    ) -> None:
        """Add records of one partition, in the order of their offsets.

        The default ``partition`` is the task's. If ``has_more``, the partition has records that are
        not read yet. Once these are processed, the other inputs wait, because the next record may
        be earlier.
        """
        number = self.partition if partition is None else partition
        queue = self._inputs.get(topic, number) or self._open_queue(topic, number)
        self._inputs.add(queue, records, has_more=has_more)

    def resume(self, topic: str, backlog: Backlog, *, partition: int) -> None:
        """Begin with the records of a backlog. Records that are enqueued come after them."""
        queue = self._inputs.get(topic, partition) or self._open_queue(topic, partition)
        queue.resume(backlog)

    def process(self, limit: int = MAX_MS) -> int:
        """Process the records that may be processed now, at most ``limit``; return how many.

        Across partitions the record with the smallest timestamp is next.
        """
        if self._timer is None:
            return self._process(limit, self._drain)
        start, measures = self.processed, False
        share = self._inputs.place_of(MEASURED)
        while (left := limit - (self.processed - start)) > 0:
            share = min(left, share)
            if self._process(share, self._measure if measures else self._drain) < share:
                break
            measures = not measures
            share = MEASURED if measures else CYCLE - MEASURED
        return self.processed - start

    def _process(self, limit: int, drain: Callable[[RecordQueue, int, int], None]) -> int:
        start = self.processed
        while (left := limit - (self.processed - start)) > 0:
            run = self._inputs.next_run(self.wall_clock)
            if run is None:
                break
            queue, last, count = run
            try:
                drain(queue, last, min(count, left))
            finally:
                self._inputs.end_run(queue)
        return self.processed - start

    def _drain(self, queue: RecordQueue, last: int, limit: int) -> None:  # noqa: C901  # the hot loop: calls cost
        """Process the first record of a queue, which is decoded, and those after it.

        Stops before a record later than ``last``, and after ``limit`` records.
        """
        waiting, process, decode = queue.waiting, queue.process, queue.decode
        decode_key, decode_value = queue.decode_key, queue.decode_value
        plain, may_schedule, schedules = queue.plain_timestamps, self._may_schedule, self.schedules
        popleft, taken = waiting.popleft, 0
        stream_time, partition_time = self.stream_time, queue.partition_time
        raw, key, value, timestamp = queue.take()
        headers = raw.headers
        try:
            for _ in repeat(None, limit):
                self.record = raw
                taken += 1
                if timestamp > partition_time:
                    partition_time = timestamp
                    if timestamp > stream_time:
                        self.stream_time = stream_time = timestamp
                process(key, value, timestamp, headers)
                if may_schedule and stream_time >= schedules.next_stream_due:
                    self._punctuate_stream_time()
                while waiting:
                    raw = popleft()
                    _, _, _, timestamp, key, value, headers = raw
                    try:
                        if key is not None:
                            key = decode_key(key)
                        if value is not None:
                            value = decode_value(value)
                    except Exception:
                        timestamp = -1  # `decode` below raises it again, and asks the handler
                    if plain and timestamp >= 0:
                        break
                    queue.partition_time = partition_time
                    head = decode(raw)
                    if head is not None:
                        raw, key, value, timestamp = head
                        break
                else:
                    return
                if timestamp > last:
                    break
            queue.put_back(raw, key, value, timestamp)
        finally:
            queue.partition_time = partition_time
            queue.processed += taken
            self.processed += taken

    def _measure(self, queue: RecordQueue, last: int, limit: int) -> None:
        """Do the same as `_drain`, and measure each record.

        It is a loop of its own: the interpreter makes a loop faster that calls the same functions.
        """
        timer, measurements = self._timer, queue.measurements
        assert timer is not None, "else nothing is measured"
        for _ in repeat(None, limit):
            self.record, key, value, timestamp = queue.take()
            headers = self.record.headers
            queue.processed += 1
            self.processed += 1
            self.stream_time = max(self.stream_time, timestamp)
            late = self.stream_time - timestamp
            began = timer()
            queue.process(key, value, timestamp, headers)
            measurements.seconds.append(timer() - began)
            measurements.late_ms.append(late)
            if self._may_schedule and self.stream_time >= self.schedules.next_stream_due:
                self._punctuate_stream_time()
            head = queue.head()
            if head is None or head.timestamp > last:
                return

    def advance_wall_clock(self, now: int) -> bool:
        """Set the time of day and call the punctuators that are due; return whether any was."""
        self.wall_clock = now
        if now < self.schedules.next_wall_clock_due:
            return False
        return self.schedules.fire(PunctuationType.WALL_CLOCK_TIME, now, self._punctuate)

    def _punctuate_stream_time(self) -> None:
        self.schedules.fire(PunctuationType.STREAM_TIME, self.stream_time, self._punctuate)

    def _punctuate(self, schedule: Schedule, now: int) -> None:
        self.record = None
        self.timestamp = now
        try:
            if schedule.punctuator is not None:
                schedule.punctuator(now)
        except RecordError:
            raise  # a child's: the handler has decided already
        except Exception as error:
            origin = self._nodes[schedule.node].origin
            self.failures.processing(error, None, schedule.node, origin, None, now)
        finally:
            self.timestamp = -1

    def commit(self) -> None:
        """Flush the caches, and renew the processors."""
        self.commit_requested = False
        for store in self._cached_stores:
            store.flush()
        self.record = None
        for action in self.commit_actions:
            action()

    def save(self) -> TaskState:
        """Return the task state: all that the next task needs besides the stores."""
        partition_times = {queue.id: queue.partition_time for queue in self._inputs}
        store_times = {name: times.saved() for name, times in self._store_times.items()}
        return TaskState(
            stream_time=self.stream_time,
            partition_times={**self._partition_times, **partition_times},
            deadlines=dict(self._inputs.deadlines),
            buffered=[
                (*raw[:-1], list(raw.headers))
                for queue in self._inputs
                for raw in queue.unprocessed()
            ],
            schedules=self.schedules.save(),
            node_times={name: dict(times) for name, times in self._node_times.items() if times},
            store_times=self._saved_store_times
            | {name: times for name, times in store_times.items() if times},
        )

    def saved_times(self, store: str) -> dict[str, int]:
        """Return what a store saves besides its entries."""
        return self._store_times[store].saved()

    def dropped_by_node(self) -> dict[str, dict[str, int]]:
        """Return how many records were dropped, by node, then by reason."""
        by_node: dict[str, dict[str, int]] = {}
        for (node, reason), count in self.dropped.items():
            by_node.setdefault(node, {})[reason] = count
        return by_node

    def take_processed(self) -> dict[str, int]:
        """Return how many records each source has processed since the last call."""
        self.processed = 0
        counts: dict[str, int] = {}
        for queue in self._inputs:
            counts[queue.source] = counts.get(queue.source, 0) + queue.processed
            queue.processed = 0
        return {source: count for source, count in counts.items() if count}

    def take_samples(self) -> dict[str, SourceSamples]:
        """Return the records that were measured since the last call, by source node."""
        samples: dict[str, SourceSamples] = {}
        for queue in self._inputs:
            if queue.measurements.seconds:
                own = samples.setdefault(queue.source, SourceSamples())
                own.merge(queue.measurements.take())
        return samples

    def unprocessed(self) -> dict[tuple[str, int], list[ConsumerRecord]]:
        """Return the records in memory that wait for another input, by topic and partition."""
        waiting = {(queue.topic, queue.partition): queue.unprocessed() for queue in self._inputs}
        return {name: records for name, records in waiting.items() if records}

    def starved_topics(self) -> list[str]:
        """Return the inputs without records here whose topics hold more."""
        return [queue.topic for queue in self._inputs if queue.is_empty() and queue.has_more]

    @property
    def deadlines(self) -> Mapping[str, int]:
        """Until when the task waits for an input that is empty, by topic and partition."""
        return self._inputs.deadlines

    def close(self) -> None:
        """Close the processors, and release the entries of the caches."""
        self.record = None
        for action in self.close_actions:
            action()
        # Task and stores refer to each other, so the garbage collector would visit all entries.
        for store in self._cached_stores:
            store.release()

    def take_outputs(self) -> list[ProducerRecord]:
        """Return the output records since the last call."""
        taken = [ProducerRecord._make(output) for output in self.outputs]
        self.outputs.clear()
        return taken

    def drop(self, node: str, reason: str) -> None:
        """Count a record that ``node`` dropped."""
        self.dropped[node, reason] = self.dropped.get((node, reason), 0) + 1

    def count(self, node: str, event: str, times: int) -> None:
        """Count an event of a node."""
        events = self.events.setdefault(node, {})
        events[event] = events.get(event, 0) + times

    def buffers(self) -> dict[str, tuple[int, int]]:
        """Return how many changes each ``suppress`` holds back, and how many bytes they have.

        Counts the events of its emits, too.
        """
        buffers: dict[str, tuple[int, int]] = {}
        for name, node in self._nodes.items():
            for store in node.used_stores:
                buffer = self.stores[store]
                if isinstance(buffer, SuppressBuffer):
                    buffers[name] = buffer.records, buffer.bytes
                    if buffer.emitted:
                        self.count(name, SUPPRESSION_EMIT, buffer.emitted)
                        buffer.emitted = 0
        return buffers

    def _write(self, record: ProducerRecord) -> None:
        partition = record.partition
        if partition is None:
            count = self.partitions_of(record.topic)
            partition = 0 if record.key is None else partition_for_key(record.key, count)
        self.outputs.append((record.topic, partition, *record[2:]))

    def getter(self, table: str, asking: BoundNode) -> ValueGetter:
        """Return the function by which the node ``asking`` reads a table."""
        node = self._nodes[table]
        operation = node.bound_operation
        assert operation is not None, f"{table} is no table"
        return operation.getter(asking, lambda: self.getter(node.parents[0], asking))

    def _bind(self) -> dict[str, Process]:
        """Return the function of each node; children are bound first, because parents call them."""
        children: dict[str, list[str]] = {name: [] for name in self._nodes}
        for name, node in self._nodes.items():
            for parent in dict.fromkeys(node.parents):
                children[parent].append(name)
        processes: dict[str, Process] = {}
        for name in reversed(self._nodes):
            node = self._nodes[name]
            if isinstance(node, SinkNode):
                processes[name] = bind_sink(self, node)
            else:
                own = {child: processes[child] for child in children[name]}
                bound = self._bound_node(node, own)
                operation = node.bound_operation
                if operation is None:
                    processes[name] = bound.forward
                else:
                    processes[name] = self._timed(node, operation.bind(bound))
            if self._on_step is not None:
                processes[name] = _observed(name, processes[name], self._on_step)
        return processes

    def _timed(self, node: Node, process: Process) -> Process:
        """Set the task's timestamp while a node runs, for the changes that its stores log."""
        if all(
            name not in self.changelogs or self.stores[name].caching for name in node.timed_stores
        ):
            return process

        def timed(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            before, self.timestamp = self.timestamp, timestamp
            try:
                process(key, value, timestamp, headers)
            finally:
                self.timestamp = before

        return timed

    def _start(self) -> None:
        """Start the processors, parents first: `_bind` has added the actions children first."""
        for actions in (self.start_actions, self.commit_actions, self.close_actions):
            actions.reverse()
        for action in self.start_actions:
            action()

    def _bound_node(self, node: Node, children: dict[str, Process]) -> BoundNode:
        times = self._node_times.setdefault(node.name, {})
        return BoundNode(self, node, children, node.used_stores, times)

    def _open_queue(self, topic: str, partition: int) -> RecordQueue:
        node = self._sources.of(topic)
        if node is None:
            msg = f"Task {self.id} does not read topic {topic!r}."
            raise StreamsError(msg)
        queue = RecordQueue(
            self,
            node.name,
            topic,
            partition,
            (node.key.need, node.value.need),
            node.own_extractor or self.settings.timestamp_extractor,
            self._processes[node.name],
        )
        queue.partition_time = self._partition_times.get(queue.id, -1)
        self._inputs.open(queue)
        return queue


def _observed(node: str, process: Process, on_step: OnStep) -> Process:
    def observed(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        on_step(node, key, value, timestamp)
        process(key, value, timestamp, headers)

    return observed


def _stores_in_flush_order(subtopologies: Sequence[Subtopology]) -> dict[str, Any]:
    """Return the stores in the order in which Kafka flushes them: by the nodes that use them."""
    ordered: dict[str, Any] = {}
    for subtopology in subtopologies:
        for node in subtopology.nodes.values():
            for name in in_java_hash_order(node.used_stores):
                ordered[name] = subtopology.stores[name]
    return ordered
