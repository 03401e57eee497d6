"""The stores as processors see them: one protocol per kind, each contract written once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar, overload

from headrace.records import K, Timestamp, V, VersionedRecord
from headrace.windows.window import Windowed

K_contra = TypeVar("K_contra", contravariant=True)
V_co = TypeVar("V_co", covariant=True)


class StateStore(Protocol):
    """The properties of every store."""

    @property
    def name(self) -> str:
        """The name the store was built with."""
        ...

    @property
    def persistent(self) -> bool:
        """Return whether the store was asked to live on disk."""
        ...


class ReadOnlyKeyValueStore(Protocol[K, V_co]):
    """One value per key, in the order of the serialised keys.

    Iterators read what was there when they were made, and need no close.
    """

    def get(self, key: K) -> V_co | None:
        """Return the value of ``key``, or None."""
        ...

    def range(self, start: K | None = None, end: K | None = None) -> Iterator[tuple[K, V_co]]:
        """Yield entries from ``start`` to ``end``, both included; None leaves that end open."""
        ...

    def reverse_range(
        self, start: K | None = None, end: K | None = None
    ) -> Iterator[tuple[K, V_co]]:
        """Yield what `range` yields, last key first."""
        ...

    def all(self) -> Iterator[tuple[K, V_co]]:
        """Yield every entry."""
        ...

    def reverse_all(self) -> Iterator[tuple[K, V_co]]:
        """Yield every entry, last key first."""
        ...

    def prefix_scan(self, prefix: K) -> Iterator[tuple[K, V_co]]:
        """Yield entries whose serialised key starts with the serialised ``prefix``."""
        ...

    def approximate_num_entries(self) -> int:
        """Return about how many entries there are."""
        ...


class KeyValueStore(StateStore, ReadOnlyKeyValueStore[K, V], Protocol[K, V]):
    """One value per key, in the order of the serialised keys. Storing None deletes."""

    def put(self, key: K, value: V | None) -> None:
        """Set the value of ``key``; None deletes it."""
        ...

    def put_if_absent(self, key: K, value: V) -> V | None:
        """Set the value of ``key`` if it has none; return the value it had, or None."""
        ...

    def put_all(self, pairs: Iterable[tuple[K, V | None]]) -> None:
        """Set several values, in the order given."""
        ...

    def delete(self, key: K) -> V | None:
        """Remove ``key``; return the value it had, or None."""
        ...


class ReadOnlyWindowStore(Protocol[K, V_co]):
    """One value per key and window start; entries past the retention are not seen.

    Times are window starts, bounds are included.
    """

    @overload
    def fetch(self, key: K, start: Timestamp, /) -> V_co | None: ...
    @overload
    def fetch(self, key: K, start: Timestamp, end: Timestamp, /) -> Iterator[tuple[int, V_co]]: ...
    def fetch(
        self, key: K, start: Timestamp, end: Timestamp | None = None, /
    ) -> V_co | Iterator[tuple[int, V_co]] | None:
        """Return the value in the window that starts then; with ``end``, yield (start, value)."""
        ...

    def backward_fetch(
        self, key: K, start: Timestamp, end: Timestamp
    ) -> Iterator[tuple[int, V_co]]:
        """Yield (start, value) of a key, latest window first."""
        ...

    def fetch_range(
        self, first: K | None, last: K | None, start: Timestamp, end: Timestamp
    ) -> Iterator[tuple[Windowed[K], V_co]]:
        """Yield the windows of the keys from ``first`` to ``last``."""
        ...

    def backward_fetch_range(
        self, first: K | None, last: K | None, start: Timestamp, end: Timestamp
    ) -> Iterator[tuple[Windowed[K], V_co]]:
        """Yield what `fetch_range` yields, in the opposite order."""
        ...

    def fetch_all(self, start: Timestamp, end: Timestamp) -> Iterator[tuple[Windowed[K], V_co]]:
        """Yield the windows of every key."""
        ...

    def backward_fetch_all(
        self, start: Timestamp, end: Timestamp
    ) -> Iterator[tuple[Windowed[K], V_co]]:
        """Yield what `fetch_all` yields, in the opposite order."""
        ...

    def all(self) -> Iterator[tuple[Windowed[K], V_co]]:
        """Yield every entry."""
        ...

    def backward_all(self) -> Iterator[tuple[Windowed[K], V_co]]:
        """Yield every entry, in the opposite order."""
        ...


class WindowStore(StateStore, ReadOnlyWindowStore[K, V], Protocol[K, V]):
    """One value per key and window start; entries past the retention are not seen.

    Times are window starts, bounds are included. Storing None deletes.
    """

    def put(self, key: K, value: V | None, window_start: Timestamp) -> None:
        """Set the value of a key in the window that starts then; None deletes it."""
        ...


class ReadOnlySessionStore(Protocol[K, V_co]):
    """One value per key and session."""

    def fetch(self, key: K) -> Iterator[tuple[Windowed[K], V_co]]:
        """Yield the sessions of a key, earliest first."""
        ...

    def backward_fetch(self, key: K) -> Iterator[tuple[Windowed[K], V_co]]:
        """Yield the sessions of a key, latest first."""
        ...

    def fetch_range(self, first: K | None, last: K | None) -> Iterator[tuple[Windowed[K], V_co]]:
        """Yield the sessions of the keys from ``first`` to ``last``."""
        ...

    def backward_fetch_range(
        self, first: K | None, last: K | None
    ) -> Iterator[tuple[Windowed[K], V_co]]:
        """Yield what `fetch_range` yields, in the opposite order."""
        ...

    def find_sessions(
        self, key: K, earliest_end: Timestamp, latest_start: Timestamp
    ) -> Iterator[tuple[Windowed[K], V_co]]:
        """Yield sessions that end at ``earliest_end`` or later and start by ``latest_start``."""
        ...

    def backward_find_sessions(
        self, key: K, earliest_end: Timestamp, latest_start: Timestamp
    ) -> Iterator[tuple[Windowed[K], V_co]]:
        """Yield what `find_sessions` yields, latest first."""
        ...

    def fetch_session(self, key: K, start: Timestamp, end: Timestamp) -> V_co | None:
        """Return the value of exactly that session, or None."""
        ...

    def all(self) -> Iterator[tuple[Windowed[K], V_co]]:
        """Yield every session."""
        ...

    def backward_all(self) -> Iterator[tuple[Windowed[K], V_co]]:
        """Yield every session, in the opposite order."""
        ...


class SessionStore(StateStore, ReadOnlySessionStore[K, V], Protocol[K, V]):
    """One value per key and session. Storing None deletes."""

    def put(self, session: Windowed[K], value: V | None) -> None:
        """Set the value of a session; None removes it."""
        ...

    def remove(self, session: Windowed[K]) -> None:
        """Forget a session."""
        ...


class ReadOnlyVersionedKeyValueStore(Protocol[K_contra, V]):
    """The values of a key over time, as far back as the history retention."""

    def get(self, key: K_contra, as_of: Timestamp | None = None) -> VersionedRecord[V] | None:
        """Return the latest version, or the one that was valid at ``as_of``."""
        ...


class VersionedKeyValueStore(
    StateStore, ReadOnlyVersionedKeyValueStore[K_contra, V], Protocol[K_contra, V]
):
    """The values of a key over time, as far back as the history retention."""

    def put(self, key: K_contra, value: V | None, timestamp: Timestamp) -> int:
        """Set the value from ``timestamp`` on; None deletes it.

        Returns:
            Until when it is valid; -1 if it is the latest, -2**63 if it was too old to keep.
        """
        ...

    def delete(self, key: K_contra, timestamp: Timestamp) -> VersionedRecord[V] | None:
        """Delete the value from ``timestamp`` on; return the version valid until then."""
        ...
