"""Where the input of a scenario must be cut into batches to be processed in the order it is piped.

A batch gives a task its records in the order of their times. So a batch ends where a record would
overtake one that was piped before it, and wherever the scenario looks: at the clock, at a store.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.topology.lower import LoweredTopology
from headrace.topology.nodes import GlobalStoreNode, SinkNode
from headrace.topology.subtopologies import SubTopology
from headrace_conformance.build import Scenario


@dataclass
class Segment:
    """Steps that one batch may take together."""

    clock: int
    """The time of day."""
    pipes: list[int] = field(default_factory=list)
    """The numbers of the steps that pipe a record."""
    waits: list[int] = field(default_factory=list)
    """The numbers of the steps that only let time go on."""
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
        lowered: What it runs.
        each_step: Whether to cut after each step even if the order would be the same.
    """
    together = _Together(scenario, lowered)
    alone = each_step or not together.is_possible()
    segments = [Segment(scenario.get("config", {}).get("wall_clock", 0))]
    for number, step in enumerate(scenario["steps"]):
        last = segments[-1]
        if "advance_wall_clock" in step:
            clock = last.clock + step["advance_wall_clock"]
            segments.append(Segment(clock, waits=[number]))
        elif "pipe" not in step:
            last.looks.append(number)
        elif not alone and last.pipes and not last.looks and together.fits(last.pipes, number):
            last.pipes.append(number)
        else:
            segments.append(Segment(last.clock, pipes=[number]))
    return segments


def depends_on_clock(scenario: Scenario) -> bool:
    """Return whether the time of day makes a difference."""
    text = json.dumps(scenario)
    words = ("wall_clock", '"@now', "max_task_idle_ms")
    return any(word in text for word in words)


class _Together:
    """Says which records of a scenario may come in one batch."""

    def __init__(self, scenario: Scenario, lowered: LoweredTopology) -> None:
        self._scenario = scenario
        self._steps: Sequence[Mapping[str, Any]] = scenario["steps"]
        self._parts = [part for part in lowered.subtopologies if not part.is_global]
        self._global_topics = {
            node.topic for node in lowered.graph.nodes.values() if isinstance(node, GlobalStoreNode)
        }
        self._several = [part for part in self._parts if _inputs(part) > 1]

    def is_possible(self) -> bool:
        """Return whether the order of records is decided by their times alone."""
        config = self._scenario.get("config", {})
        if config.get("cache") or "max_task_idle_ms" in config:
            return False  # what a cache holds back depends on the batch, and so does waiting
        if "timestamp_extractor" in json.dumps(self._scenario) and self._several:
            return False
        if any(source.internal for part in self._several for source in part.sources):
            return False  # what comes through a repartition meets what does not
        written = [topic for part in self._parts for topic in _written(part)]
        if None in written or len(written) != len(set(written)):
            return False  # sub-topologies that write one topic take turns in each batch
        read = {topic for part in self._parts for source in part.sources for topic in source.topics}
        feeds_back = set(written) & (read | self._global_topics)
        internal = {s.topics[0] for part in self._parts for s in part.sources if s.internal}
        return not feeds_back - internal and not self._fans_out()

    def _fans_out(self) -> bool:
        # Dead letters of all parts go to one topic.
        return "dead_letter_queue" in self._scenario.get("config", {})

    def fits(self, numbers: Sequence[int], number: int) -> bool:
        """Return whether a step may join others without being overtaken, or overtaking."""
        piped = [self._steps[each] for each in (*numbers, number)]
        if piped[-1]["pipe"] in self._global_topics:
            return all(step["pipe"] in self._global_topics for step in piped)
        if any("ts" not in step for step in piped) and self._several:
            return False
        return all(self._in_order(piped, part) for part in self._several)

    def _in_order(self, piped: Iterable[Mapping[str, Any]], part: SubTopology) -> bool:
        topics = [topic for source in part.sources for topic in source.topics]
        patterns = [source.pattern for source in part.sources if source.pattern is not None]
        mine = [
            step
            for step in piped
            if step["pipe"] in topics or any(p.fullmatch(step["pipe"]) for p in patterns)
        ]
        queues: dict[str, list[Mapping[str, Any]]] = {}
        for step in mine:
            queues.setdefault(step["pipe"], []).append(step)
        for step in mine:
            first = min((queue[0]["ts"], topic) for topic, queue in queues.items() if queue)
            if first[1] != step["pipe"]:
                return False
            queues[step["pipe"]].pop(0)
        return True


def _inputs(part: SubTopology) -> int:
    return sum(2 if source.pattern else len(source.topics) for source in part.sources)


def _written(part: SubTopology) -> set[str | None]:
    """Return the topics of a part; None for those that are chosen per record."""
    return {
        node.topic if isinstance(node.topic, str) else None
        for node in part.nodes.values()
        if isinstance(node, SinkNode)
    }
