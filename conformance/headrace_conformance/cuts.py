"""Cuts the input of a scenario into batches that are processed in the order it is piped.

A batch gives a task its records in the order of their times. So a batch ends where a record would
overtake one that was piped before it, and wherever the scenario looks: at the clock, at a store.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from headrace.topology.lower import LoweredTopology
from headrace.topology.nodes import GlobalStoreNode, SinkNode
from headrace.topology.subtopologies import Subtopology
from headrace_conformance.build import Scenario

Piped: TypeAlias = "tuple[str, int | None]"
"""Topic and time of a record; without a time it has that of the clock."""


@dataclass
class Segment:
    """Steps that one batch may take together."""

    clock: int
    """The time of day."""
    pipes: list[int] = field(default_factory=list)
    """The numbers of the steps that pipe a record."""
    waits: list[int] = field(default_factory=list)
    """The numbers of the steps that only advance time."""
    looks: list[int] = field(default_factory=list)
    """The numbers of the steps that look at stores when the batch is done."""

    @property
    def steps(self) -> list[int]:
        """The steps that may make records."""
        return [*self.waits, *self.pipes]


def segments_of(
    scenario: Scenario, lowered: LoweredTopology, *, each_step: bool = False
) -> list[Segment]:
    """Return the steps of a scenario as batches; the first one is the start, without records.

    Args:
        scenario: The scenario.
        lowered: The topology it runs.
        each_step: Whether to cut after each step even if the order would be the same.
    """
    together = Together(lowered)
    alone = each_step or not _may_be_together(scenario, together) or not together.is_possible()
    segments = [Segment(scenario.get("config", {}).get("wall_clock", 0))]
    steps = scenario["steps"]
    for number, step in enumerate(steps):
        last = segments[-1]
        if "advance_wall_clock" in step:
            clock = last.clock + step["advance_wall_clock"]
            segments.append(Segment(clock, waits=[number]))
        elif "pipe" not in step:
            last.looks.append(number)
        elif (
            not alone
            and last.pipes
            and not last.looks
            and together.fits([_piped(steps[each]) for each in (*last.pipes, number)])
        ):
            last.pipes.append(number)
        else:
            segments.append(Segment(last.clock, pipes=[number]))
    return segments


def _may_be_together(scenario: Scenario, together: Together) -> bool:
    config = scenario.get("config", {})
    if config.get("cache") or "max_task_idle_ms" in config:
        return False  # what a cache holds back depends on the batch, and so does waiting
    if "timestamp_extractor" in json.dumps(scenario) and together.merges:
        return False
    return "dead_letter_queue" not in config  # dead letters of all parts go to one topic


def _piped(step: Mapping[str, Any]) -> Piped:
    return step["pipe"], step.get("ts")


def depends_on_clock(scenario: Scenario) -> bool:
    """Return whether the time of day makes a difference.

    Advancing it does not, as long as no step reads it: a schedule by stream time is called
    with the stream's time.
    """
    config = dict(scenario.get("config", {}))
    config.pop("wall_clock", None)
    program = [part for name, part in scenario.items() if name not in ("why", "config", "steps")]
    text = json.dumps([config, program])
    return (
        "wall_clock" in text
        or "max_task_idle_ms" in config
        or "@now" in json.dumps(_without_punctuations(program))
        or any("pipe" in step and step.get("ts") is None for step in scenario["steps"])
    )


def _without_punctuations(part: Any) -> Any:
    """Return a part of a scenario without what is done when a schedule is due."""
    if isinstance(part, list):
        return [_without_punctuations(each) for each in part]
    if not isinstance(part, dict):
        return part
    done_later = "then" if part.get("do") == "schedule" else None
    return {name: _without_punctuations(each) for name, each in part.items() if name != done_later}


class Together:
    """Finds the records that one batch may have and process in the order they are piped.

    Args:
        lowered: The topology that processes them.
    """

    def __init__(self, lowered: LoweredTopology) -> None:
        self._parts = [part for part in lowered.subtopologies if not part.is_global]
        self._global_topics = {
            node.topic for node in lowered.graph.nodes.values() if isinstance(node, GlobalStoreNode)
        }
        self._several = [part for part in self._parts if _inputs(part) > 1]

    @property
    def merges(self) -> bool:
        """Return whether some task takes turns between inputs."""
        return bool(self._several)

    def is_possible(self) -> bool:
        """Return whether the order of records is decided by their times alone."""
        if any(source.internal for part in self._several for source in part.sources):
            return False  # what comes through a repartition meets what does not
        written = [topic for part in self._parts for topic in _written(part)]
        if None in written or len(written) != len(set(written)):
            return False  # subtopologies that write one topic take turns in each batch
        read = {topic for part in self._parts for source in part.sources for topic in source.topics}
        feeds_back = set(written) & (read | self._global_topics)
        internal = {s.topics[0] for part in self._parts for s in part.sources if s.internal}
        return not feeds_back - internal

    def fits(self, piped: Sequence[Piped]) -> bool:
        """Return whether the last record may join the others, overtaking and overtaken by none."""
        if piped[-1][0] in self._global_topics:
            return all(topic in self._global_topics for topic, _ in piped)
        if any(time is None for _, time in piped) and self._several:
            return False
        return all(self._in_order(piped, part) for part in self._several)

    def _in_order(self, piped: Iterable[Piped], part: Subtopology) -> bool:
        topics = [topic for source in part.sources for topic in source.topics]
        patterns = [source.pattern for source in part.sources if source.pattern is not None]
        mine = [
            (topic, time)
            for topic, time in piped
            if topic in topics or any(pattern.fullmatch(topic) for pattern in patterns)
        ]
        queues: dict[str, list[int]] = {}
        for topic, time in mine:
            queues.setdefault(topic, []).append(time or 0)
        for topic, _ in mine:
            first = min((queue[0], name) for name, queue in queues.items() if queue)
            if first[1] != topic:
                return False
            queues[topic].pop(0)
        return True


def _inputs(part: Subtopology) -> int:
    return sum(2 if source.pattern else len(source.topics) for source in part.sources)


def _written(part: Subtopology) -> set[str | None]:
    """Return the topics of a part; None for those that are chosen per record."""
    return {
        node.topic if isinstance(node.topic, str) else None
        for node in part.nodes.values()
        if isinstance(node, SinkNode)
    }
