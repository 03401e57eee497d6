"""The changes of a store that can be queried, in the bytes of Kafka's changelog topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any, NamedTuple

from headrace.state.maps import OrderedMap
from headrace.state.segmented_entries import EntryKey, ExpiringEntries
from headrace.state.specs import StoreBuilder, StoreKind

_START_AND_SEQUENCE = Struct(">qi").pack
_END_AND_START = Struct(">qq").pack


class Changes(NamedTuple):
    """The records of a changelog, a column each; a value of None deletes."""

    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]


class Changelog:
    """The changes of one store since they were last taken: the last one of each key.

    A change of a versioned store replaces no other, because each is a version.

    Args:
        now: Gives the timestamp of a change that has none of its own: that of the record.
    """

    def __init__(self, topic: str, store: StoreBuilder[Any], now: Callable[[], int]) -> None:
        self.topic = topic
        self.settle: Callable[[], object] | None = None
        """Removes what has expired meanwhile, so that its removal is taken, too."""
        self._now = now
        self._encoded = _ENCODED_KEYS.get(store.kind)
        self._changes: dict[Any, tuple[bytes | None, int]] = {}
        timestamped = store.kind in ("timestamped_key_value", "timestamped_window")
        self.put: Callable[[Any, Any], None] = (
            self._changes.__setitem__ if timestamped else self._put_now
        )
        """Notes what is now stored under a key."""

    def _put_now(self, key: Any, stored: bytes) -> None:
        self._changes[key] = (stored, self._now())

    def delete(self, key: Any) -> None:
        """Note that a key is gone."""
        self._changes[key] = (None, self._now())

    def add_version(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Note what the value of a key is from a time on; None: nothing."""
        self._changes[key, len(self._changes)] = (value, timestamp)

    def take(self) -> Changes:
        """Return the changes, in the order in which keys first changed, and forget them."""
        if self.settle is not None:
            self.settle()
        changes, encoded = self._changes, self._encoded
        keys: list[bytes | None] = [*changes] if encoded is None else [*map(encoded, changes)]
        values = [value for value, _ in changes.values()]
        # A log takes no record from before 1970, but a store takes such a value.
        timestamps = [max(timestamp, 0) for _, timestamp in changes.values()]
        changes.clear()
        return Changes(timestamps, keys, values)


def _window_key(key: EntryKey) -> bytes:
    sequence = key[2] if len(key) > 2 else 0
    return key[0] + _START_AND_SEQUENCE(key[1], sequence)  # type: ignore[no-any-return]


def _session_key(key: EntryKey) -> bytes:
    encoded, end, start = key
    return encoded + _END_AND_START(end, start)  # type: ignore[no-any-return]


def _versioned_key(key: tuple[bytes, int]) -> bytes:
    return key[0]


_ENCODED_KEYS: dict[StoreKind, Callable[[Any], bytes]] = {
    "window": _window_key,
    "timestamped_window": _window_key,
    "session": _session_key,
    "versioned_key_value": _versioned_key,
}


class LoggedMap:
    """An `OrderedMap` of bytes that notes its changes."""

    __slots__ = ("_changelog", "_data", "_note", "_put", "first", "get", "last")

    def __init__(self, data: OrderedMap[bytes, Any], changelog: Changelog) -> None:
        self._data = data
        self._changelog = changelog
        self.get = data.get
        self.first = data.first
        self.last = data.last
        self._put = data.put
        self._note = changelog.put

    def put(self, key: bytes, value: Any, /) -> None:
        self._put(key, value)
        self._note(key, value)

    def pop(self, key: bytes, /) -> Any:
        value = self._data.pop(key)
        if value is not None:
            self._changelog.delete(key)
        return value

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, Any]]:
        return self._data.scan(start, end, reverse=reverse)

    def __len__(self) -> int:
        return len(self._data)


class LoggedEntries(ExpiringEntries):
    """Entries that expire and note their changes; what expires is not deleted one by one."""

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
