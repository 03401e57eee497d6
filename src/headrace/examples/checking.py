"""Runs an example in a test: on the test driver, or in this process on the embedded log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from headrace.app import KafkaStreams
from headrace.brokers.log import TopicPartition
from headrace.brokers.opening import open_log
from headrace.examples.feeding import Encoding, FeedRecord
from headrace.records import Record, headers_of
from headrace.runtime.in_process import InProcessQuery
from headrace.serdes.base import Serde
from headrace.serdes.serdes import Serdes
from headrace.testing import TopologyTestDriver

_BROKEN = b"\xff{not json"
"""Neither JSON, nor text, nor a number of eight bytes."""
_Pair = tuple[Serde[Any], Serde[Any]]


class ExampleRun(Protocol):
    """An example that runs: a test writes to its input topics and reads the others."""

    def write(self, records: Iterable[FeedRecord]) -> None:
        """Write records, and process them and all that follows."""
        ...

    def read(self, topic: str) -> list[Record[Any, Any]]:
        """Return the new records of a topic, decoded; dead letters are bytes."""
        ...

    def dropped(self) -> Counter[str]:
        """Return how many records were dropped so far, by reason."""
        ...


@contextmanager
def on_driver(app: KafkaStreams, **options: Any) -> Iterator[DriverRun]:
    """Run an application on the test driver, for the time of a block.

    Its wall clock is later than any feed, unless the options say otherwise.
    """
    options.setdefault("initial_wall_clock_time", _LATER)
    with TopologyTestDriver(app.topology, app.config, **options) as driver:
        yield DriverRun(app, driver)


class DriverRun:
    """An application on the test driver."""

    def __init__(self, app: KafkaStreams, driver: TopologyTestDriver) -> None:
        self.driver = driver
        """The driver itself, for its stores and its clock."""
        self._encoding = Encoding(app)

    def write(self, records: Iterable[FeedRecord]) -> None:
        for record in records:
            topic, _, timestamp, key, value, headers = self._encoding.raw(record)
            self.driver.pipe_raw(topic, key, value, timestamp, headers_of(headers or ()))

    def read(self, topic: str) -> list[Record[Any, Any]]:
        serdes = self._encoding.sinks.get(topic, _BYTES)
        output = self.driver.create_output_topic(topic, key=serdes[0], value=serdes[1])
        return output.read_records_to_list()

    def dropped(self) -> Counter[str]:
        dropped: Counter[str] = Counter()
        for name, count in self.driver.metrics().items():
            if name.name == "dropped-by-reason-total":
                dropped[dict(name.tags)["reason"]] += int(count)
        return dropped


@contextmanager
def in_process(
    app: KafkaStreams, topics: Mapping[str, int], folder: Path
) -> Iterator[InProcessRun]:
    """Run an application in this process on an embedded log, as Spark runs it.

    Args:
        app: The application.
        topics: The topics to create, with their partition counts: those of its feed.
        folder: Where the log and the checkpoint are.
    """
    config = app.config.with_settings(state_dir=folder)
    log = open_log(config)
    encoding = Encoding(app, topics)
    written = {topic: max(topics.values()) for topic in encoding.sinks}
    for topic, partitions in (written | dict(topics)).items():
        log.create_topic(topic, partitions=partitions)
    log.close()
    query = InProcessQuery(app.topology, config)
    try:
        yield InProcessRun(query, encoding, KafkaStreams(app.topology, config))
    finally:
        query.log.close()


class InProcessRun:
    """An application in this process, on an embedded log."""

    def __init__(self, query: InProcessQuery, encoding: Encoding, app: KafkaStreams) -> None:
        self.query = query
        """The query itself, for its clock."""
        self.app = app
        """The application with the settings of this run, for instances that answer queries."""
        self._encoding = encoding
        self._seen: dict[TopicPartition, int] = {}

    def write(self, records: Iterable[FeedRecord]) -> None:
        self.query.log.append(map(self._encoding.raw, records))
        self.query.run()

    def read(self, topic: str) -> list[Record[Any, Any]]:
        key, value = self._encoding.sinks.get(topic, _BYTES)
        log = self.query.log
        if topic not in log.list_topics():
            return []
        names = [TopicPartition(topic, each) for each in range(log.partition_count(topic))]
        found = []
        for name, end in log.end_offsets(names).items():
            start, self._seen[name] = self._seen.get(name, 0), end
            for records in log.read(name, start, end) if end > start else ():
                found += [
                    Record(
                        None if raw.key is None else key.deserialize(raw.key),
                        None if raw.value is None else value.deserialize(raw.value),
                        raw.timestamp,
                        raw.headers,
                    )
                    for raw in records
                ]
        return found

    def dropped(self) -> Counter[str]:
        dropped: Counter[str] = Counter()
        for nodes in self.query.dropped().values():
            for reasons in nodes.values():
                dropped.update(reasons)
        return dropped


class Fate(StrEnum):
    """The way of a bad record."""

    DEAD_LETTER = "dead letter"
    """It is counted, and in the dead-letter topic."""
    DROPPED = "dropped"
    """It is counted."""
    PROCESSED = "processed"
    """It is a record like any other."""


def fates_of(
    app: KafkaStreams,
    good: FeedRecord,
    *,
    before: Iterable[FeedRecord] = (),
    late: FeedRecord | None = None,
    future: FeedRecord | None = None,
    again: FeedRecord | None = None,
    **more: FeedRecord,
) -> dict[str, Fate]:
    """Return the fate of every kind of bad record, each after and before a good one.

    Args:
        app: The application, which has a dead-letter topic.
        good: A record that it processes.
        before: Records that it needs first.
        late: A late record; by default the good one, a day earlier.
        future: A record of the future; by default the good one, ten years later.
        again: The good record after a bad one; by default the good one once more.
        more: Other bad records of this example, by name.

    Raises:
        AssertionError: A dead letter is not counted or says not why, or the good record after a bad
            one is dropped, at the time that it has.
    """
    late = late or good._replace(timestamp=max(0, good.timestamp - _DAY))
    cases = {
        "broken": good._replace(value=_BROKEN),
        "missing fields": good._replace(value=b"{}"),
        "null key": good._replace(key=None),
        "tombstone": good._replace(value=None),
        "duplicate": good,
        "late": late,
        "future": future or good._replace(timestamp=good.timestamp + 3650 * _DAY),
        **more,
    }
    first, then = [*before, good], again or good
    return {name: _fate_of(app, bad, first, then) for name, bad in cases.items()}


def _fate_of(
    app: KafkaStreams,
    bad: FeedRecord,
    before: list[FeedRecord],
    after: FeedRecord,
) -> Fate:
    letters = app.config.errors_dead_letter_queue_topic_name
    assert letters is not None, "an example has a dead-letter topic"
    with on_driver(app, initial_wall_clock_time=after.timestamp + _DAY) as run:
        run.write(before)
        dropped = run.dropped().total()
        assert run.read(letters) == []
        run.write([bad])
        dead = run.read(letters)
        dropped = run.dropped().total() - dropped
        counted = run.dropped()
        run.write([after])
        assert run.read(letters) == [], "the next good record is processed"
        assert run.dropped() == counted, "the next good record is not dropped"
    if not dead:
        return Fate.DROPPED if dropped else Fate.PROCESSED
    assert dropped == len(dead), "each dead letter is counted"
    assert all(letter.headers.last("__streams.errors.message") for letter in dead)
    topic = (dead[0].headers.last("__streams.errors.topic") or b"").decode()
    assert topic == bad.topic or topic.endswith("-repartition")
    return Fate.DEAD_LETTER


_DAY = 24 * 60 * 60 * 1000
_LATER = 4_102_444_800_000
"""The first day of 2100."""
_BYTES: _Pair = (Serdes.bytes(), Serdes.bytes())
