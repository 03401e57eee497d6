"""The execution plan: which stage of the query runs which subtopology.

It is data, made before a broker is read or Spark starts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

import msgspec

from headrace.config import StreamsConfig
from headrace.config.topology_defaults import topology_defaults
from headrace.state.specs import StoreBuilder
from headrace.timestamps import TimestampExtractor, uses_partition_time
from headrace.topology.lower import LoweredTopology
from headrace.topology.naming import changelog_topic, internal_topic
from headrace.topology.nodes import Node, SourceNode
from headrace.topology.sources import source_matching
from headrace.topology.subtopologies import Subtopology
from headrace.topology.topology import Topology

GLOBAL_SUBTOPOLOGY = -1
"""The number of all global subtopologies together."""
GLOBAL_TASK = f"{GLOBAL_SUBTOPOLOGY}_0"
"""The task that keeps the global stores."""


@dataclass(frozen=True)
class PlannedSubtopology:
    """A subtopology, and where it runs."""

    subtopology: Subtopology
    stage: int
    """0: in the reader of the source. 1 and more: in the stateful operator of that number."""
    topics: tuple[str, ...]
    """The topics of the broker that it reads, loop topics included."""
    repartitions: tuple[str, ...]
    """The repartitions it reads from earlier stages, by their full names. No broker has them."""
    upstream: tuple[int, ...]
    """The subtopologies that write its repartitions."""
    looks_up: bool
    """Whether it may look up global stores."""
    may_schedule: bool
    """Whether a processor of it may schedule punctuations."""
    may_wait: bool
    """Whether its tasks wait for an empty input (`max.task.idle.ms` is above 0)."""

    @property
    def id(self) -> int:
        return self.subtopology.id

    @property
    def nodes(self) -> Mapping[str, Node]:
        return self.subtopology.nodes

    @property
    def stores(self) -> Mapping[str, StoreBuilder[Any]]:
        return self.subtopology.stores

    @property
    def sources(self) -> list[SourceNode]:
        return self.subtopology.sources

    @cached_property
    def has_pattern(self) -> bool:
        """Return whether a source subscribes to a pattern of topic names."""
        return any(source.pattern is not None for source in self.sources)

    @property
    def has_several_inputs(self) -> bool:
        """Return whether its tasks choose among the records of several partitions."""
        return self.has_pattern or len(self.topics) + len(self.repartitions) > 1

    @property
    def runs_every_batch(self) -> bool:
        """Return whether its tasks are called in each batch, with or without records.

        A punctuation may be due, or an input they wait for may have no more records; only the
        task can check.
        """
        waits = self.may_wait or bool(self.repartitions)
        return self.may_schedule or (waits and self.has_several_inputs)


@dataclass(frozen=True)
class ExecutionPlan:
    """The plan by which one topology becomes one streaming query."""

    application_id: str
    subtopologies: tuple[PlannedSubtopology, ...]
    global_subtopologies: tuple[Subtopology, ...]
    repartitions: dict[str, int | None]
    """Repartitions by their full names, with the partitions that the program requests."""
    loops: dict[str, int | None]
    """Loop topics, with the partitions that the program requests: repartitions on the broker, read
    in a later batch, because their reader is also upstream of them, as in a foreign-key join."""
    writers: dict[str, tuple[int, ...]]
    """The subtopologies that write each repartition and each loop topic."""
    copartitions: tuple[frozenset[str], ...]
    """Topics and repartitions that must have the same number of partitions."""

    @cached_property
    def stages(self) -> int:
        """Return how many stateful operators the query has, in a row."""
        return max(
            [0, *(subtopology.stage for subtopology in self.subtopologies), *self.global_stages()]
        )

    @cached_property
    def global_topics(self) -> tuple[str, ...]:
        """The topics of global tables and stores."""
        return tuple(
            node.global_topic
            for subtopology in self.global_subtopologies
            for node in subtopology.nodes.values()
            if node.global_topic is not None
        )

    @cached_property
    def table_topics(self) -> frozenset[str]:
        """The topics that are read as tables."""
        return frozenset(
            topic
            for subtopology in self.subtopologies
            for node in subtopology.nodes.values()
            if node.reads_topic_as_table
            for source in subtopology.sources
            if source.name in node.parents
            for topic in full_names(source, self.application_id)
        )

    @cached_property
    def written_topics(self) -> frozenset[str]:
        """The topics that the application writes on the broker, as far as sinks name them."""
        return frozenset(self.loops).union(
            node.output_topic
            for subtopology in self.subtopologies
            for node in subtopology.nodes.values()
            if node.output_topic is not None
        )

    @cached_property
    def changelogs(self) -> dict[str, tuple[int, StoreBuilder[Any]]]:
        """The changelog topics, each with its subtopology and store.

        One task keeps the stores of all global subtopologies: that of `GLOBAL_SUBTOPOLOGY`.
        """
        subtopologies = [
            *((each.id, each.stores) for each in self.subtopologies),
            *((GLOBAL_SUBTOPOLOGY, each.stores) for each in self.global_subtopologies),
        ]
        return {
            changelog_topic(self.application_id, store.name): (subtopology, store)
            for subtopology, stores in subtopologies
            for store in stores.values()
            if store.queryable
        }

    @cached_property
    def stores_digest(self) -> str:
        """The digest of names, kinds and times of the stores that can be queried."""
        facts = [
            (topic, store.kind, store.retention_ms, store.size_ms, store.retain_duplicates)
            for topic, (_, store) in sorted(self.changelogs.items())
        ]
        return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:16]

    def reader_of(self, topic: str) -> PlannedSubtopology | None:
        """Return the subtopology that reads a topic; None for a global one.

        Raises `TopologyError` if the patterns of two sources match it.
        """
        for subtopology in self.subtopologies:
            if topic in subtopology.topics:
                return subtopology
        source = source_matching(topic, self._pattern_sources)
        if source is None:
            return None
        return next(
            subtopology for subtopology in self.subtopologies if source.name in subtopology.nodes
        )

    @cached_property
    def _pattern_sources(self) -> tuple[SourceNode, ...]:
        return tuple(
            source
            for subtopology in self.subtopologies
            for source in subtopology.sources
            if source.pattern
        )

    def global_stages(self) -> list[int]:
        """Return the stages that keep global stores: those that may look one up, else the first."""
        used = sorted(
            {subtopology.stage for subtopology in self.subtopologies if subtopology.looks_up}
        )
        return used or [1] * bool(self.global_subtopologies)

    def subtopology(self, number: int) -> PlannedSubtopology:
        return next(subtopology for subtopology in self.subtopologies if subtopology.id == number)

    def upstream_ids(self, subtopology: PlannedSubtopology) -> set[int]:
        """Return all subtopologies whose records reach this one through repartitions."""
        ids = set(subtopology.upstream)
        for number in subtopology.upstream:
            ids |= self.upstream_ids(self.subtopology(number))
        return ids


def plan_topology(topology: Topology, config: StreamsConfig) -> ExecutionPlan:
    """Decide how a topology runs. Reads no broker and starts nothing.

    Raises:
        TopologyError: The program is wrong, or a step has no serde.
        ConfigError: There is no application id.
    """
    lowered = topology.lowered(topology_defaults(config))
    application_id = config.require_application_id()
    global_subtopologies = tuple(
        subtopology for subtopology in lowered.subtopologies if subtopology.is_global
    )
    writers = _writers(lowered, application_id)
    planned, loops = _plan_subtopologies(
        [subtopology for subtopology in lowered.subtopologies if not subtopology.is_global],
        config,
        writers,
        has_globals=bool(global_subtopologies),
    )
    names = {
        source.name: full_names(source, application_id)
        for subtopology in lowered.subtopologies
        for source in subtopology.sources
    }
    requested = {
        internal_topic(application_id, topic): count
        for topic, count in lowered.repartitions.items()
    }
    return ExecutionPlan(
        application_id=application_id,
        subtopologies=planned,
        global_subtopologies=global_subtopologies,
        repartitions={topic: count for topic, count in requested.items() if topic not in loops},
        loops={topic: requested[topic] for topic in loops},
        writers={topic: tuple(sorted(subtopologies)) for topic, subtopologies in writers.items()},
        copartitions=tuple(
            frozenset(topic for name in group for topic in names.get(name, ()))
            for group in lowered.graph.copartitions
        ),
    )


def _plan_subtopologies(
    waiting: list[Subtopology],
    config: StreamsConfig,
    writers: Mapping[str, set[int]],
    *,
    has_globals: bool,
) -> tuple[tuple[PlannedSubtopology, ...], list[str]]:
    """Return the planned subtopologies, by number, and the loop topics.

    A subtopology is planned after all that write its repartitions. If each of the rest waits for
    another, one of their repartitions becomes a loop topic, for which none has to wait.
    """
    application_id = config.require_application_id()
    internal = {
        subtopology.id: _read(subtopology, application_id, internal=True) for subtopology in waiting
    }
    planned: dict[int, PlannedSubtopology] = {}
    loops: list[str] = []
    while waiting:
        for subtopology in waiting:
            repartitions = tuple(topic for topic in internal[subtopology.id] if topic not in loops)
            upstream = {writer for topic in repartitions for writer in writers[topic]}
            if upstream <= planned.keys():
                break
        else:
            loops.append(_find_loop(internal, writers, loops))
            continue
        waiting.remove(subtopology)
        operations = [
            node.bound_operation for node in subtopology.nodes.values() if node.bound_operation
        ]
        topics = _read(subtopology, application_id, internal=False)
        topics += tuple(topic for topic in internal[subtopology.id] if topic in loops)
        stage = 1 + max((planned[number].stage for number in upstream), default=0)
        if not repartitions and _runs_in_reader(
            subtopology, topics, config.default_timestamp_extractor
        ):
            stage = 0
        planned[subtopology.id] = PlannedSubtopology(
            subtopology=subtopology,
            stage=stage,
            topics=topics,
            repartitions=repartitions,
            upstream=tuple(sorted(upstream)),
            looks_up=has_globals
            and any(operation.looks_up_global_stores for operation in operations),
            may_schedule=any(operation.may_schedule for operation in operations),
            may_wait=config.max_task_idle > timedelta(0),
        )
    return tuple(planned[number] for number in sorted(planned)), loops


def _find_loop(
    internal: Mapping[int, tuple[str, ...]], writers: Mapping[str, set[int]], loops: list[str]
) -> str:
    """Return a repartition whose reader is also upstream of it."""
    for reader, topics in internal.items():
        for topic in topics:
            upstream, found = set[int](), set() if topic in loops else set(writers[topic])
            while found:
                upstream |= found
                read = {source for number in found for source in internal[number]}
                found = {number for source in read.difference(loops) for number in writers[source]}
                found -= upstream
            if reader in upstream:
                return topic
    msg = "no repartition leads back, and yet none can be planned"
    raise AssertionError(msg)


def full_names(node: SourceNode, application_id: str) -> tuple[str, ...]:
    """Return the topics that a source names; internal ones with the application's prefix."""
    if not node.internal:
        return node.topics
    return tuple(internal_topic(application_id, topic) for topic in node.topics)


def _read(subtopology: Subtopology, application_id: str, *, internal: bool) -> tuple[str, ...]:
    return tuple(
        topic
        for source in subtopology.sources
        if source.internal is internal
        for topic in full_names(source, application_id)
    )


def _writers(lowered: LoweredTopology, application_id: str) -> dict[str, set[int]]:
    writers: dict[str, set[int]] = {
        internal_topic(application_id, topic): set() for topic in lowered.repartitions
    }
    for subtopology in lowered.subtopologies:
        for node in subtopology.nodes.values():
            if node.repartition_topic is not None:
                topic = internal_topic(application_id, node.repartition_topic)
                writers[topic].add(subtopology.id)
    return writers


def _runs_in_reader(
    subtopology: Subtopology, topics: tuple[str, ...], default_extractor: TimestampExtractor
) -> bool:
    """Return whether a task needs neither state nor another partition's records."""
    if len(topics) != 1 or any(source.pattern is not None for source in subtopology.sources):
        return False
    extractors = (each.timestamp_extractor or default_extractor for each in subtopology.sources)
    return not any(node.keeps_state for node in subtopology.nodes.values()) and not any(
        uses_partition_time(extractor) for extractor in extractors
    )
