"""The facts of every type of store: how it opens, its changelog, what a batch can prefetch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

from headrace.serdes.base import Serde
from headrace.state.cache import CacheBudget
from headrace.state.changelog import Changelog
from headrace.state.maps import StoreBackend
from headrace.state.store_times import StoreTimes

if TYPE_CHECKING:
    from headrace.state.specs import StoreBuilder


StoreKind: TypeAlias = Literal[
    "key_value",
    "timestamped_key_value",
    "window",
    "timestamped_window",
    "session",
    "versioned_key_value",
    "lru_map",
    "suppress_buffer",
    "join_buffer",
    "unmatched",
    "subscription",
]
"""The kind of a store. The last four serve one operation each and are not public."""


class StoreContext(Protocol):
    """The services of its task that a store may use."""

    cache: CacheBudget | None
    """The memory for held-back writes, or None if they go straight through."""

    stream_time: int
    """The task's stream time."""

    def drop(self, store: str, reason: str, /) -> None:
        """Count a write that a store refused."""
        ...


class Opening(NamedTuple):
    """The parts with which a task opens a store."""

    backend: StoreBackend
    context: StoreContext
    times: Any
    """The store's `StoreType.times`; the store changes them."""
    changelog: Any = None
    """Collects the store's changes: see `LoggedStoreType.new_changelog`."""


Prefetch: TypeAlias = Generator[tuple[int | None, list[Any]], list[Any], None]
"""Loads the entries of a store that a batch needs. It yields a segment, or None for the map, with
sorted entry keys, and receives the stored value of each key, or None."""


class ChangelogRecord(NamedTuple):
    """A record of a changelog topic; a value of None deletes."""

    key: bytes
    value: bytes | None
    timestamp: int


class StoreType(ABC):
    """The meaning of a kind of store, for one store."""

    kind: ClassVar[StoreKind]
    """The name of the kind."""
    times: ClassVar[type[StoreTimes]] = StoreTimes
    """The facts that the store saves besides its entries."""
    has_changelog: ClassVar[bool] = False
    """Whether users may name and query such a store, so that its changes have a topic."""
    is_versioned: ClassVar[bool] = False

    def __init__(self, store: StoreBuilder[Any]) -> None:
        self.store = store
        self.persistent = bool(store.persistent)

    @property
    def arguments(self) -> tuple[str, Serde[Any], Serde[Any]]:
        """The first arguments of the class of every store: its name and serdes."""
        return self.store.name, self.store.key.need, self.store.value.need

    @abstractmethod
    def open(self, opening: Opening) -> Any:
        """Return the store as operations and processors see it."""

    def prefetch(self, _keys: list[bytes], /) -> Prefetch | None:
        """Return what records with these keys need, which are sorted.

        None means the entries whose keys are, or begin with, one of these: in a store with
        segments, those of the newest segments.
        """
        return None


class LoggedStoreType(StoreType):
    """A type of store that has a changelog topic, and that can be opened from it for reading.

    The changelog has the byte layout of Kafka Streams. By default an entry key is the key's bytes,
    and what is stored is the value's bytes.
    """

    has_changelog = True
    has_timestamps: ClassVar[bool] = False
    """Whether value and timestamp are stored; otherwise only the value is."""
    has_windows: ClassVar[bool] = False
    """Whether each entry belongs to a window or a session; otherwise a key has one value."""
    has_sessions: ClassVar[bool] = False
    """Whether these windows are sessions, of which each has an end of its own."""
    cleanup_policy: ClassVar[str] = "compact"
    """Kafka's ``cleanup.policy`` of the changelog topic; the application may set another."""
    has_segments: ClassVar[bool] = False
    """Whether `apply` puts entries into segments, of which the oldest expire: `first_segment`."""
    replaces: ClassVar[bool] = True
    """Whether each record of the changelog replaces the one before it with the same key."""

    def changelog_times(self) -> dict[str, str]:
        """Return the settings of the changelog topic that only the store itself may change."""
        return {}

    def new_changelog(self, topic: str, now: Callable[[], int]) -> Changelog:
        """Return a changelog; ``now`` is the timestamp of changes that have none of their own."""
        return Changelog(topic, None, now, has_timestamps=self.has_timestamps)

    def record_key(self, entry_key: Any) -> bytes:
        """Return the changelog key of an entry key."""
        return entry_key  # type: ignore[no-any-return]

    def entry_key(self, record_key: bytes) -> Any:
        """Return the entry key of a changelog key."""
        return record_key

    def stored(self, value: bytes, timestamp: int) -> Any:
        """Return what the store holds for a value and timestamp of the changelog."""
        return (value, timestamp) if self.has_timestamps else value

    def segment(self, entry_key: Any, /) -> int:
        """Return the segment of an entry by its key, in a store where each record replaces."""
        raise NotImplementedError  # stores with segments say which

    def first_segment(self, saved: Mapping[str, int], /) -> int:
        """Return the first segment that readers see, at the times that the task saved."""
        raise NotImplementedError  # stores with segments say which

    def apply(self, records: Iterable[ChangelogRecord], backend: StoreBackend) -> None:
        """Change entries as the records of a changelog say, for `open_for_reading`."""
        entries = backend.map(self.store)
        for key, value, timestamp in records:
            if value is None:
                entries.pop(self.entry_key(key))
            else:
                entries.put(self.entry_key(key), self.stored(value, timestamp))

    @abstractmethod
    def open_for_reading(self, backend: StoreBackend, times: Any, /) -> Any:
        """Return the store over the entries that `apply` made, at the times that the task saved.

        Neither opening nor reading changes the entries.
        """
