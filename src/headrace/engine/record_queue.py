"""The records of one partition that wait to be processed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headrace.engine.error_text import describe_error
from headrace.engine.errors_of_no_record import raise_unless_of_record
from headrace.engine.samples import Measurements
from headrace.errors import InvalidTimestampError, RecordError
from headrace.processors.operation import Process
from headrace.records import MAX_TIMESTAMP, ConsumerRecord, oversized, readable, timestamp_ms
from headrace.serdes.base import Serde, serde_for_topic
from headrace.timestamps import FailOnInvalidTimestamp, TimestampExtractor, UsesWallClock

if TYPE_CHECKING:
    from headrace.engine.task import Task


class StampedRecord(NamedTuple):
    """The next record of a queue, decoded."""

    raw: ConsumerRecord
    key: Any
    value: Any
    timestamp: int


class Backlog(Protocol):
    """Records of one partition that an earlier task has read and not processed."""

    count: int
    """How many records are left to read."""

    def read(self) -> Sequence[ConsumerRecord]:
        """Return the next records, in the order of their offsets; none if all are read."""
        ...


class RecordQueue:
    """Records of one partition in the order of their offsets; the first one is decoded."""

    def __init__(
        self,
        task: Task,
        source: str,
        topic: str,
        partition: int,
        serdes: tuple[Serde[Any], Serde[Any]],
        extractor: TimestampExtractor,
        process: Process,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.id = f"{topic}/{partition}"
        """The name of the queue in the task state."""
        self.process = process
        self.measurements = Measurements()
        self.processed = 0
        """How many of its records were processed since they were last counted."""
        self.partition_time = -1
        self.has_more = False
        """Whether the topic is known to hold more records than were enqueued."""
        self.waiting: deque[ConsumerRecord] = deque()
        self._backlog: Backlog | None = None
        self._behind_backlog: list[ConsumerRecord] = []
        self._task = task
        self.source = source
        """The node that reads it."""
        self.decode_key = serde_for_topic(serdes[0], topic, is_key=True).deserialize
        self.decode_value = serde_for_topic(serdes[1], topic, is_key=False).deserialize
        self._extract = extractor
        uses_clock = isinstance(extractor, UsesWallClock) and extractor.uses_wall_clock
        self._clock: UsesWallClock | None = extractor if uses_clock else None  # type: ignore[assignment]  # just asked
        self.plain_timestamps = type(extractor) is FailOnInvalidTimestamp
        """Whether a timestamp of zero or more is used as it is."""
        self._head: StampedRecord | None = None

    def resume(self, backlog: Backlog) -> None:
        """Begin with the records of a backlog, which the queue reads when it needs them."""
        self._backlog = backlog

    def add(self, records: Iterable[ConsumerRecord]) -> None:
        """Append records, in the order of their offsets."""
        (self.waiting if self._backlog is None else self._behind_backlog).extend(records)

    def has_unread(self) -> bool:
        """Return whether the next record must be read from the backlog first."""
        return self._head is None and not self.waiting and self._backlog is not None

    def read_backlog(self) -> None:
        """Read the next records of the backlog."""
        assert self._backlog is not None, "only a queue with unread records reads"
        self.waiting.extend(self._backlog.read())
        if not self._backlog.count:
            self._backlog = None
            self.waiting.extend(self._behind_backlog)
            self._behind_backlog.clear()

    def is_empty(self) -> bool:
        return self._head is None and not self.waiting and self._backlog is None

    def is_decoded(self) -> bool:
        return self._head is not None

    def unprocessed(self) -> list[ConsumerRecord]:
        """Return the records in memory that wait, as they were read."""
        head = [] if self._head is None else [self._head.raw]
        return [*head, *self.waiting, *self._behind_backlog]

    def head(self) -> StampedRecord | None:
        """Return the next record in memory, decoded; None if there is none."""
        while self._head is None and self.waiting:
            self._head = self.decode(self.waiting.popleft())
        return self._head

    def take(self) -> StampedRecord:
        """Remove and return the first record, which `head` has decoded."""
        head = self._head
        assert head is not None, "taken without a look"
        self._head = None
        self.partition_time = max(self.partition_time, head.timestamp)
        return head

    def put_back(self, raw: ConsumerRecord, key: Any, value: Any, timestamp: int) -> None:
        """Make a decoded record the first of the queue again."""
        self._head = StampedRecord(raw, key, value, timestamp)

    def decode(self, raw: ConsumerRecord) -> StampedRecord | None:
        """Return a record decoded; None if it is skipped, which the task counts."""
        failures = self._task.failures
        if raw.timestamp < 0:
            raw, unreadable = readable(raw)
            if unreadable is not None:
                failures.deserialization(UnicodeError(unreadable), raw, self.source, "headers")
                return None
            raw, size = oversized(raw)
            if size is not None:
                limit = self._task.settings.max_record_bytes
                error = ValueError(f"it has {size} bytes, more than `max_record_bytes` = {limit}")
                failures.deserialization(error, raw, self.source, "size")
                return None
        try:
            key = None if raw.key is None else self.decode_key(raw.key)
        except Exception as error:
            failures.deserialization(error, raw, self.source, "key")
            return None
        try:
            value = None if raw.value is None else self.decode_value(raw.value)
        except Exception as error:
            failures.deserialization(error, raw, self.source, "value")
            return None
        timestamp = self._timestamp(raw, key, value)
        if timestamp < 0:
            self._task.drop(self.source, "invalid-timestamp")
            return None
        return StampedRecord(raw, key, value, timestamp)

    def _timestamp(self, raw: ConsumerRecord, key: Any, value: Any) -> int:
        if self.plain_timestamps and raw.timestamp >= 0:
            return raw.timestamp
        clock = self._clock
        extract = self._extract if clock is None else clock.at(self._task.wall_clock)
        decoded = raw._replace(key=key, value=value)
        try:
            return _checked(timestamp_ms(extract(decoded, self.partition_time)))
        except RecordError:
            raise
        except Exception as error:
            location = f"offset {raw.offset} of topic {raw.topic!r}, partition {raw.partition}"
            raise_unless_of_record(error, f"extract the timestamp of {location}")
            msg = (
                f"The timestamp extractor of source {self.source!r} failed on {location}: "
                f"{describe_error(error)}. Correct it, or let it return -1 to leave the record out."
            )
            raise InvalidTimestampError(
                msg,
                node=self.source,
                topic=raw.topic,
                partition=raw.partition,
                offset=raw.offset,
            ) from error


def _checked(timestamp: Any) -> int:
    if not isinstance(timestamp, int) or isinstance(timestamp, bool):
        msg = f"it returned {timestamp!r}, not milliseconds or a datetime"
        raise TypeError(msg)
    if timestamp > MAX_TIMESTAMP:
        msg = f"it returned {timestamp}, which does not fit in 64 bits"
        raise ValueError(msg)
    return timestamp
