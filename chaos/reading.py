"""Reads what an application wrote, with other means than it wrote with.

Kafka is read by kafka-python, where the application has librdkafka; the embedded log straight from
the tables of its SQLite file.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, Protocol

import msgspec
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from chaos.contract import Log, Logged, Offsets

_OFFSET_BITS = 40
"""A record's rowid is its partition's id, then its offset in this many bits."""

_PATIENCE_SECONDS = 60
_HEADERS = msgspec.msgpack.Decoder(list[tuple[str, bytes | None]])


class Reader(Protocol):
    """Reads topics and the progress of groups; committed records only."""

    def read(self, topics: Iterable[str], starts: Mapping[tuple[str, int], int]) -> Log:
        """Return all records of some topics from their starts on, or from the beginning."""
        ...

    def committed(self, group: str) -> Offsets:
        """Return the offsets that a group has committed."""
        ...

    def written(self, topics: Iterable[str]) -> Offsets:
        """Return the ends of partitions that may hold open transactions."""
        ...

    @property
    def reached(self) -> Offsets:
        """Return how far partitions were read that may hold such transactions."""
        ...

    def open_ends(self, topics: Iterable[str]) -> list[tuple[str, int]]:
        """Return the partitions that end in an open transaction."""
        ...

    def close(self) -> None:
        """Close what was opened."""
        ...


def open_reader(kind: str, address: str) -> Reader:
    """Return a reader of a ``kafka`` cluster, or of an ``embedded`` log's file."""
    return EmbeddedReader(address) if kind == "embedded" else KafkaReader(address)


def read_all(kind: str, address: str, topics: Iterable[str]) -> Log:
    """Return everything that some topics hold, committed records only."""
    with closing(open_reader(kind, address)) as reader:
        return reader.read(topics, {})


def committed(kind: str, address: str, group: str) -> Offsets:
    """Return the offsets that a group has committed."""
    with closing(open_reader(kind, address)) as reader:
        return reader.committed(group)


class EmbeddedReader:
    """Reads the file of an embedded log. A transaction of the file is seen whole or not at all."""

    def __init__(self, path: str) -> None:
        self._file = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=_PATIENCE_SECONDS)
        self._file.isolation_level = None

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """See the same state of the file in the whole block."""
        self._file.execute("BEGIN")
        try:
            yield
        finally:
            self._file.execute("ROLLBACK")

    def read(self, topics: Iterable[str], starts: Mapping[tuple[str, int], int]) -> Log:
        log: Log = {}
        for topic in topics:
            partitions = self._file.execute(
                "SELECT p.number, p.id FROM partition p JOIN topic t ON t.id = p.topic"
                " WHERE t.name = ? ORDER BY p.number",
                (topic,),
            ).fetchall()
            log[topic] = {
                number: self._read_partition(topic, number, id_, starts.get((topic, number), 0))
                for number, id_ in partitions
            }
        return log

    def _read_partition(self, topic: str, number: int, id_: int, start: int) -> list[Logged]:
        base = id_ << _OFFSET_BITS
        rows = self._file.execute(
            "SELECT rowid, timestamp, key, value, headers, appended FROM record"
            " WHERE rowid >= ? AND rowid < ? ORDER BY rowid",
            (base + start, base + (1 << _OFFSET_BITS)),
        )
        return [
            # A transaction appends all of its records at one instant, in milliseconds. The file has
            # no finer trace of it: two in one millisecond look like one.
            Logged(topic, number, rowid - base, timestamp, key, value, _headers(packed), appended)
            for rowid, timestamp, key, value, packed, appended in rows
        ]

    def committed(self, group: str) -> Offsets:
        rows = self._file.execute(
            'SELECT t.name, p.number, c."offset" FROM committed c'
            " JOIN partition p ON p.id = c.partition JOIN topic t ON t.id = p.topic"
            " WHERE c.group_id = ?",
            (group,),
        )
        return {(topic, number): offset for topic, number, offset in rows}

    def written(self, topics: Iterable[str]) -> Offsets:
        return {}  # records come with their commit

    @property
    def reached(self) -> Offsets:
        return {}

    def open_ends(self, topics: Iterable[str]) -> list[tuple[str, int]]:
        return []

    def close(self) -> None:
        self._file.close()


class KafkaReader:
    """Reads a Kafka cluster up to the last stable offsets."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._consumer = self._consume("read_committed")
        self._onlooker = self._consume("read_uncommitted")
        self._reached: Offsets = {}
        self._admin = KafkaAdminClient(bootstrap_servers=address)

    def read(self, topics: Iterable[str], starts: Mapping[tuple[str, int], int]) -> Log:
        names = self._partitions(topics)
        log: Log = {name.topic: {} for name in names}
        if not names:
            return log
        for name in names:
            log[name.topic][name.partition] = []
        ends = _asked(self._consumer.end_offsets, names)
        first = _asked(self._consumer.beginning_offsets, names)
        self._consumer.assign(names)
        for name in names:
            self._consumer.seek(name, max(first[name], starts.get((name.topic, name.partition), 0)))
        give_up = time.monotonic() + _PATIENCE_SECONDS
        while late := [name for name in names if self._consumer.position(name) < ends[name]]:
            if time.monotonic() > give_up:
                msg = f"{late[0]} was not read up to {ends[late[0]]} in {_PATIENCE_SECONDS} s."
                raise TimeoutError(msg)
            for name, records in self._consumer.poll(timeout_ms=200).items():
                give_up = time.monotonic() + _PATIENCE_SECONDS
                found = log[name.topic][name.partition]
                # Records after these ends belong to the next reading.
                found += [_logged(each) for each in records if each.offset < ends[name]]
        self._reached |= {tuple(name): ends[name] for name in names}
        return log

    def committed(self, group: str) -> Offsets:
        found = self._admin.list_group_offsets([group])[group]
        return {
            (name.topic, name.partition): each.offset
            for name, each in found.items()
            if each.offset >= 0
        }

    def written(self, topics: Iterable[str]) -> Offsets:
        ends = _asked(self._onlooker.end_offsets, self._partitions(topics))
        return {tuple(name): end for name, end in ends.items()}

    @property
    def reached(self) -> Offsets:
        return self._reached

    def open_ends(self, topics: Iterable[str]) -> list[tuple[str, int]]:
        names = self._partitions(topics)
        stable = _asked(self._consumer.end_offsets, names)
        written = self.written(topics)
        return [tuple(name) for name in names if stable[name] < written[tuple(name)]]

    def close(self) -> None:
        self._admin.close()
        self._consumer.close()
        self._onlooker.close()

    def _consume(self, isolation_level: str) -> Any:
        return KafkaConsumer(
            bootstrap_servers=self._address,
            group_id=None,
            enable_auto_commit=False,
            isolation_level=isolation_level,
            auto_offset_reset="none",
        )

    def _partitions(self, topics: Iterable[str]) -> list[Any]:
        return [
            TopicPartition(topic, number)
            for topic in topics
            for number in sorted(self._consumer.partitions_for_topic(topic) or ())
        ]


def _asked(offsets_of: Callable[[list[Any]], dict[Any, int]], names: list[Any]) -> dict[Any, int]:
    """Return the offsets of partitions, also of those whose leader is not known at once."""
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return offsets_of(names)
        except KeyError:  # the client's way to say so
            if time.monotonic() > give_up:
                raise
            time.sleep(0.1)


def _logged(each: Any) -> Logged:
    headers = tuple((name, value) for name, value in each.headers)
    # A reader cannot see which transaction it was: see `chaos.segments`.
    return Logged(
        each.topic, each.partition, each.offset, each.timestamp, each.key, each.value, headers, 0
    )


def _headers(packed: bytes | None) -> tuple[tuple[str, bytes | None], ...]:
    return () if packed is None else tuple(_HEADERS.decode(packed))
