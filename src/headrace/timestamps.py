"""The extractors of timestamps, and what they do with a record that has none."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

from headrace.errors import InvalidTimestampError
from headrace.records import ConsumerRecord, Timestamp

_log = logging.getLogger(__name__)

TimestampExtractor: TypeAlias = Callable[[ConsumerRecord, int], Timestamp]
"""``f(record, partition_time)``: the timestamp of a record whose key and value are decoded.

The partition time is the highest timestamp seen in the record's partition, or -1. A record with a
negative answer is dropped; an extractor that raises stops the application.
"""


@runtime_checkable
class UsesWallClock(Protocol):
    """An extractor that needs the time of day, which only the task knows.

    The engine reads no clock: the time is part of its input, so that a replayed batch gives the
    same records. It calls ``at`` with the task's time and uses the extractor that comes back.
    """

    uses_wall_clock: ClassVar[bool]

    def at(self, wall_clock_ms: int, /) -> TimestampExtractor:
        """Return the extractor to use while the task's clock stands at ``wall_clock_ms``."""
        ...


def uses_partition_time(extractor: TimestampExtractor) -> bool:
    """Return whether an extractor may use the partition time, as a user's function may."""
    return getattr(extractor, "uses_partition_time", True)


@dataclass(frozen=True)
class FailOnInvalidTimestamp:
    """Use the timestamp of the record; a negative one stops the application. The default."""

    uses_partition_time: ClassVar[bool] = False

    def __call__(self, record: ConsumerRecord, partition_time: int, /) -> int:
        if record.timestamp < 0:
            raise _invalid(
                record,
                "Use `LogAndSkipOnInvalidTimestamp`, `UsePartitionTimeOnInvalidTimestamp` or "
                "`WallclockTimestampExtractor` as `timestamp_extractor`, or your own function.",
            )
        return record.timestamp


@dataclass(frozen=True)
class LogAndSkipOnInvalidTimestamp:
    """Use the timestamp of the record; a record with a negative one is logged and dropped."""

    uses_partition_time: ClassVar[bool] = False

    def __call__(self, record: ConsumerRecord, partition_time: int, /) -> int:
        if record.timestamp < 0:
            _log.warning(
                "Record %s of topic %s, partition %s is dropped: its timestamp %s is negative.",
                record.offset,
                record.topic,
                record.partition,
                record.timestamp,
            )
        return record.timestamp


@dataclass(frozen=True)
class UsePartitionTimeOnInvalidTimestamp:
    """Use the timestamp of the record, or the partition time in place of a negative one."""

    def __call__(self, record: ConsumerRecord, partition_time: int, /) -> int:
        if record.timestamp >= 0:
            return record.timestamp
        if partition_time < 0:
            raise _invalid(
                record,
                "No record of its partition had a timestamp yet to use in its place. "
                "Use `LogAndSkipOnInvalidTimestamp` or your own function as `timestamp_extractor`.",
            )
        return partition_time


@dataclass(frozen=True)
class WallclockTimestampExtractor:
    """Use the time of day at which the record is processed.

    Called directly it raises: only a running task has a clock (see `UsesWallClock`).
    """

    uses_wall_clock: ClassVar[bool] = True
    uses_partition_time: ClassVar[bool] = False

    def at(self, wall_clock_ms: int, /) -> TimestampExtractor:
        return _FixedTimestamp(wall_clock_ms)

    def __call__(self, record: ConsumerRecord, partition_time: int, /) -> int:
        msg = (
            "`WallclockTimestampExtractor` has no clock of its own: the task that runs it has. "
            "Call `.at(wall_clock_ms)` first, and then what it returns."
        )
        raise RuntimeError(msg)


@dataclass(frozen=True)
class _FixedTimestamp:
    """Give every record one timestamp."""

    timestamp: int

    def __call__(self, record: ConsumerRecord, partition_time: int, /) -> int:
        return self.timestamp


def _invalid(record: ConsumerRecord, remedy: str) -> InvalidTimestampError:
    return InvalidTimestampError(
        f"Record {record.offset} of topic {record.topic!r}, partition {record.partition} has the "
        f"timestamp {record.timestamp}, which is negative. {remedy}",
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
    )
