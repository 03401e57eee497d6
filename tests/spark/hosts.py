"""The hosts of one program in tests: the test driver, and Spark with either log."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

from headrace import Headers, KafkaStreams, StreamsConfig, Topology
from headrace.brokers import open_log
from headrace.brokers.log import TopicPartition
from headrace.records import headers_of
from headrace.serdes.partitioner import partition_for_key
from headrace.testing import TopologyTestDriver
from tests import waiting
from tests.kafka_broker import RunningBroker
from tests.stacks import stacks_below
from tests.unique_names import unique
from tests.waiting import PATIENTLY

HOSTS = ("driver", "embedded", "kafka")
"""The names of all of them."""

PARTITIONS = 2
"""How many partitions topics have, where a test does not say."""

_LAST_LINES = 30


class Given(NamedTuple):
    """A record that a test writes."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Sequence[tuple[str, bytes | None]] = ()


class Seen(NamedTuple):
    """A record that a program wrote."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = Headers()


class ProgramHost(Protocol):
    """Runs a program on topics of its own."""

    def create_topics(
        self, *topics: str, partitions: int = PARTITIONS, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create topics, also while the program runs."""

    def grow_topic(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""

    def start(self, topology: Topology, **settings: Any) -> None:
        """Start the program, or start it again where it was closed."""

    def pipe(self, *records: Given) -> None:
        """Write records, in the order of their timestamps, and wait until they are processed."""

    def advance(self, milliseconds: int) -> None:
        """Advance the time of day."""

    def read(self, topic: str, count: int) -> list[Seen]:
        """Return what is new in a topic, ordered by key and then as written.

        Args:
            topic: The topic.
            count: How many records to wait for; there may be more.
        """
        ...

    def close(self) -> None:
        """Stop the program; what it knows is kept."""


class OnDriver:
    """The test driver."""

    def __init__(self) -> None:
        self._driver: TopologyTestDriver | None = None

    @property
    def driver(self) -> TopologyTestDriver:
        assert self._driver is not None, "started"
        return self._driver

    def create_topics(
        self, *topics: str, partitions: int = PARTITIONS, settings: Mapping[str, str] | None = None
    ) -> None:
        """Nothing to do: the driver takes any topic that the program reads."""

    def grow_topic(self, topic: str, partitions: int) -> None:
        """Nothing to do: the driver's topics have as many partitions as they need."""

    def start(self, topology: Topology, **settings: Any) -> None:
        if self._driver is None:
            settings.pop("num_stream_threads", None)
            settings.pop("producer", None)
            self._driver = TopologyTestDriver(topology, partitions=PARTITIONS, **settings)

    def pipe(self, *records: Given) -> None:
        for record in sorted(records, key=lambda each: each.timestamp):
            self.driver.pipe_raw(
                record.topic,
                record.key,
                record.value,
                record.timestamp,
                headers_of(record.headers),
            )

    def advance(self, milliseconds: int) -> None:
        self.driver.advance_wall_clock_time(milliseconds)

    def read(self, topic: str, count: int) -> list[Seen]:
        output = self.driver.create_output_topic(topic, key=bytes, value=bytes)
        return _by_key(
            Seen(each.key, each.value, each.timestamp, each.headers)
            for each in output.read_records_to_list()
        )

    def close(self) -> None:
        """Keep the driver, whose state is all there is."""


class OnSpark:
    """An application on Spark, on the embedded log or on Kafka.

    Args:
        application_id: Names the application.
        state_dir: Where it keeps its state.
        settings: Where the topics are.
    """

    def __init__(self, application_id: str, state_dir: Path, **settings: Any) -> None:
        self.config = StreamsConfig(application_id=application_id, state_dir=state_dir, **settings)
        self.log = open_log(self.config)
        self._streams: KafkaStreams | None = None
        self._clock = 0
        self._read: dict[TopicPartition, int] = {}

    @property
    def streams(self) -> KafkaStreams:
        assert self._streams is not None, "started"
        return self._streams

    def create_topics(
        self, *topics: str, partitions: int = PARTITIONS, settings: Mapping[str, str] | None = None
    ) -> None:
        for topic in topics:
            self.log.create_topic(topic, partitions=partitions, settings=settings)

    def grow_topic(self, topic: str, partitions: int) -> None:
        self.log.grow_topic(topic, partitions=partitions)

    def start(self, topology: Topology, **settings: Any) -> None:
        self._streams = KafkaStreams(topology, self.config.with_settings(**settings))
        self._streams.pause()
        self._streams.start()
        self._set_clock()
        self._streams.resume()

    def pipe(self, *records: Given) -> None:
        # By topic, so that a batch finds records of one topic behind those of another.
        counts = {each.topic: self.log.partition_count(each.topic) for each in records}
        self.streams.pause()
        self.log.append(
            [
                (
                    each.topic,
                    0 if each.key is None else partition_for_key(each.key, counts[each.topic]),
                    each.timestamp,
                    each.key,
                    each.value,
                    each.headers,
                )
                for each in sorted(records, key=lambda each: (each.topic, each.timestamp))
            ]
        )
        self.streams.resume()
        self._await(lambda: self._has_read(counts), f"{sorted(counts)} to be read")

    def advance(self, milliseconds: int) -> None:
        self._clock += milliseconds
        self._set_clock()

    def read(self, topic: str, count: int) -> list[Seen]:
        seen: list[Seen] = []

        def is_enough() -> bool:
            seen.extend(self._new(topic))
            return len(seen) >= count

        self._await(is_enough, f"{count} records in {topic!r}")
        return _by_key(seen)

    def close(self) -> None:
        if self._streams is not None and not self._streams.state().has_ended():
            assert self._streams.close(PATIENTLY)

    def _set_clock(self) -> None:
        run = self.streams._run  # tests move the clock
        assert run is not None, "started"
        run.set_clock(self._clock)

    def _has_read(self, topics: Mapping[str, int]) -> bool:
        """Return whether batches that ended have read all that is in topics."""
        names = [TopicPartition(each, p) for each, count in topics.items() for p in range(count)]
        lag = self.streams.lag()
        return all(
            name in lag and lag[name].current_offset_position >= end
            for name, end in self.log.end_offsets(names).items()
            if end
        )

    def _new(self, topic: str) -> list[Seen]:
        count = self.log.partition_count(topic)
        new: list[Seen] = []
        for name, end in self.log.end_offsets(
            [TopicPartition(topic, p) for p in range(count)]
        ).items():
            start = self._read.get(name, 0)
            if end > start:
                self._read[name] = end
                for records in self.log.read(name, start, end):
                    new += [Seen(e.key, e.value, e.timestamp, e.headers) for e in records]
        return new

    def _await(self, is_so: Callable[[], bool], what: str) -> None:
        await_that(is_so, what, self.streams)


def host_on(where: str, request: pytest.FixtureRequest, folder: Path) -> ProgramHost:
    """Return a host of `HOSTS`; what it needs is started for it."""
    if where == "driver":
        return OnDriver()
    request.getfixturevalue("java")
    settings: dict[str, Any] = {"num_stream_threads": 2}
    if where == "kafka":
        broker: RunningBroker = request.getfixturevalue("kafka")
        settings |= {"bootstrap_servers": broker.address, "request_timeout": "30s"}
    return OnSpark(unique("hosted"), folder, **settings)


def await_that(
    is_so: Callable[[], bool],
    what: str,
    streams: KafkaStreams | None = None,
    *,
    found: Callable[[], object] = lambda: "something else",
) -> None:
    """Wait for a condition, but neither for ever nor for an application that has ended.

    Args:
        is_so: Returns whether the condition holds.
        what: The condition in words.
        streams: The application that must make it true.
        found: Returns the state that was found instead.
    """
    came = False

    def is_decided() -> bool:
        nonlocal came
        came = is_so()
        return came or (streams is not None and streams.state().has_ended())

    waiting.await_that(is_decided, what, found=lambda: f"{found()}{_doing(streams)}")
    if not came:
        assert streams is not None, "nothing else decides"
        streams.await_termination()
        assert is_so(), f"ended before {what}, but with {found()}"


def _doing(streams: KafkaStreams | None) -> str:
    """Return how far an application has come, and the stacks of its processes."""
    if streams is None:
        return ""
    from headrace.spark.session import log_of_java  # many tests need no Spark

    batch = -1 if streams._run is None else streams._run.batch_number()
    said = log_of_java(Path("spark.log"))
    lines = said.read_text(errors="replace").splitlines()[-_LAST_LINES:] if said.exists() else []
    return (
        f" of an application that is {streams.state()} after batch {batch}: {streams.lag()}\n"
        + "\n".join([*lines, stacks_below(os.getpid())])
    )


def _by_key(records: Any) -> list[Seen]:
    return sorted(records, key=lambda each: each.key or b"")
