"""The Processor API: what users subclass, and what a processor may ask of its task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar, overload

from headrace.durations import Duration
from headrace.records import FixedKeyRecord, K, Record, RecordMetadata, Timestamp
from headrace.state.specs import StoreBuilder

S = TypeVar("S")
KIn = TypeVar("KIn")
VIn = TypeVar("VIn")
KOut = TypeVar("KOut")
VOut = TypeVar("VOut")


class PunctuationType(Enum):
    """The clock a schedule follows."""

    STREAM_TIME = "stream_time"
    """The task's stream time: moved by records, and only by them."""
    WALL_CLOCK_TIME = "wall_clock_time"
    """The time of day: moves without records too."""


class Cancellable(Protocol):
    """A schedule that can be ended."""

    def cancel(self) -> None:
        """End the schedule; a renewed processor that schedules again does not revive it."""
        ...


class CommonContext(Protocol):
    """The context of every kind of processor."""

    @property
    def application_id(self) -> str:
        """The name of the application."""
        ...

    @property
    def task_id(self) -> str:
        """The task: ``<subtopology>_<partition>``."""
        ...

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Return where the input record came from; None in a punctuation."""
        ...

    def commit(self) -> None:
        """Ask the task to commit as soon as it can.

        On Spark that is the end of the running batch, which commits in any case: a batch has its
        offsets before it runs, and no task can end it early. The test driver commits after the
        record, and flushes the record cache.
        """
        ...

    @overload
    def get_state_store(self, store: StoreBuilder[S], /) -> S: ...
    @overload
    def get_state_store(self, store: str, /) -> Any: ...
    def get_state_store(self, store: StoreBuilder[Any] | str, /) -> Any:
        """Return a connected store; asked with its builder, it is typed.

        Raises:
            UnknownStoreError: The store is not connected to this processor.
        """
        ...

    def schedule(
        self,
        interval: Duration,
        punctuation_type: PunctuationType,
        punctuator: Callable[[int], object],
        *,
        start_time: Timestamp | None = None,
    ) -> Cancellable:
        """Call ``punctuator(timestamp)`` about every ``interval``.

        The task makes a new processor at each commit, and its `init` schedules again. A schedule
        with the same processor, type, interval and order resumes; it does not start over. In
        `process`, the punctuator must be a bound method of the processor.

        Args:
            interval: How long from one call to the next, one millisecond or more.
            punctuation_type: The clock to follow.
            punctuator: Called with the current time of that clock.
            start_time: A point of the grid; left out, stream time starts at 0 and the wall clock
                one interval from now.
        """
        ...

    def current_stream_time_ms(self) -> int:
        """Return the highest timestamp the task has seen, or -1."""
        ...

    def current_system_time_ms(self) -> int:
        """Return the wall-clock time of the task in milliseconds; the same within a batch."""
        ...

    def app_configs(self) -> Mapping[str, Any]:
        """Return the application's settings by Kafka's names."""
        ...


class ProcessorContext(CommonContext, Protocol[KOut, VOut]):
    """The context of a `Processor`."""

    def forward(self, record: Record[KOut, VOut], child: str | None = None) -> None:
        """Hand a record to every child in order, or to the one called ``child``."""
        ...


class FixedKeyProcessorContext(CommonContext, Protocol[K, VOut]):
    """The context of a `FixedKeyProcessor`."""

    def forward(self, record: FixedKeyRecord[K, VOut], child: str | None = None) -> None:
        """Hand a record to every child in order, or to the one called ``child``."""
        ...


class _UsesStores:
    def close(self) -> None:  # optional: most classes have nothing to release
        """Release what `init` took."""

    def stores(self) -> Iterable[StoreBuilder[Any]]:
        """Return the stores to add and connect to this step."""
        return ()


class Processor(_UsesStores, ABC, Generic[KIn, VIn, KOut, VOut]):
    """Handles one record at a time, with stores and schedules.

    A fresh instance is made after each commit: what must last lives in a store.
    """

    context: ProcessorContext[KOut, VOut]

    def init(self, context: ProcessorContext[KOut, VOut]) -> None:
        """Get ready: fetch stores, make schedules. Call ``super().init(context)`` first."""
        self.context = context

    @abstractmethod
    def process(self, record: Record[KIn, VIn]) -> None:
        """Handle a record; forward zero or more."""


class FixedKeyProcessor(_UsesStores, ABC, Generic[K, VIn, VOut]):
    """A processor that cannot change the key, so that no repartition is needed after it."""

    context: FixedKeyProcessorContext[K, VOut]

    def init(self, context: FixedKeyProcessorContext[K, VOut]) -> None:
        """Get ready: fetch stores, make schedules. Call ``super().init(context)`` first."""
        self.context = context

    @abstractmethod
    def process(self, record: FixedKeyRecord[K, VIn]) -> None:
        """Handle a record; forward zero or more with the same key."""


class ValueTransformerWithKey(_UsesStores, ABC, Generic[K, VIn, VOut]):
    """Maps the values of a table, with stores. Also asked for values that are only looked up."""

    context: CommonContext

    def init(self, context: CommonContext) -> None:
        """Get ready: fetch stores. Call ``super().init(context)`` first."""
        self.context = context

    @abstractmethod
    def transform(self, key: K, value: VIn | None) -> VOut | None:
        """Return the value to keep; None deletes. Called for deletions too."""
