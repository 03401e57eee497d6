"""MockProcessorContext: test one processor alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.durations import Duration
from headrace.engine.punctuation import new_schedule
from headrace.errors import UnknownStoreError
from headrace.processors.api import PunctuationType
from headrace.records import RecordMetadata, Timestamp, timestamp_ms
from headrace.state.cache import CacheBudget
from headrace.state.maps import MemoryStores
from headrace.state.specs import StoreBuilder
from headrace.state.store_types.base import Opening
from headrace.state.store_types.lookup import type_of


class CapturedForward(NamedTuple):
    """A record that the processor forwarded."""

    record: Any
    child: str | None
    """The child it named, or None for all."""


@dataclass
class CapturedPunctuator:
    """A schedule that the processor made. It never fires by itself: call the punctuator."""

    interval_ms: int
    type: PunctuationType
    punctuator: Callable[[int], object]
    start_time: int | None = None
    cancelled: bool = False

    def cancel(self) -> None:
        """End the schedule."""
        self.cancelled = True


class MockProcessorContext:
    """A `ProcessorContext` that writes down what a processor asks of it.

    Args:
        application_id: The value of `application_id`.
        task_id: The value of `task_id`.
        app_configs: The result of `app_configs()`.
        stores: The stores the processor may ask for; also those of its own `stores()`.
    """

    cache: CacheBudget | None = None

    def __init__(
        self,
        *,
        application_id: str = "mock-application",
        task_id: str = "0_0",
        app_configs: Mapping[str, Any] | None = None,
        stores: tuple[StoreBuilder[Any], ...] = (),
    ) -> None:
        self.application_id = application_id
        self.task_id = task_id
        self.record_metadata: RecordMetadata | None = None
        self.forwarded: list[CapturedForward] = []
        """The forwarded records, in order."""
        self.scheduled_punctuators: list[CapturedPunctuator] = []
        """The schedules that were made, in order."""
        self.committed = False
        """Whether a commit was asked for."""
        self.dropped: list[tuple[str, str]] = []
        """The writes that stores refused: (store, reason)."""
        self._app_configs = dict(app_configs or {})
        self.stream_time = -1
        self._system_time = 0
        self._data = MemoryStores()
        self._stores: dict[str, Any] = {}
        for store in stores:
            self.add_state_store(store)

    def add_state_store(self, store: StoreBuilder[Any]) -> None:
        """Add a store that the processor may use."""
        resolved = store.resolved(lambda slot: slot, persistent=True)
        store_type = type_of(resolved)
        opening = Opening(self._data, self, store_type.times())
        self._stores[store.name] = store_type.open(opening)

    def reset_forwards(self) -> None:
        """Forget what was forwarded."""
        self.forwarded.clear()

    def reset_commit(self) -> None:
        """Forget that a commit was asked for."""
        self.committed = False

    def set_record_metadata(self, topic: str, partition: int, offset: int) -> None:
        """Set the topic, partition and offset of the next record."""
        self.record_metadata = RecordMetadata(topic, partition, offset)

    def set_current_stream_time_ms(self, time: Timestamp) -> None:
        """Set the stream time."""
        self.stream_time = timestamp_ms(time)

    def set_current_system_time_ms(self, time: Timestamp) -> None:
        """Set the wall clock."""
        self._system_time = timestamp_ms(time)

    def forward(self, record: Any, child: str | None = None) -> None:
        self.forwarded.append(CapturedForward(record, child))

    def commit(self) -> None:
        self.committed = True

    def get_state_store(self, store: StoreBuilder[Any] | str, /) -> Any:
        name = store if isinstance(store, str) else store.name
        if name not in self._stores:
            raise UnknownStoreError(name, node="the processor", connected=self._stores)
        return self._stores[name]

    def schedule(
        self,
        interval: Duration,
        punctuation_type: PunctuationType,
        punctuator: Callable[[int], object],
        *,
        start_time: Timestamp | None = None,
    ) -> CapturedPunctuator:
        asked = new_schedule(
            "the processor",
            interval,
            punctuation_type,
            punctuator,
            start_time=start_time,
            now=self._system_time,
        )
        captured = CapturedPunctuator(
            asked.interval_ms,
            punctuation_type,
            punctuator,
            None if start_time is None else timestamp_ms(start_time),
        )
        self.scheduled_punctuators.append(captured)
        return captured

    def current_stream_time_ms(self) -> int:
        return self.stream_time

    def current_system_time_ms(self) -> int:
        return self._system_time

    def app_configs(self) -> Mapping[str, Any]:
        return self._app_configs

    def drop(self, store: str, reason: str) -> None:
        """Write down a write that a store refused."""
        self.dropped.append((store, reason))
