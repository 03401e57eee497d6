"""TopologyTestDriver: hosts the production task in a test."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, TypeVar, Unpack, overload

from headrace.config import Settings, StreamsConfig
from headrace.config.topology_defaults import topology_defaults
from headrace.durations import Duration, duration_ms
from headrace.engine.partition_group import Ties
from headrace.engine.settings import TaskSettings
from headrace.engine.task import OnStep, Task
from headrace.errors import StreamsError
from headrace.metrics import MetricName
from headrace.processors.handlers import built_in_handler
from headrace.records import (
    ConsumerRecord,
    Headers,
    K,
    ProducerRecord,
    Timestamp,
    V,
    payload_size,
    timestamp_ms,
    without_payload,
)
from headrace.serdes.base import Serde, SerdeLike, serde_for_topic
from headrace.serdes.deduce import serde_for
from headrace.serdes.partitioner import partition_for_key
from headrace.state.key_value import BaseKeyValue
from headrace.state.maps import MemoryStores
from headrace.state.session import SessionEntries
from headrace.state.specs import StoreBuilder
from headrace.state.versioned import Versioned
from headrace.state.window import WindowEntries
from headrace.testing.metrics import task_metrics
from headrace.testing.stores import driver_store, plain_values, timestamped
from headrace.testing.topics import TestInputTopic, TestOutputTopic
from headrace.topology.naming import internal_topic
from headrace.topology.nodes import GlobalStoreNode, SinkNode, SourceNode
from headrace.topology.sources import Sources
from headrace.topology.topology import Topology

S = TypeVar("S")

_APPLICATION_ID = "test-application"


class TopologyTestDriver:
    """Runs a topology in this process: no Spark, no Java, no broker.

    A piped record is processed to the end, together with all that follows from it, and committed
    before the call returns. With one partition, as in Kafka's driver, one task runs all
    subtopologies; with more, each subtopology has a task per partition, as in production.

    Args:
        topology: The topology to test.
        config: Settings; an application id is not needed.
        initial_wall_clock_time: Where the wall clock starts; only `advance_wall_clock_time` moves
            it.
        partitions: How many partitions every topic has.
        commit_each_record: False lets caches hold back updates until `commit()`.
        on_step: Called as ``f(node, key, value, timestamp)`` before each step handles a record; the
            value of a change of a table is ``(new, old, is_latest)``.
        settings: Settings as keywords; they win over ``config``.

    Raises:
        TopologyError: The program is wrong, or a step has no serde.
        ConfigError: The settings are wrong.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig | Mapping[str, Any] | None = None,
        *,
        initial_wall_clock_time: Timestamp = 0,
        partitions: int = 1,
        commit_each_record: bool = True,
        on_step: OnStep | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        if partitions < 1:
            msg = f"`partitions` is {partitions}. Use one or more."
            raise ValueError(msg)
        merged = StreamsConfig.merged(config, settings)
        self._application_id = merged.application_id or _APPLICATION_ID
        self._lowered = topology.lowered(topology_defaults(merged))
        self._settings = TaskSettings.from_config(merged, application_id=self._application_id)
        self._partitions = partitions
        self._commit_each_record = commit_each_record
        self._on_step = on_step
        self._wall_clock = timestamp_ms(initial_wall_clock_time)
        self._offsets: dict[tuple[str, int], int] = {}
        self._outputs: dict[str, deque[ProducerRecord]] = {}
        self._repartitions = {
            internal_topic(self._application_id, topic): count or partitions
            for topic, count in self._lowered.repartitions.items()
        }
        self._sources = Sources(self._lowered.graph.nodes.values(), self._application_id)
        self._global_task = self._open_global_task()
        self._tasks = self._open_tasks()
        self._closed = False

    @overload
    def create_input_topic(
        self,
        topic: str,
        *,
        key: SerdeLike[K],
        value: SerdeLike[V],
        start_timestamp: Timestamp | None = None,
        auto_advance: Duration = 0,
    ) -> TestInputTopic[K, V]: ...
    @overload
    def create_input_topic(
        self,
        topic: str,
        *,
        key: SerdeLike[Any] | None = None,
        value: SerdeLike[Any] | None = None,
        start_timestamp: Timestamp | None = None,
        auto_advance: Duration = 0,
    ) -> TestInputTopic[Any, Any]: ...
    def create_input_topic(
        self,
        topic: str,
        *,
        key: SerdeLike[Any] | None = None,
        value: SerdeLike[Any] | None = None,
        start_timestamp: Timestamp | None = None,
        auto_advance: Duration = 0,
    ) -> TestInputTopic[Any, Any]:
        """Return a topic to pipe records into.

        Args:
            topic: The topic.
            key: Type or serde of the keys; the topology's own if left out.
            value: Type or serde of the values; the topology's own if left out.
            start_timestamp: The time of the first record; the wall clock's if left out.
            auto_advance: How much later each next record is.

        Raises:
            StreamsError: The topology does not read the topic.
            TopologyError: The patterns of two sources match it.
        """
        key_serde, value_serde = self._serdes_of_source(topic)
        return TestInputTopic(
            self,
            topic,
            _bound(key, key_serde, topic, is_key=True),
            _bound(value, value_serde, topic, is_key=False),
            start=self._wall_clock if start_timestamp is None else timestamp_ms(start_timestamp),
            advance=duration_ms(auto_advance, what="auto_advance"),
        )

    @overload
    def create_output_topic(
        self, topic: str, *, key: SerdeLike[K], value: SerdeLike[V]
    ) -> TestOutputTopic[K, V]: ...
    @overload
    def create_output_topic(
        self, topic: str, *, key: SerdeLike[Any] | None = None, value: SerdeLike[Any] | None = None
    ) -> TestOutputTopic[Any, Any]: ...
    def create_output_topic(
        self, topic: str, *, key: SerdeLike[Any] | None = None, value: SerdeLike[Any] | None = None
    ) -> TestOutputTopic[Any, Any]:
        """Return a topic to read records from.

        Args:
            topic: The topic.
            key: Type or serde of the keys; the topology's own if left out.
            value: Type or serde of the values; the topology's own if left out.

        Raises:
            StreamsError: The topology does not say which serdes the topic has.
        """
        if key is None or value is None:
            key_serde, value_serde = self._serdes_of_sink(topic)
        else:
            key_serde, value_serde = serde_for(key), serde_for(value)
        queue = self._outputs.setdefault(topic, deque())
        return TestOutputTopic(
            topic,
            queue,
            _bound(key, key_serde, topic, is_key=True),
            _bound(value, value_serde, topic, is_key=False),
        )

    def produced_topic_names(self) -> set[str]:
        """Return the topics that were written to, internal ones included."""
        return set(self._written)

    def pipe_raw(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers
    ) -> None:
        """Pipe a record of bytes, and process all that follows from it."""
        self._check_open()
        partition = self._partition_of(topic, key)
        self._deliver(ProducerRecord(topic, partition, timestamp, key, value, headers))
        self._run()

    def advance_wall_clock_time(self, duration: Duration) -> None:
        """Advance the wall clock and run the schedules that are due, each once."""
        self._check_open()
        step = duration_ms(duration, what="duration")
        if step < 0:
            msg = f"The wall clock cannot go back by {-step} ms."
            raise ValueError(msg)
        self._wall_clock += step
        for task in self._tasks:
            fired = task.advance_wall_clock(self._wall_clock)
            if self._commit_each_record or (fired and task.commit_requested):
                task.commit()
            self._route(task)
        self._global_task.advance_wall_clock(self._wall_clock)
        self._run()

    @property
    def stream_time(self) -> int:
        """The highest timestamp a task has seen, or -1."""
        return max((task.stream_time for task in self._tasks), default=-1)

    def commit(self) -> None:
        """Commit: caches write what they held back, and processors are renewed."""
        self._check_open()
        for task in self._tasks:
            task.commit()
            self._route(task)
        self._run()

    @overload
    def get_state_store(self, store: StoreBuilder[S], /) -> S: ...
    @overload
    def get_state_store(self, store: str, /) -> Any: ...
    def get_state_store(self, store: StoreBuilder[Any] | str, /) -> Any:
        """Return a store as it was built; None if there is none of that name.

        With several partitions it shows all of them: a key is looked up in its own.
        """
        name = store if isinstance(store, str) else store.name
        return driver_store(name, [*self._tasks, self._global_task])

    def get_key_value_store(self, name: str) -> Any:
        """Return a key-value store of plain values; None if there is none of that name."""
        return plain_values(self.get_state_store(name), BaseKeyValue)

    def get_timestamped_key_value_store(self, name: str) -> Any:
        """Return a key-value store with timestamps; None if there is none of that name."""
        return timestamped(self.get_state_store(name), BaseKeyValue)

    def get_window_store(self, name: str) -> Any:
        """Return a window store of plain values; None if there is none of that name."""
        return plain_values(self.get_state_store(name), WindowEntries)

    def get_timestamped_window_store(self, name: str) -> Any:
        """Return a window store with timestamps; None if there is none of that name."""
        return timestamped(self.get_state_store(name), WindowEntries)

    def get_session_store(self, name: str) -> Any:
        """Return a session store; None if there is none of that name."""
        return plain_values(self.get_state_store(name), SessionEntries)

    def get_versioned_key_value_store(self, name: str) -> Any:
        """Return a versioned store; None if there is none of that name."""
        return plain_values(self.get_state_store(name), Versioned)

    def get_all_state_stores(self) -> dict[str, Any]:
        """Return every store as it was built, by name, global ones included."""
        tasks = [*self._tasks, self._global_task]
        names = sorted({name for task in tasks for name in task.stores})
        return {name: driver_store(name, tasks) for name in names}

    def metrics(self) -> dict[MetricName, float]:
        """Return what was counted: records processed, and dropped by task, node and reason."""
        return task_metrics([*self._tasks, self._global_task])

    def close(self) -> None:
        """Close the processors. The output can still be read."""
        if not self._closed:
            self._closed = True
            for task in self._tasks:
                task.close()
            self._global_task.close()

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        """Process until nothing more can be processed."""
        progress = True
        while progress:
            progress = False
            for task in self._tasks:
                # As in Kafka's driver, a commit and all that a record causes follow at once.
                while task.process(limit=1):
                    progress = True
                    if self._commit_each_record or task.commit_requested:
                        task.commit()
                    self._route(task)
                self._route(task)  # dead letters of records that could not even be read

    def _route(self, task: Task) -> None:
        """Keep what a task wrote, and feed back what the topology reads itself."""
        for record in task.take_outputs():
            self._written.add(record.topic)
            self._outputs.setdefault(record.topic, deque()).append(record)
            if self._sources.of(record.topic) is not None:
                self._deliver(record)

    def _deliver(self, written: ProducerRecord) -> None:
        topic, partition, timestamp, key, value, headers = written
        partition = partition or 0
        offset = self._offsets.get((topic, partition), 0)
        size = payload_size(key, value, headers)
        if size > self._settings.max_record_bytes and topic not in self._repartitions:
            timestamp, headers = without_payload(timestamp, size)
            key = value = None
        record = ConsumerRecord(topic, partition, offset, timestamp, key, value, headers)
        if self._global_task.reads(topic):
            self._offsets[topic, partition] = offset + 1
            self._global_task.enqueue(topic, [record])
            self._global_task.process()
            self._global_task.commit()
            self._route(self._global_task)
            return
        source = self._sources.of(topic)
        for task in self._tasks:
            if source is not None and task.partition == partition and task.runs(source.name):
                self._offsets[topic, partition] = offset + 1
                task.enqueue(topic, [record])
                return
        raise StreamsError(self._unknown_topic(topic))

    def _partition_of(self, topic: str, key: bytes | None) -> int:
        if self._partitions == 1 or key is None or self._global_task.reads(topic):
            return 0
        base_key = getattr(self._serdes_of_source(topic)[0], "base_key", None)
        return partition_for_key(key if base_key is None else base_key(key), self._partitions)

    def _open_global_task(self) -> Task:
        subtopologies = [each for each in self._lowered.subtopologies if each.is_global]
        # Kafka's driver leaves records out that a global table cannot read.
        lenient = replace(
            self._settings,
            on_deserialization_error=built_in_handler("continue"),
            cache_max_bytes=0,
            max_task_idle_ms=0,
        )
        return Task(
            subtopologies,
            lenient,
            MemoryStores(),
            task_id="-1_0",
            wall_clock=self._wall_clock,
            on_step=self._on_step,
        )

    def _open_tasks(self) -> list[Task]:
        self._written: set[str] = set()
        subtopologies = [each for each in self._lowered.subtopologies if not each.is_global]
        if self._partitions == 1 and set(self._repartitions.values()) <= {1}:
            return [self._open_task(subtopologies, "0_0", 0)] if subtopologies else []
        tasks: list[Task] = []
        for subtopology in subtopologies:
            counts = [self._count_of(source) for source in subtopology.sources]
            tasks += [
                self._open_task([subtopology], f"{subtopology.id}_{number}", number)
                for number in range(max(counts, default=0))
            ]
        return tasks

    def _open_task(self, subtopologies: Iterable[Any], task_id: str, partition: int) -> Task:
        return Task(
            list(subtopologies),
            self._settings,
            MemoryStores(),
            task_id=task_id,
            partition=partition,
            global_stores=self._global_task.stores,
            wall_clock=self._wall_clock,
            partitions_of=lambda topic: self._repartitions.get(topic, self._partitions),
            ties=Ties.BY_ARRIVAL if self._partitions == 1 else Ties.BY_TOPIC,
            on_step=self._on_step,
        )

    def _count_of(self, source: SourceNode) -> int:
        if not source.internal:
            return self._partitions
        topics = (internal_topic(self._application_id, topic) for topic in source.topics)
        return max(self._repartitions[topic] for topic in topics)

    def _serdes_of_source(self, topic: str) -> tuple[Serde[Any], Serde[Any]]:
        source = self._sources.of(topic)
        if source is None:
            raise StreamsError(self._unknown_topic(topic))
        return source.key.need, source.value.need

    def _serdes_of_sink(self, topic: str) -> tuple[Serde[Any], Serde[Any]]:
        sinks = [n for n in self._lowered.graph.nodes.values() if isinstance(n, SinkNode)]
        fixed = {
            internal_topic(self._application_id, sink.topic) if sink.internal else sink.topic: sink
            for sink in reversed(sinks)
            if isinstance(sink.topic, str)
        }
        choosers = (sink for sink in sinks if not isinstance(sink.topic, str))
        sink = fixed.get(topic) or next(choosers, None)
        if sink is not None:
            return sink.key.need, sink.value.need
        msg = (
            f"The topology writes no topic {topic!r}, only {sorted(fixed)}. "
            "Correct the name, or give `key=` and `value=`."
        )
        raise StreamsError(msg)

    def _unknown_topic(self, topic: str) -> str:
        known: set[str] = set()
        for node in self._lowered.graph.nodes.values():
            if isinstance(node, SourceNode) and not node.internal:
                known.update(node.topics)
            elif isinstance(node, GlobalStoreNode):
                known.add(node.topic)
        near = get_close_matches(topic, known, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"It reads {sorted(known)}."
        return f"The topology does not read topic {topic!r}. {hint}"

    def _check_open(self) -> None:
        if self._closed:
            msg = "The test driver is closed. Make a new one."
            raise StreamsError(msg)


def _bound(
    given: SerdeLike[Any] | None, own: Serde[Any], topic: str, *, is_key: bool
) -> Serde[Any]:
    serde = own if given is None else serde_for(given)
    return serde_for_topic(serde, topic, is_key=is_key)
