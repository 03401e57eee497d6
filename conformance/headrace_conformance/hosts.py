"""Runs scenarios on hosts that take records in batches: the runtime, with or without Spark."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from headrace import ConsumerRecord, Headers, StreamsConfig, StreamsError, Topology
from headrace.brokers.log import RawRecord
from headrace.config.topology_defaults import topology_defaults
from headrace.metrics import MetricName, dropped_metrics
from headrace.runtime.plan import plan_topology
from headrace_conformance.build import Scenario
from headrace_conformance.compare import Recorded, behaviour_differences
from headrace_conformance.cuts import Segment, segments_of
from headrace_conformance.joined import Joined, Part, unmarked
from headrace_conformance.run import Result, Run


class Host(Protocol):
    """A host of a topology on a log."""

    def run(self, records: Sequence[RawRecord], clock: int, /) -> None:
        """Write records to their topics, and process them and what follows at this time of day."""
        ...

    def written(self, topics: Iterable[str], /) -> Iterable[ConsumerRecord]:
        """Return what was written to topics since the last call, in the order of each topic."""
        ...

    def dropped(self) -> Mapping[str, Mapping[str, Mapping[str, int]]]:
        """Return how many records were dropped, by task, node and reason."""
        ...

    def store(self, name: str, /) -> Any:
        """Return a store; None while the host cannot show it, which it can at the end."""
        ...


class PatientHost:
    """A host that has finished when it has read, too, what it writes for itself.

    Kafka shows a transaction shortly after its end: until then a host finds nothing left to do.

    Args:
        host: Where the topology runs; it yields the records it has counted, however long it takes.
        own_topics: The topics it both writes and reads: those of foreign-key joins, and others.
    """

    def __init__(self, host: Host, own_topics: Iterable[str]) -> None:
        self._host = host
        self._own_topics = list(own_topics)
        self._written: list[ConsumerRecord] = []
        """The records read of those on the way."""

    def run(self, records: Sequence[RawRecord], clock: int) -> None:
        """Write records to their topics, and process them and all that follows."""
        self._host.run(records, clock)
        # A separate batch reads the awaited records, and may write again.
        while new := [*self._host.written(self._own_topics)]:
            self._written += new
            self._host.run([], clock)

    def written(self, topics: Iterable[str]) -> Iterator[ConsumerRecord]:
        """Yield what was written to topics since the last call."""
        asked = list(topics)
        read = self._written
        self._written = [record for record in read if record.topic not in asked]
        yield from (record for record in read if record.topic in asked)
        yield from self._host.written(asked)

    def dropped(self) -> Mapping[str, Mapping[str, Mapping[str, int]]]:
        """Return how many records were dropped."""
        return self._host.dropped()

    def store(self, name: str) -> Any:
        """Return a store as the host shows it."""
        return self._host.store(name)


class HostedRun(Run):
    """One scenario of many on a host, step by step."""

    def __init__(self, part: Part, host: Host, config: StreamsConfig, *, each_step: bool) -> None:
        self._front = _Front(host)
        super().__init__(part.scenario, part.build, self._front, part.topology)  # type: ignore[arg-type]  # what is asked of a driver, it has
        self._host = host
        self.part = part
        lowered = part.topology.lowered(topology_defaults(config))
        self._nodes = {*lowered.graph.nodes, *lowered.graph.stores}
        self.segments = segments_of(part.scenario, lowered, each_step=each_step)
        self.done: list[Any] = []
        """For each segment what was written, by topic."""
        self.looked: dict[int, Any] = {}
        self.error: StreamsError | None = None

    def pipe(self, segment: Segment) -> list[RawRecord]:
        """Return the records of a segment."""
        self._front.clock = segment.clock
        for number in segment.pipes:
            self._pipe(self._scenario["steps"][number])
        return self._front.take()

    def look(self, segment: Segment, written: Mapping[str, list[ConsumerRecord]]) -> None:
        """Note what a segment has brought about."""
        self._front.arrived = written
        self.done.append(self._written())
        for number in segment.looks:
            step = self._scenario["steps"][number]
            if "query" in step:
                if self._front.get_state_store(step["query"]["store"]) is not None:
                    self.looked[number] = {"rows": self._rows(step["query"])}
            elif self._front.get_state_store(step["snapshot"]) is not None:
                self.looked[number] = {"store": self._contents(step["snapshot"])}

    def result(self) -> Result:
        """Return what happened, in the shape of a golden with one step for each segment."""
        steps: list[Any] = []
        for segment, out in zip(self.segments, self.done, strict=False):
            steps.append({"out": out})
            steps += [self.looked[number] for number in segment.looks if number in self.looked]
        if self.error is not None:
            error = {"type": type(self.error).__name__, "causes": [], "message": str(self.error)}
            steps.append({"error": error, "out": {}})
        dropped = {
            task: sum(sum(counts.values()) for counts in nodes.values())
            for task, nodes in self._host.dropped().items()
            if any(node in self._nodes for node in nodes)
        }
        stores = {
            name: self._contents(name)
            for name in sorted(self._build.stores)
            if self.error is None and self._front.get_state_store(name) is not None
        }
        effects = {
            name: list(seen) if not isinstance(seen, list) else seen
            for name, seen in self._build.effects.items()
        }
        printed = {name: file.getvalue().splitlines() for name, file in self._build.printed.items()}
        shown = {name: seen for name, seen in {**effects, **printed}.items() if seen}
        result = {"steps": steps, "stores": stores, "dropped_by_task": dropped, "effects": shown}
        return dict(unmarked(result, self.part.mark))

    def differences(self, golden: Recorded) -> list[str]:
        """Return how a scenario differs from what was recorded, when the host has run it.

        The stores that a scenario reads between steps are left out if the host cannot show them.
        """
        result = self.result()
        wanted = self._as_segments(golden)
        result["topics"], wanted["topics"] = {}, {}
        # No task that reports its dropped records keeps global stores.
        for recorded in (result, wanted):
            recorded["dropped_by_task"] = {
                task: count
                for task, count in recorded["dropped_by_task"].items()
                if not task.startswith("-1_")
            }
        return behaviour_differences(result, wanted)

    def _as_segments(self, golden: Recorded) -> dict[str, Any]:
        """Return a golden with its steps put together as batches took them."""
        steps: list[Any] = []
        for segment in self.segments:
            out: dict[str, list[Any]] = {}
            for number in segment.steps:
                if number >= len(golden["steps"]):
                    return {**golden, "steps": steps, "stores": dict(golden["stores"])}
                step = golden["steps"][number]
                if "error" in step:
                    return {**golden, "steps": [*steps, step], "stores": {}}
                for topic, records in step.get("out", {}).items():
                    out.setdefault(topic, []).extend(records)
            steps.append({"out": out})
            for number in segment.looks:
                if "error" in golden["steps"][number]:
                    return {**golden, "steps": [*steps, golden["steps"][number]], "stores": {}}
                if number in self.looked:
                    steps.append(golden["steps"][number])
        return {**golden, "steps": steps, "stores": dict(golden["stores"])}


class _Front:
    """A test driver for scenarios, backed by a host."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.clock = 0
        self.arrived: Mapping[str, list[ConsumerRecord]] = {}
        self._piped: list[RawRecord] = []

    def take(self) -> list[RawRecord]:
        piped, self._piped = self._piped, []
        return piped

    def create_input_topic(self, topic: str, **_serdes: Any) -> _Input:
        return _Input(self, topic)

    def create_output_topic(self, topic: str, **_serdes: Any) -> _Output:
        return _Output(self, topic)

    def pipe(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers
    ) -> None:
        self._piped.append((topic, 0, timestamp, key, value, headers))

    def get_state_store(self, name: str) -> Any:
        return self._host.store(name)

    def metrics(self) -> dict[MetricName, float]:
        found: dict[MetricName, float] = {}
        for task, dropped in self._host.dropped().items():
            found |= dropped_metrics(task, {node: dict(each) for node, each in dropped.items()})
        return found


class _Input:
    def __init__(self, front: _Front, topic: str) -> None:
        self._front = front
        self._topic = topic

    def pipe_input(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        timestamp: int | None,
        headers: Headers,
    ) -> None:
        time = self._front.clock if timestamp is None else timestamp
        self._front.pipe(self._topic, key, value, time, headers)


class _Output:
    def __init__(self, front: _Front, topic: str) -> None:
        self._front = front
        self._topic = topic

    def read_records_to_list(self) -> list[ConsumerRecord]:
        return self._front.arrived.get(self._topic, [])


def run_joined(
    joined: Joined, host: Host, config: StreamsConfig, *, each_step: bool = False
) -> dict[str, HostedRun]:
    """Run scenarios together: the first batch of all, then the second, and so on.

    The time of day never goes back: those whose next batch is later wait for the others.

    Args:
        joined: The scenarios; those that depend on the clock have the same clock.
        host: Where they run.
        config: Their settings.
        each_step: Whether to cut after each step even if the order would be the same.
    """
    runs = [HostedRun(part, host, config, each_step=each_step) for part in joined.parts]
    outputs = {topic: run for run in runs for topic in run.part.build.outputs}
    left = [(run, deque(run.segments)) for run in runs]
    while left:
        clock = min(segments[0].clock for _, segments in left)
        going = [(run, some.popleft()) for run, some in left if some[0].clock == clock]
        left = [(run, segments) for run, segments in left if segments]
        piped = [record for run, segment in going for record in run.pipe(segment)]
        try:
            host.run(piped, clock)
        except StreamsError as error:
            if len(runs) > 1:
                raise
            runs[0].error = error
            break
        written: dict[str, dict[str, list[ConsumerRecord]]] = {}
        for record in host.written(outputs):
            of_run = written.setdefault(outputs[record.topic].part.name, {})
            of_run.setdefault(record.topic, []).append(record)
        for run, segment in going:
            run.look(segment, written.get(run.part.name, {}))
    return {run.part.name: run for run in runs}


def own_topics(topology: Topology, config: StreamsConfig) -> list[str]:
    """Return the topics of the log that an application both writes and reads."""
    plan = plan_topology(topology, config)
    return sorted(
        topic
        for topic in plan.written_topics
        if topic in plan.global_topics or plan.reader_of(topic) is not None
    )


def topics_of(joined: Joined) -> Iterator[str]:
    """Yield the topics that scenarios read or write, without patterns."""
    seen: set[str] = set()
    for part in joined.parts:
        piped = (step["pipe"] for step in part.scenario["steps"] if "pipe" in step)
        for topic in (*_sources(part.scenario), *piped, *part.build.outputs):
            if topic not in seen:
                seen.add(topic)
                yield topic


def _sources(scenario: Scenario) -> Iterator[str]:
    for entry in (*scenario.get("sources", ()), *scenario.get("topology", ())):
        if entry.get("add", "source") in ("source", "global_store"):
            yield from entry.get("topics", [entry["topic"]] if "topic" in entry else [])
