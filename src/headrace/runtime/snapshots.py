"""The snapshot record: what names one consistent state of all queryable stores together.

The leader writes one to the topic ``<application.id>-snapshots`` after each finished batch.
Instances that answer queries read it there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import zip_longest
from typing import Any, TypeAlias

import msgspec

from headrace.brokers.log import TopicLog, TopicPartition
from headrace.errors import QueryError, UnknownTopicError

FORMAT = 1
"""The format of the records that this code writes, and the highest that it reads."""

UNKNOWN_OFFSET = -1
"""Stands in a position for a partition of which nothing is known."""

SNAPSHOTS_READ = 64
"""How many offsets before the end of the snapshots topic a reader begins."""

Offsets: TypeAlias = dict[str, list[int]]
"""For each topic an offset of each partition."""


class SnapshotRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One numbered state of all queryable stores. Its JSON has the names of the fields."""

    format: int = FORMAT
    history: str
    """Spark's query id: one life of an application, from its first batch to its reset."""
    leader_epoch: int
    """The leader that wrote the record."""
    snapshot: int
    """The number. Within a history it only rises."""
    batch: int | None = None
    """The batch, for people."""
    layout: str
    """The digest of names, kinds and times of the queryable stores."""
    topics: str
    """The digest of the ids of the changelogs. A leader from before a reset has another one."""
    clock: int
    """The time of day of the batch, in milliseconds."""
    at: int
    """When no change behind this snapshot was written yet, in milliseconds. A record that is
    written again has a new time only while no batch is running or unfinished."""
    ends: Offsets
    """For each changelog and partition the offset behind its last record of this snapshot."""
    since: int
    """The snapshot from which ``changes`` counts."""
    changes: dict[str, dict[int, int]] | None = None
    """The number of changelog records from ``ends`` of ``since`` to ``ends``, by changelog and
    partition. A partition without any is left out. None: unknown."""
    store_times: dict[str, list[dict[str, Any] | None]] = {}
    """By changelog and partition: what a store remembers besides its entries."""
    position: Offsets = {}
    """For each input the next offset that is not yet reflected in all stores."""
    stats: dict[str, Any] = {}
    """Figures for people. No reader depends on them."""

    @property
    def rank(self) -> tuple[int, int]:
        """Return the order of records: the highest leader epoch counts, then the highest number."""
        return self.leader_epoch, self.snapshot

    def end(self, changelog: str, partition: int) -> int:
        """Return the end of a partition; 0 if the snapshot does not have the partition."""
        ends = self.ends.get(changelog, ())
        return ends[partition] if partition < len(ends) else 0

    def change_count(self, changelog: str, partition: int) -> int | None:
        """Return the number of records of a partition since ``since``; None: unknown."""
        if self.changes is None:
            return None
        return self.changes.get(changelog, {}).get(partition, 0)

    def times(self, changelog: str, partition: int) -> dict[str, Any] | None:
        """Return what a store of a partition remembers besides its entries."""
        times = self.store_times.get(changelog, ())
        return times[partition] if partition < len(times) else None


def digest_topic_ids(ids: Mapping[str, str]) -> str:
    """Return the digest of the ids of an application's changelogs."""
    return hashlib.sha256(msgspec.json.encode(sorted(ids.items()))).hexdigest()[:16]


class _Format(msgspec.Struct):
    """The one field that every format has."""

    format: int


_decode_format = msgspec.json.Decoder(_Format).decode
_decode = msgspec.json.Decoder(SnapshotRecord).decode
encode_snapshot = msgspec.json.Encoder().encode
"""Returns the JSON of a record."""


def decode_snapshot(data: bytes) -> SnapshotRecord:
    """Return the record of its JSON; fields that are not known are ignored.

    Raises:
        QueryError: The bytes are no snapshot record, or one of a newer format.
    """
    try:
        found = _decode_format(data).format
        if found <= FORMAT:
            return _decode(data)
    except msgspec.MsgspecError as error:
        msg = f"A snapshot record cannot be read: {error}. Another program writes to the topic."
        raise QueryError(msg) from error
    msg = (
        f"A snapshot record has format {found}, and this version of Headrace reads up to {FORMAT}. "
        "Upgrade Headrace on this instance to the version of the application."
    )
    raise QueryError(msg)


def read_snapshots(log: TopicLog, topic: str, last: int | None = None) -> list[SnapshotRecord]:
    """Return the records of a snapshots topic; only those of the last offsets if ``last`` is given.

    A topic that does not exist has none. Other records in it are ignored.
    """
    name = TopicPartition(topic, 0)
    try:
        end = log.end_offsets([name])[name]
        start = log.beginning_offsets([name])[name]
    except UnknownTopicError:
        return []
    if last is not None:
        start = max(start, end - last)
    found = []
    for records in log.read(name, start, end):
        for record in records:
            if record.value is not None:
                with suppress(QueryError):
                    found.append(decode_snapshot(record.value))
    return found


def newest_record(records: Iterable[SnapshotRecord]) -> SnapshotRecord | None:
    """Return the record that counts: of the highest leader epoch the one of the highest number."""
    return max(records, key=lambda record: record.rank, default=None)


def merged(older: SnapshotRecord, newer: SnapshotRecord) -> SnapshotRecord:
    """Return ``newer`` for readers that did not get ``older``: with the changes of both."""
    assert older.history == newer.history, "records of two histories have no changes together"
    assert newer.since == older.snapshot, "the newer record counts from the older one"
    changes = None
    if older.changes is not None and newer.changes is not None:
        changes = {
            topic: _sums(older.changes.get(topic, {}), newer.changes.get(topic, {}))
            for topic in sorted({*older.changes, *newer.changes})
        }
    return msgspec.structs.replace(newer, since=older.since, changes=changes)


def _sums(some: Mapping[int, int], others: Mapping[int, int]) -> dict[int, int]:
    return {
        partition: some.get(partition, 0) + others.get(partition, 0)
        for partition in sorted({*some, *others})
    }


def raised_position(before: Offsets, after: Offsets) -> Offsets:
    """Return ``after`` with no offset lower than in ``before``."""
    return {
        topic: [
            max(pair)
            for pair in zip_longest(
                before.get(topic, ()), after.get(topic, ()), fillvalue=UNKNOWN_OFFSET
            )
        ]
        for topic in sorted({*before, *after})
    }


def is_reflected(position: Offsets, topic: str, partition: int, offset: int) -> bool:
    """Return whether a position reflects a record of an input.

    Raises:
        QueryError: The topic is no input of the application.
    """
    if topic not in position:
        msg = f"Topic {topic!r} is no input of the application. Its inputs are {sorted(position)}."
        raise QueryError(msg)
    offsets = position[topic]
    return partition < len(offsets) and offsets[partition] > offset
