"""The timestamp extractor that keeps times that cannot be right out of stream time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from headrace import ConsumerRecord, FixedKeyRecord, Record
from headrace.examples.check_time import DAY

_FROM_THE_FUTURE = 0
"""The timestamp that replaces one from more than a day ahead."""


@dataclass(frozen=True)
class RefuseFuture:
    """Keep a timestamp from the future out of stream time, which would wait for that time.

    A step calls `refuse_future`, which refuses a record with the timestamp that replaces it.
    """

    uses_wall_clock: ClassVar[bool] = True
    latest: int = 0

    def at(self, wall_clock_ms: int, /) -> RefuseFuture:
        return RefuseFuture(wall_clock_ms + DAY)

    def __call__(self, record: ConsumerRecord, _partition_time: int, /) -> int:
        if record.timestamp > self.latest:
            return _FROM_THE_FUTURE
        return record.timestamp or 1  # 0 says that it is from the future


def refuse_future(record: Record[Any, Any] | FixedKeyRecord[Any, Any]) -> None:
    """Refuse a record whose timestamp `RefuseFuture` has replaced; its dead letter says why."""
    if record.timestamp == _FROM_THE_FUTURE:
        msg = "The record is from more than a day ahead."
        raise ValueError(msg)
