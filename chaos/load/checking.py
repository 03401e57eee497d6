"""Compares what the running aggregate wrote with what was fed, key by key.

The topics are read by kafka-python, where the application has librdkafka; one record at a time,
because there are too many of them to be held at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from typing import NamedTuple, TypeAlias

import msgspec
from kafka import KafkaConsumer, TopicPartition

from benchmarks.dataset import PARTITIONS
from chaos.checks import Verdict
from chaos.load.feeder import Fed, keys
from chaos.reading import KafkaReader

ECHO, TOTALS = "running-echo", "running-totals"
_PATIENCE_SECONDS = 60.0
_FETCH_BYTES = 8 << 20
_PROCESSES = 2


class Event(msgspec.Struct):
    """The value of an event, as it was fed and as it is echoed."""

    id: str
    amount: int

    @property
    def number(self) -> int:
        """Its place among all that was fed."""
        return _number(self.id)


class Total(msgspec.Struct):
    """The value of a total."""

    count: int
    sum: int
    id: str
    """The last event that it counts."""

    @property
    def fed(self) -> Fed:
        """The input that gives this total."""
        return Fed(self.count, self.sum, _number(self.id))


Records: TypeAlias = Iterable[tuple[bytes, bytes]]
"""Keys and values, in the order of a partition."""


class _Job(NamedTuple):
    """One partition to compare."""

    address: str
    topic: str
    partition: int
    fed: dict[bytes, Fed]
    compare: Callable[[Records, Mapping[bytes, Fed]], Verdict]


def check(
    address: str,
    application_id: str,
    fed: Mapping[str, Fed],
    show: Callable[[str], object] = lambda _line: None,
) -> Verdict:
    """Return what is wrong with the topics of an application that has ended."""
    changelog = f"{application_id}-running-store-changelog"
    topics = {ECHO: compare_echo, TOTALS: compare_totals, changelog: compare_changelog}
    by_partition: list[dict[bytes, Fed]] = [{} for _ in range(PARTITIONS)]
    for key, partition in keys():
        if key in fed:
            by_partition[partition][key.encode()] = fed[key]
    jobs = [
        _Job(address, topic, partition, by_partition[partition], compare)
        for topic, compare in topics.items()
        for partition in range(PARTITIONS)
    ]
    found = Verdict()
    with ProcessPoolExecutor(_PROCESSES, get_context("spawn")) as pool:
        for job, each in zip(jobs, pool.map(_check_partition, jobs), strict=True):
            _add_up(found, each)
            show(f"  {job.topic}-{job.partition}: {'right' if each.is_clean else each.examples}")
    with closing(KafkaReader(address)) as reader:
        for source in reader.open_ends(topics):
            found.add("torn", f"{source} ends in a transaction that nobody has ended")
    return found


def compare_totals(records: Records, fed: Mapping[bytes, Fed]) -> Verdict:
    """Compare totals: each key counts up by one, to what was fed of it."""
    found, decode = Verdict(), msgspec.json.Decoder(Total).decode
    last: dict[bytes, Total] = {}
    for key, value in records:
        total = decode(value)
        step = total.count - (last[key].count if key in last else 0)
        if step < 1:
            found.add("doubled", f"{total} of {key!r} after {last.get(key)}")
        elif step > 1:
            found.add("lost", f"totals of {key!r} between {last.get(key)} and {total}", step - 1)
        last[key] = total
    _compare_ends(found, {key: total.fed for key, total in last.items()}, fed)
    return found


def compare_echo(records: Records, fed: Mapping[bytes, Fed]) -> Verdict:
    """Compare echoes: the numbers of a key rise, and add up to what was fed of it."""
    found, decode = Verdict(), msgspec.json.Decoder(Event).decode
    counts: dict[bytes, int] = {}
    sums: dict[bytes, int] = {}
    lasts: dict[bytes, int] = {}
    for key, value in records:
        event = decode(value)
        number = event.number
        if number <= lasts.get(key, -1):
            found.add("wrong_order", f"{event.id} of {key!r} after number {lasts[key]}")
        counts[key] = counts.get(key, 0) + 1
        sums[key] = sums.get(key, 0) + event.amount
        lasts[key] = number
    _compare_ends(found, {key: Fed(counts[key], sums[key], lasts[key]) for key in counts}, fed)
    return found


def compare_changelog(records: Records, fed: Mapping[bytes, Fed]) -> Verdict:
    """Compare a changelog: the last value of each key is what was fed of it."""
    found, last = Verdict(), dict(records)
    state = {key: msgspec.json.decode(value, type=Total).fed for key, value in last.items()}
    for key in state.keys() | fed.keys():
        if state.get(key) != fed.get(key):
            found.add("wrong_changelog", f"{key!r} is {state.get(key)}, not {fed.get(key)}")
    return found


def _compare_ends(found: Verdict, seen: Mapping[bytes, Fed], fed: Mapping[bytes, Fed]) -> None:
    nothing = Fed(0, 0, -1)
    for key in seen.keys() | fed.keys():
        there, wanted = seen.get(key, nothing), fed.get(key, nothing)
        example = f"{key!r} ends with {there}, not {wanted}"
        found.add("lost", example, max(0, wanted.count - there.count))
        found.add("doubled", example, max(0, there.count - wanted.count))
        found.add("wrong_state", example, int(there != wanted and there.count == wanted.count))


def _add_up(found: Verdict, other: Verdict) -> None:
    for kind, count in other.counts().items():
        setattr(found, kind, getattr(found, kind) + count)
    found.examples += other.examples


def _check_partition(job: _Job) -> Verdict:
    return job.compare(_records(job.address, job.topic, job.partition), job.fed)


def _records(address: str, topic: str, partition: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of a partition, committed records only."""
    source = TopicPartition(topic, partition)
    consumer = KafkaConsumer(
        bootstrap_servers=address,
        group_id=None,
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="none",
        max_poll_records=10_000,
        max_partition_fetch_bytes=_FETCH_BYTES,
    )
    with closing(consumer):
        consumer.assign([source])
        consumer.seek(source, consumer.beginning_offsets([source])[source])
        end = consumer.end_offsets([source])[source]
        give_up = time.monotonic() + _PATIENCE_SECONDS
        while consumer.position(source) < end:
            if time.monotonic() > give_up:
                msg = f"{source} was not read up to {end}: nothing came in {_PATIENCE_SECONDS} s."
                raise TimeoutError(msg)
            for record in consumer.poll(timeout_ms=500).get(source, ()):
                yield record.key, record.value
                give_up = time.monotonic() + _PATIENCE_SECONDS


def _number(identity: str) -> int:
    return int(identity.rpartition(".")[2])
