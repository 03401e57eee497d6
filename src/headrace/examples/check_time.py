"""The step that refuses records with a time that cannot be right, for examples with windows."""

from __future__ import annotations

from typing import Any

from headrace import FixedKeyProcessor, FixedKeyProcessorContext, FixedKeyRecord, Stores

DAY = 24 * 60 * 60 * 1000


class CheckTime(FixedKeyProcessor[Any, Any, Any]):
    """Refuses a record for which every window is closed, and one from more than a day ahead.

    A record of the future would close all windows and so make every later record a late one. The
    step keeps the time of the accepted records in a store, because stream time counts all records.

    Args:
        name: The name of the store.
        size: How long a window is, in milliseconds.
        advance: How far a window is from the next one; by default its length.
        grace: How long a window waits for late records, in milliseconds.
    """

    def __init__(self, name: str, size: int, *, advance: int | None = None, grace: int = 0) -> None:
        self._times = Stores.key_value(name, str, int)
        self._advance, self._open = advance or size, size + grace

    def stores(self) -> list[Any]:
        return [self._times]

    def init(self, context: FixedKeyProcessorContext[Any, Any]) -> None:
        super().init(context)
        self._latest = context.get_state_store(self._times)

    def process(self, record: FixedKeyRecord[Any, Any]) -> None:
        if record.timestamp > self.context.current_system_time_ms() + DAY:
            msg = "The record is from more than a day ahead."
            raise ValueError(msg)
        latest = max(record.timestamp, self._latest.get("latest") or 0)
        if record.timestamp - record.timestamp % self._advance + self._open <= latest:
            msg = "The record is late: the last of its windows is closed."
            raise ValueError(msg)
        self._latest.put("latest", latest)
        self.context.forward(record)
