"""Collects what changes in a store that can be queried, for its changelog topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from headrace.state.maps import OrderedMap
from headrace.state.segmented_entries import EntryKey, ExpiringEntries


class Changes(NamedTuple):
    """The records of a changelog, a column each; a value of None deletes."""

    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]


class Changelog:
    """The last change of each key since the changes were last taken.

    ``record_key`` returns the changelog key of an entry key; None if they are the same. ``now``
    returns the timestamp of a change that has none of its own.
    """

    def __init__(
        self,
        topic: str,
        record_key: Callable[[Any], bytes] | None,
        now: Callable[[], int],
        *,
        has_timestamps: bool = False,
    ) -> None:
        self.topic = topic
        self.remove_expired: Callable[[], object] | None = None
        """Removes expired entries, so that `take` returns their removal too."""
        self._record_key = record_key
        self._now = now
        self._changes: dict[Any, tuple[bytes | None, int]] = {}
        self.put: Callable[[Any, Any], None] = (
            self._changes.__setitem__ if has_timestamps else self._put_now
        )
        """Adds what is now stored under a key."""

    def _put_now(self, key: Any, stored: bytes) -> None:
        self._changes[key] = (stored, self._now())

    def delete(self, key: Any) -> None:
        """Add the deletion of a key."""
        self._changes[key] = (None, self._now())

    def take(self) -> Changes:
        """Return the changes, in the order in which keys first changed, and forget them."""
        if self.remove_expired is not None:
            self.remove_expired()
        changes, record_key = self._changes, self._record_key
        keys: list[bytes | None] = [*changes] if record_key is None else [*map(record_key, changes)]
        values = [value for value, _ in changes.values()]
        # A log takes no record from before 1970, but a store takes such a value.
        timestamps = [max(timestamp, 0) for _, timestamp in changes.values()]
        changes.clear()
        return Changes(timestamps, keys, values)


class VersionChangelog(Changelog):
    """Each version since the changes were last taken, and then the latest versions again.

    Compaction keeps the last record of a key. Unlike Kafka, `take` therefore lets the latest
    version of a key, or its deletion, follow a version that is older.
    """

    def __init__(self, topic: str) -> None:
        super().__init__(topic, lambda key: key[0], lambda: 0)
        self._latest: dict[bytes, tuple[bytes | None, int]] = {}

    def add_version(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Add the value of a key from a time on; None: it has none."""
        self._changes[key, len(self._changes)] = (value, timestamp)
        if self._latest:
            self._latest.pop(key, None)

    def add_latest(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Add what the latest version of a key is, after an older one was added."""
        self._latest[key] = (value, timestamp)

    def take(self) -> Changes:
        latest, self._latest = self._latest, {}
        for key, (value, timestamp) in latest.items():
            self.add_version(key, value, timestamp)
        return super().take()


class LoggedMap:
    """An `OrderedMap` of bytes that adds its changes to a changelog."""

    __slots__ = ("_add", "_changelog", "_data", "_put", "first", "get", "last", "scan")

    def __init__(self, data: OrderedMap[bytes, Any], changelog: Changelog) -> None:
        self._data = data
        self._changelog = changelog
        self.get = data.get
        self.first = data.first
        self.last = data.last
        self.scan = data.scan
        self._put = data.put
        self._add = changelog.put

    def put(self, key: bytes, value: Any, /) -> None:
        self._put(key, value)
        self._add(key, value)

    def pop(self, key: bytes, /) -> Any:
        value = self._data.pop(key)
        if value is not None:
            self._changelog.delete(key)
        return value

    def __len__(self) -> int:
        return len(self._data)


class LoggedEntries(ExpiringEntries):
    """Entries that expire and add their changes to a changelog, except that they expired."""

    def __init__(self, *arguments: Any, changelog: Changelog, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._changelog = changelog

    def put(self, time: int, key: EntryKey, stored: Any) -> None:
        super().put(time, key, stored)
        if time >= self._refuse_before:
            self._changelog.put(key, stored)

    def discard(self, time: int, key: EntryKey) -> bool:
        removed = super().discard(time, key)
        if removed:
            self._changelog.delete(key)
        return removed
