"""Dead letters: list them, and write them to the topics that they came from, each once."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, NamedTuple

from headrace.brokers.log import LogTransaction, OffsetAndMetadata, TopicLog, TopicPartition
from headrace.errors import UnknownTopicError
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.records import ConsumerRecord, Headers, ProducerRecord
from headrace.topology.naming import redrive_name

ERRORS_PREFIX = "__streams.errors."
"""The headers of a dead letter that say where and why its record failed."""
REDRIVE_PREFIX = "__headrace.redrive."
"""The headers of a replayed record that name its dead letter."""

_MOST_BYTES = 16 << 20
"""How many bytes of keys and values one transaction writes, unless one record has more."""
_SHOWN_BYTES = 4_096


class Origin(NamedTuple):
    """The record that a dead letter is about."""

    topic: str
    partition: int
    offset: int


@dataclass
class Replay:
    """The result of a replay, or of its dry run."""

    is_dry_run: bool
    replayed: Counter[str] = field(default_factory=Counter)
    """How many records go to each topic."""
    skipped: Counter[str] = field(default_factory=Counter)
    """How many dead letters cannot be replayed, by the reason."""
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    """The next dead letter of each partition."""
    has_more: bool = False
    """Whether dead letters are left beyond the limit."""


class DeadLetters:
    """The dead letters of an application.

    Args:
        log: The log of the application.
        application_id: The application.
        topic: The topic of the dead letters.
        inputs: The topics to which records may go back.
    """

    def __init__(
        self, log: TopicLog, application_id: str, topic: str, inputs: Collection[str]
    ) -> None:
        self._log, self._topic, self._inputs = log, topic, inputs
        self._group = redrive_name(application_id)
        self._counts: dict[str, int] = {}

    def newest(self, limit: int) -> list[dict[str, Any]]:
        """Return the newest dead letters of each partition in words, the newest first."""
        partitions = self._partitions()
        starts, ends = self._log.beginning_offsets(partitions), self._log.end_offsets(partitions)
        replayed = self._log.committed_offsets(self._group, partitions)
        shown: list[dict[str, Any]] = []
        for name in partitions:
            start = max(starts[name], ends[name] - limit)
            for dead_letters in self._log.read(name, start, ends[name]):
                # Not one whole dead letter stays: it may have megabytes.
                shown += (self._shown(each, replayed) for each in dead_letters)
                shown = nsmallest(limit, shown, key=_newest_first)
        return shown

    def _partitions(self) -> list[TopicPartition]:
        try:
            count = self._log.partition_count(self._topic)
        except UnknownTopicError:
            return []
        return [TopicPartition(self._topic, partition) for partition in range(count)]

    def _shown(
        self, dead_letter: ConsumerRecord, replayed: dict[TopicPartition, OffsetAndMetadata]
    ) -> dict[str, Any]:
        name = TopicPartition(dead_letter.topic, dead_letter.partition)
        origin = origin_of(dead_letter)
        return {
            "topic": dead_letter.topic,
            "partition": dead_letter.partition,
            "offset": dead_letter.offset,
            "timestamp": dead_letter.timestamp,
            "key": _shown_bytes(dead_letter.key),
            "value": _shown_bytes(dead_letter.value),
            "exception": _shown_text(_header(dead_letter, "exception")),
            "message": _shown_text(_header(dead_letter, "message")),
            "origin": None if origin is None else origin._asdict(),
            "is_replayed": name in replayed and dead_letter.offset < replayed[name].offset,
        }

    def replay(self, limit: int, *, dry_run: bool) -> Replay:
        """Write dead letters that were not replayed yet to their topics, in one transaction.

        Args:
            limit: How many dead letters to use at most.
            dry_run: Whether to write nothing.
        """
        replay = Replay(dry_run)
        if dry_run:
            for _ in self._records(replay, limit):
                pass
            return replay
        with self._log.transaction(self._group, size=_MOST_BYTES) as transaction:
            # Another replay is fenced from here on, so its offsets do not change any more.
            self._write(transaction, replay, limit)
        return replay

    def _write(self, transaction: LogTransaction, replay: Replay, limit: int) -> None:
        records = [*self._records(replay, limit)]
        for index, refusal in self._log.refusals(records):
            msg = (
                f"The record of topic {records[index].topic!r} cannot be written: {refusal} "
                "Nothing was replayed."
            )
            raise QueryProblemError(ProblemCode.BAD_REQUEST, msg)
        transaction.append(records)
        if replay.offsets:
            transaction.commit_offsets(
                self._group,
                {name: OffsetAndMetadata(offset) for name, offset in replay.offsets.items()},
            )

    def _records(self, replay: Replay, limit: int) -> Iterator[ProducerRecord]:
        """Yield the records to write, and count them."""
        used = size = 0
        for dead_letter in self._unused():
            size += len(dead_letter.key or b"") + len(dead_letter.value or b"")
            if used == limit or (used and size > _MOST_BYTES):
                replay.has_more = True
                return
            used += 1
            replay.offsets[TopicPartition(dead_letter.topic, dead_letter.partition)] = (
                dead_letter.offset + 1
            )
            origin = origin_of(dead_letter)
            problem = self._problem_of(dead_letter, origin)
            if problem is not None:
                replay.skipped[problem] += 1
                continue
            assert origin is not None, "checked"
            replay.replayed[origin.topic] += 1
            yield _replayed(dead_letter, origin)

    def _unused(self) -> Iterator[ConsumerRecord]:
        partitions = self._partitions()
        starts, ends = self._log.beginning_offsets(partitions), self._log.end_offsets(partitions)
        for name, committed in self._log.committed_offsets(self._group, partitions).items():
            starts[name] = max(starts[name], committed.offset)
        for name in partitions:
            for dead_letters in self._log.read(name, starts[name], max(starts[name], ends[name])):
                yield from dead_letters

    def _problem_of(self, dead_letter: ConsumerRecord, origin: Origin | None) -> str | None:
        if origin is None:
            return "The headers of the dead letter do not name its source record."
        if origin.topic not in self._inputs:
            return "The record did not come from an input of the application."
        if dead_letter.key is None and dead_letter.value is None:
            return "The dead letter was shortened, and has neither key nor value."
        count = self._counts.get(origin.topic)
        if count is None:
            count = self._counts[origin.topic] = self._log.partition_count(origin.topic)
        if origin.partition >= count:
            return "The input no longer has the partition."
        return None


def _newest_first(shown: dict[str, Any]) -> tuple[int, int, int]:
    return -shown["timestamp"], shown["partition"], -shown["offset"]


def origin_of(dead_letter: ConsumerRecord) -> Origin | None:
    """Return the record that a dead letter is about; None: its headers do not say."""
    topic = _header(dead_letter, "topic")
    partition, offset = _header(dead_letter, "partition"), _header(dead_letter, "offset")
    if topic and partition and offset and partition.isdecimal() and offset.isdecimal():
        return Origin(topic, int(partition), int(offset))
    return None


def _replayed(dead_letter: ConsumerRecord, origin: Origin) -> ProducerRecord:
    own = [
        (name, value)
        for name, value in dead_letter.headers
        if not name.startswith((ERRORS_PREFIX, REDRIVE_PREFIX))
    ]
    source = {
        "topic": dead_letter.topic,
        "partition": dead_letter.partition,
        "offset": dead_letter.offset,
    }
    own += [(f"{REDRIVE_PREFIX}{name}", str(value).encode()) for name, value in source.items()]
    return ProducerRecord(
        origin.topic,
        origin.partition,
        max(0, dead_letter.timestamp),
        dead_letter.key,
        dead_letter.value,
        Headers(own),
    )


def _header(dead_letter: ConsumerRecord, name: str) -> str | None:
    value = dead_letter.headers.last(f"{ERRORS_PREFIX}{name}")
    return None if value is None else value.decode("utf-8", "replace")


def _shown_text(text: str | None) -> str | None:
    return None if text is None else text[:_SHOWN_BYTES]


def _shown_bytes(data: bytes | None) -> Any:
    """Return bytes as text, or in hexadecimal if they are none; long ones are cut."""
    if data is None:
        return None
    start = data[:_SHOWN_BYTES]
    try:
        # The cut may have split a character.
        return getincrementaldecoder("utf-8")().decode(start, final=len(start) == len(data))
    except UnicodeDecodeError:
        return {"$hex": start.hex()}
