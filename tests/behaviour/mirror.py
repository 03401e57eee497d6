"""Repeats the calls of a test to the test driver on another host: both must write the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

from headrace_conformance.cuts import Together

from headrace import ConsumerRecord, Headers, StreamsConfig, StreamsError, Topology
from headrace.brokers.log import RawRecord
from headrace.durations import Duration, duration_ms
from headrace.records import timestamp_ms
from headrace.runtime.plan import GLOBAL_TASK
from headrace.state.cache import RecordCache
from headrace.testing import TopologyTestDriver
from headrace.topology.nodes import GlobalStoreNode, SinkNode, SourceNode

_OF_THE_DRIVER = ("config", "initial_wall_clock_time", "partitions", "commit_each_record")


@dataclass(frozen=True)
class Pipe:
    """A record that a test piped."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


@dataclass(frozen=True)
class Advance:
    """The wall clock advanced."""

    milliseconds: int


@dataclass(frozen=True)
class Commit:
    """The test let the driver commit."""


Event: TypeAlias = "Pipe | Advance | Commit"
Shown: TypeAlias = "tuple[bytes | None, bytes | None, int, Headers]"
"""Key, value, timestamp and headers of a record that was written."""


class RecordingDriver(TopologyTestDriver):
    """A test driver that remembers what was done with it."""

    def __init__(self, topology: Topology, **options: Any) -> None:
        super().__init__(topology, **options)
        self.topology, self.options = topology, options
        self.events: list[Event] = []

    def pipe_raw(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers
    ) -> None:
        self.events.append(Pipe(topic, key, value, timestamp, headers))
        super().pipe_raw(topic, key, value, timestamp, headers)

    def advance_wall_clock_time(self, duration: Duration) -> None:
        super().advance_wall_clock_time(duration)
        self.events.append(Advance(duration_ms(duration, what="duration")))

    def commit(self) -> None:
        self.events.append(Commit())
        super().commit()


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


@dataclass
class Outcome:
    """The results of a host."""

    topics: dict[str, list[Shown]] = field(default_factory=dict)
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many records were dropped, by node and reason."""
    stores: dict[str, list[Any]] = field(default_factory=dict)
    """The entries of each store that can list them, in the order of their keys."""
    error: str = ""
    """The kind of error that ended it."""


class Mirror:
    """Repeats the recorded calls to a driver on another host.

    Args:
        recorded: The calls.
        application_id: The application's name there; as on the driver if left out.
        first_timestamp: The earliest time that the host's log takes.
        few_batches: Whether records that keep their order come in one batch.
    """

    def __init__(
        self,
        recorded: RecordingDriver,
        *,
        application_id: str | None = None,
        first_timestamp: int = 0,
        few_batches: bool = False,
    ) -> None:
        self._first = first_timestamp
        self._events = [self._moved(event) for event in recorded.events]
        options: Any = dict(recorded.options)
        own = {name: options.pop(name) for name in _OF_THE_DRIVER if name in options}
        self.topology = recorded.topology
        self.partitions: int = own.get("partitions", 1)
        given = StreamsConfig.merged(own.get("config"), options)
        self.config = given.with_settings(application_id=application_id or recorded._application_id)
        self._clock = timestamp_ms(own.get("initial_wall_clock_time", 0))
        self._commits_each: bool = own.get("commit_each_record", True)
        self._driver = TopologyTestDriver(
            self.topology,
            self.config,
            initial_wall_clock_time=self._clock,
            partitions=self.partitions,
            commit_each_record=False,
        )
        self._together = Together(self._driver._lowered) if few_batches else None
        if self._together is not None and not self._may_be_together(self._together):
            self._together = None
        self._expected = self._on_the_driver()

    def _moved(self, event: Event) -> Event:
        if isinstance(event, Pipe) and 0 <= event.timestamp < self._first:
            return replace(event, timestamp=self._first)
        return event

    @property
    def topics(self) -> list[str]:
        """The topics that are read and written, without internal ones."""
        named: list[str] = []
        for node in self._driver._lowered.graph.nodes.values():
            match node:
                case SourceNode(internal=False):
                    named += node.topics
                case GlobalStoreNode(topic=topic) | SinkNode(topic=str(topic), internal=False):
                    named.append(topic)
        named += [event.topic for event in self._events if isinstance(event, Pipe)]
        named += self._expected.topics
        if dead_letter_topic := self.config.errors_dead_letter_queue_topic_name:
            named.append(dead_letter_topic)
        return list(dict.fromkeys(named))

    def _may_be_together(self, together: Together) -> bool:
        extracts = any(
            isinstance(node, SourceNode) and node.timestamp_extractor is not None
            for node in self._driver._lowered.graph.nodes.values()
        )
        given = self.config.given
        return (
            together.is_possible()
            and not ((extracts or "default_timestamp_extractor" in given) and together.merges)
            and "max_task_idle" not in given
            and "errors_dead_letter_queue_topic_name" not in given
        )

    def _rounds(self) -> Iterator[list[Event]]:
        """Yield what one batch may take together."""
        some: list[Event] = []
        for event in self._events:
            if some and not self._joins(some, event):
                yield some
                some = []
            some.append(event)
        if some:
            yield some

    def _joins(self, some: list[Event], event: Event) -> bool:
        if not isinstance(event, Pipe):
            return isinstance(event, Commit)
        if not isinstance(some[-1], Pipe):
            return False
        if not self._commits_each:
            return True
        piped = [(each.topic, each.timestamp) for each in (*some, event) if isinstance(each, Pipe)]
        return self._together is not None and self._together.fits(piped)

    def _on_the_driver(self) -> Outcome:
        """Return what the driver makes of it, with a commit where a batch ends."""
        outcome, driver = Outcome(), self._driver
        try:
            for events in self._rounds():
                for event in events:
                    if isinstance(event, Pipe):
                        driver.pipe_raw(
                            event.topic, event.key, event.value, event.timestamp, event.headers
                        )
                    elif isinstance(event, Advance):
                        driver.advance_wall_clock_time(event.milliseconds)
                # Changes that a table holds back pass one subtopology after the other.
                for _ in driver._lowered.subtopologies:
                    driver.commit()
        except StreamsError as error:
            outcome.error = type(error).__name__
        outcome.topics = self._written_by(driver)
        outcome.dropped = _dropped_by(driver)
        outcome.stores = {} if outcome.error else _stored_by(driver)
        with suppress(StreamsError):
            driver.close()
        return outcome

    def _written_by(self, driver: TopologyTestDriver) -> dict[str, list[Shown]]:
        internal = f"{self.config.application_id}-"
        return {
            topic: [
                (each.key, each.value, max(each.timestamp, self._first), each.headers)
                for each in records
            ]
            for topic, records in driver._outputs.items()
            if records and not topic.startswith(internal)
        }

    def compare(self, host: Host) -> None:
        """Do all of it on a host, and say where it did something else."""
        seen, expected = self._on(host), self._expected
        if self._is_refused:
            assert seen.error == "RecordRefusedError"  # a log takes no negative time
            return
        assert seen.error == expected.error
        order: Callable[[list[Shown]], Any] = _by_key if self._has_tasks else list
        topics = {topic: order(records) for topic, records in expected.topics.items()}
        if expected.error:
            return  # a batch is written whole or not at all
        assert {topic: order(records) for topic, records in seen.topics.items()} == topics
        assert seen.dropped == expected.dropped

    def compare_stores(self, host: Host) -> None:
        """Check that the stores of a host that has repeated all calls hold the same."""
        expected = self._expected
        if self._is_refused or expected.error:
            return
        assert {name: _entries(host.store(name)) for name in expected.stores} == expected.stores

    @property
    def _is_refused(self) -> bool:
        return any(isinstance(event, Pipe) and event.timestamp < 0 for event in self._events)

    @property
    def _has_tasks(self) -> bool:
        """Return whether there are several tasks, which take no notice of each other."""
        subtopologies = [
            subtopology
            for subtopology in self._driver._lowered.subtopologies
            if not subtopology.is_global
        ]
        return self.partitions > 1 or len(subtopologies) > 1

    def _on(self, host: Host) -> Outcome:
        outcome, clock = Outcome(), self._clock
        topics = self.topics
        try:
            host.run([], clock)
            for events in self._rounds():
                clock += sum(each.milliseconds for each in events if isinstance(each, Advance))
                host.run([self._placed(each) for each in events if isinstance(each, Pipe)], clock)
                for record in host.written(topics):
                    shown = record.key, record.value, record.timestamp, record.headers
                    outcome.topics.setdefault(record.topic, []).append(shown)
        except StreamsError as error:
            outcome.error = type(error).__name__
        for task, nodes in host.dropped().items():
            if task == GLOBAL_TASK:
                continue
            for node, reasons in nodes.items():
                for reason, count in reasons.items():
                    outcome.dropped[node, reason] += count
        return outcome

    def _placed(self, event: Pipe) -> RawRecord:
        partition = self._driver._partition_of(event.topic, event.key)
        return event.topic, partition, event.timestamp, event.key, event.value, event.headers


def _dropped_by(driver: TopologyTestDriver) -> Counter[tuple[str, str]]:
    dropped: Counter[tuple[str, str]] = Counter()
    for name, value in driver.metrics().items():
        tags = dict(name.tags)
        if "reason" in tags and value and tags["task-id"] != GLOBAL_TASK:
            dropped[tags["processor-node-id"], tags["reason"]] += int(value)
    return dropped


def _stored_by(driver: TopologyTestDriver) -> dict[str, list[Any]]:
    """Return the entries of each store that can list them."""
    for task in driver._tasks:
        for store in task.stores.values():
            # A cache still shows windows that have expired; those of the runtime end with a batch.
            if isinstance(store, RecordCache):
                store.release()
    stores = driver.get_all_state_stores()
    return {name: _entries(store) for name, store in stores.items() if hasattr(store, "all")}


def _entries(store: Any) -> list[Any]:
    return sorted(store.all(), key=lambda entry: repr(entry[0]))


def _by_key(records: list[Shown]) -> dict[bytes | None, list[Shown]]:
    keys: dict[bytes | None, list[Shown]] = {}
    for record in records:
        keys.setdefault(record[0], []).append(record)
    return keys
