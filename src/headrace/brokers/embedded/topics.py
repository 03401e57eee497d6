"""Topics and partitions in the file of the embedded log."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeAlias

import msgspec

from headrace.brokers.embedded.database import OFFSET_BITS, Offset, PartitionId
from headrace.brokers.log import TopicDescription, TopicPartition
from headrace.brokers.topic_names import checked_topic_name, unknown_topic
from headrace.errors import BrokerError, TopicExistsError, UnknownTopicError

_MAX_PARTITIONS = 10_000
_NUMBERS = {
    "delete.retention.ms": 86_400_000,
    "max.message.bytes": 1_048_588,
    "min.compaction.lag.ms": 0,
    "retention.bytes": -1,
    "retention.ms": -1,
}
_WORDS = {
    "cleanup.policy": ("delete", {"delete", "compact", "compact,delete", "delete,compact"}),
    "message.timestamp.type": ("CreateTime", {"CreateTime", "LogAppendTime"}),
}
_WITHOUT_USE = {
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "index.interval.bytes",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "message.downconversion.enable",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "min.cleanable.dirty.ratio",
    "min.insync.replicas",
    "preallocate",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "replication.factor",  # no setting of a topic in Kafka, but given beside them
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
}
"""The other settings that a topic has in Kafka 4. The file stores them without effect."""

_PartitionRow: TypeAlias = tuple[PartitionId, Offset, Offset, Offset, Offset, str]


@dataclass(frozen=True)
class TopicSettings:
    """The settings of a topic that the embedded log follows; it stores and shows the others."""

    compacts: bool
    deletes: bool
    stamps_append_time: bool
    delete_retention_ms: int
    max_message_bytes: int
    min_compaction_lag_ms: int
    retention_bytes: int
    retention_ms: int


@dataclass(frozen=True)
class Partition:
    """A partition as the file has it."""

    id: int
    name: TopicPartition
    log_start_offset: int
    end_offset: int
    cleaned: int
    """The first offset that is not compacted yet."""
    compacted_records: int
    """How many records the compacted part holds."""
    settings: TopicSettings

    @property
    def base(self) -> int:
        """The rowid of offset 0."""
        return self.id << OFFSET_BITS


def settings_from_text(settings: Mapping[str, str]) -> TopicSettings:
    """Return the settings of a topic; raise `BrokerError` if the log cannot follow one."""
    words = {name: settings.get(name, default) for name, (default, _) in _WORDS.items()}
    for name, word in words.items():
        if word not in _WORDS[name][1]:
            options = " or ".join(sorted(_WORDS[name][1]))
            msg = f"The setting {name!r} of a topic is {word!r}. Use {options}."
            raise BrokerError(msg)
    numbers = {
        name.replace(".", "_"): _number(name, settings.get(name, default))
        for name, default in _NUMBERS.items()
    }
    policies = words["cleanup.policy"].split(",")
    return TopicSettings(
        compacts="compact" in policies,
        deletes="delete" in policies,
        stamps_append_time=words["message.timestamp.type"] == "LogAppendTime",
        **numbers,
    )


def _refuse_unknown(settings: Iterable[str]) -> None:
    """Refuse names that no setting of a topic has, as Kafka does. Files may hold older ones."""
    known = [*_NUMBERS, *_WORDS, *sorted(_WITHOUT_USE)]
    for name in settings:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            remedy = f"Did you mean {close[0]!r}?" if close else "Leave it out."
            msg = f"{name!r} is not a setting of a topic. {remedy}"
            raise BrokerError(msg)


def _number(name: str, value: str | int) -> int:
    try:
        return int(value)
    except ValueError:
        msg = f"The setting {name!r} of a topic is {value!r}. Use a whole number."
        raise BrokerError(msg) from None


def create_topic(
    file: sqlite3.Connection, topic: str, partitions: int, settings: Mapping[str, str]
) -> None:
    """Create a topic with empty partitions."""
    checked_topic_name(topic)
    _check_count(topic, partitions)
    _refuse_unknown(settings)
    settings_from_text(settings)
    if file.execute("SELECT 1 FROM topic WHERE name = ?", (topic,)).fetchone():
        raise TopicExistsError(topic)
    # There is one copy of the file, and Kafka does not show this among the settings either.
    stored = {name: value for name, value in settings.items() if name != "replication.factor"}
    text = msgspec.json.encode(stored).decode()
    id_ = file.execute("INSERT INTO topic (name, settings) VALUES (?, ?)", (topic, text)).lastrowid
    _add_partitions(file, id_, range(partitions))


def grow_topic(file: sqlite3.Connection, topic: str, partitions: int) -> None:
    """Add empty partitions to a topic."""
    _check_count(topic, partitions)
    id_, count = _topic(file, topic)
    if partitions < count:
        msg = f"Topic {topic!r} has {count} partitions, and cannot have fewer. Create another one."
        raise BrokerError(msg)
    _add_partitions(file, id_, range(count, partitions))


def alter_topic(file: sqlite3.Connection, topic: str, settings: Mapping[str, str | None]) -> None:
    """Change settings of a topic; None removes one."""
    id_, _ = _topic(file, topic)
    _refuse_unknown(settings)
    merged = {**describe_topic(file, topic).settings, **settings}
    stored = {name: value for name, value in merged.items() if value is not None}
    settings_from_text(stored)
    text = msgspec.json.encode(stored).decode()
    file.execute("UPDATE topic SET settings = ? WHERE id = ?", (text, id_))


def delete_topic(file: sqlite3.Connection, topic: str) -> None:
    """Delete a topic with everything that belongs to it."""
    id_, _ = _topic(file, topic)
    for (partition,) in file.execute("SELECT id FROM partition WHERE topic = ?", (id_,)).fetchall():
        base = partition << OFFSET_BITS
        file.execute("DELETE FROM record WHERE rowid >= ? AND rowid < ?", (base, next_base(base)))
    file.execute("DELETE FROM topic WHERE id = ?", (id_,))


def list_topics(file: sqlite3.Connection) -> list[str]:
    """Return the names of all topics, sorted."""
    rows = file.execute("SELECT name FROM topic ORDER BY name").fetchall()
    return [name for (name,) in msgspec.convert(rows, list[tuple[str]])]


def partition_count(file: sqlite3.Connection, topic: str) -> int:
    """Return how many partitions a topic has."""
    return _topic(file, topic)[1]


def topic_uuid(file: sqlite3.Connection, topic: str) -> str:
    """Return the id of a topic, which no topic of any file shares."""
    id_, _ = _topic(file, topic)
    row = file.execute("SELECT uuid FROM topic WHERE id = ?", (id_,)).fetchone()
    (uuid,) = msgspec.convert(row, tuple[str])
    return uuid


def describe_topic(file: sqlite3.Connection, topic: str) -> TopicDescription:
    """Return a topic with its settings."""
    id_, count = _topic(file, topic)
    row = file.execute("SELECT settings FROM topic WHERE id = ?", (id_,)).fetchone()
    (text,) = msgspec.convert(row, tuple[str])
    return TopicDescription(topic, count, _settings_of(topic, text)[0])


def find_partition(file: sqlite3.Connection, name: TopicPartition) -> Partition:
    """Return a partition; raise `UnknownTopicError` if it does not exist."""
    row = file.execute(
        "SELECT p.id, p.log_start_offset, p.end_offset, p.cleaned, p.compacted_records, t.settings"
        " FROM partition p JOIN topic t ON t.id = p.topic WHERE t.name = ? AND p.number = ?",
        name,
    ).fetchone()
    if row is None:
        _topic(file, name.topic)
        raise UnknownTopicError(name.topic, partition=name.partition)
    *numbers, text = msgspec.convert(row, _PartitionRow)
    id_, log_start_offset, end_offset, cleaned, compacted_records = numbers
    if log_start_offset > end_offset:
        msg = f"{name} begins at {log_start_offset}, and ends at {end_offset}"
        raise sqlite3.DataError(msg)
    settings = _settings_of(name.topic, text)[1]
    return Partition(
        id_,
        TopicPartition(*name),
        log_start_offset,
        end_offset,
        cleaned,
        compacted_records,
        settings,
    )


def next_base(base: int) -> int:
    """Return where the rowids of the next partition begin."""
    return base + (1 << OFFSET_BITS)


def _topic(file: sqlite3.Connection, topic: str) -> tuple[int, int]:
    row = file.execute(
        "SELECT t.id, count(*) FROM topic t JOIN partition p ON p.topic = t.id WHERE t.name = ?"
        " GROUP BY t.id",
        (topic,),
    ).fetchone()
    if row is None:
        raise unknown_topic(topic, list_topics(file))
    return msgspec.convert(row, tuple[int, int])


def _settings_of(topic: str, text: str) -> tuple[dict[str, str], TopicSettings]:
    """Return the settings of a topic as they are stored, and as the log follows them."""
    stored = msgspec.json.decode(text, type=dict[str, str])
    try:
        return stored, settings_from_text(stored)
    except BrokerError as error:
        msg = f"the settings of topic {topic!r}: {error}"
        raise sqlite3.DataError(msg) from error


def _add_partitions(file: sqlite3.Connection, topic: int | None, numbers: range) -> None:
    rows = [(topic, number) for number in numbers]
    file.executemany("INSERT INTO partition (topic, number) VALUES (?, ?)", rows)


def _check_count(topic: str, partitions: int) -> None:
    if not 1 <= partitions <= _MAX_PARTITIONS:
        msg = f"Topic {topic!r} cannot have {partitions} partitions. Use 1 to {_MAX_PARTITIONS}."
        raise BrokerError(msg)
