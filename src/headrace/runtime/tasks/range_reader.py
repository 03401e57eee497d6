"""Reads ranges of offsets, with what the application decided about lost and large records."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from headrace.brokers.log import PartitionColumns, TopicLog, TopicPartition
from headrace.errors import BrokerError, OffsetOutOfRangeError
from headrace.runtime.batches import Range
from headrace.runtime.program import Program

_GONE_SECONDS = 10.0
"""How long a broker may report deleted records before it reports a new log start offset."""
_PAUSE = 0.1


def read_ranges(
    program: Program, log: TopicLog, ranges: Iterable[Range], lost: dict[TopicPartition, int]
) -> Iterator[PartitionColumns]:
    """Yield the records of ranges; if deleted ones may be skipped, count them in ``lost``."""
    left = {TopicPartition(each.topic, each.partition): (each.start, each.end) for each in ranges}
    give_up: float | None = None
    while True:
        try:
            for name, columns in log.read_ranges([(name, *left[name]) for name in left]):
                left[name] = (columns.offsets[-1] + 1, left[name][1])
                give_up = None
                yield name, columns.without_oversized(program.config.max_record_bytes)
        except OffsetOutOfRangeError as error:
            if program.config.fail_on_data_loss:
                raise
            left = {name: (start, end) for name, (start, end) in left.items() if start < end}
            if _skipped(log, left, lost):
                give_up = None
                continue
            # A broker that has just become leader may not know its log start offsets yet.
            give_up = give_up or time.monotonic() + _GONE_SECONDS
            if time.monotonic() >= give_up:
                raise _undecided(error) from error
            time.sleep(_PAUSE)
        else:
            return


def _skipped(
    log: TopicLog, left: dict[TopicPartition, tuple[int, int]], lost: dict[TopicPartition, int]
) -> bool:
    """Skip to the log start offsets; return whether any was later than the offset to read."""
    moved = False
    for name, beginning in log.beginning_offsets(left).items():
        start, end = left[name]
        if beginning > start:
            lost[name] = lost.get(name, 0) + min(beginning, end) - start
            left[name] = (min(beginning, end), end)
            moved = True
    return moved


def _undecided(error: OffsetOutOfRangeError) -> BrokerError:
    """Return the error of a broker that has no records and no later log start offset."""
    return BrokerError(
        f"The broker reports that offset {error.offset} of {error.topic!r}, partition "
        f"{error.partition}, is gone, but no later log start offset. Check the broker, and start "
        "again."
    )
