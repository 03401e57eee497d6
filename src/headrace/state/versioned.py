"""Versioned key-value stores: what the value of a key was at an earlier time.

The latest version of each key is in one map and never expires. A version that was replaced is in
the segment of the time at which its validity ended, so that history is dropped by segment::

    put 1@10, put 2@20, delete@30     history  [10, 20) 1   [20, 30) 2
                                      latest   -

A deletion is where validity ends and nothing begins; only one that ends nothing is written, as a
version of no length. As in Kafka, deleting the latest version at its own time forgets that it ever
was, unless an earlier version ended then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeAlias

from headrace.records import NO_HEADERS, Headers, K, Timestamp, V, VersionedRecord, timestamp_ms
from headrace.serdes.base import Serde
from headrace.state.changelog import VersionChangelog
from headrace.state.key_value import IS_LATEST, KeyCodec
from headrace.state.maps import OrderedMap, SegmentedMap
from headrace.state.store_times import EntryTimes

NOT_PUT = -(2**63)
"""The result of `write` for an update that is older than the history retention."""

Latest: TypeAlias = OrderedMap[bytes, tuple[bytes, int]]
"""Value and timestamp of the latest version by key; a key without a value is not there."""

Ended: TypeAlias = tuple[int, *tuple[bytes, ...]]
"""A version that was replaced: until when it was valid, and its value if it had one."""

Version: TypeAlias = tuple[bytes, int, int | None]
"""The bytes of a value, since when it is valid, and until when; None: it still is."""

History: TypeAlias = SegmentedMap[tuple[bytes, int], Ended]
"""Versions by key and timestamp, in the segment of the time until which they were valid."""

_MINUTE = 60_000
_FOREVER = 2**63


def segment_ms(retention_ms: int) -> int:
    """Return the length of a segment: Kafka's, which keeps the number of segments small."""
    if retention_ms <= _MINUTE:
        return max(retention_ms // 3, 2_000)
    if retention_ms <= 5 * _MINUTE:
        return max(retention_ms // 5, 20_000)
    if retention_ms <= 60 * _MINUTE:
        return max(retention_ms // 12, _MINUTE)
    return max(retention_ms // 24, 5 * _MINUTE)


class Versioned(Generic[K, V]):
    """A `VersionedKeyValueStore`. Tables use `read`, `read_as_of` and `write`.

    It accepts updates and answers reads that are at most ``retention_ms`` older than its time, and
    calls ``refused`` for each update that is older.
    """

    caching = False
    persistent = True

    def __init__(
        self,
        name: str,
        key: Serde[K],
        value: Serde[V],
        latest: Latest,
        history: History,
        times: EntryTimes,
        *,
        retention_ms: int,
        refused: Callable[[], None] = lambda: None,
        changelog: VersionChangelog | None = None,
    ) -> None:
        self.name = name
        self._keys = KeyCodec(name, key)
        self.serialize_key = key.serialize
        self._serialize, self._deserialize = value.serialize, value.deserialize
        self._latest = latest
        self._history = history
        self._times = times
        self._retention_ms = retention_ms
        self._segment_ms = segment_ms(retention_ms)
        self._refused = refused
        self._changelog = changelog
        self._oldest = times.time - retention_ms
        self._first_segment = self._oldest // self._segment_ms

    def put(self, key: K, value: V | None, timestamp: Timestamp) -> int:
        return self.write(key, value, timestamp_ms(timestamp))

    def get(self, key: K, as_of: Timestamp | None = None) -> VersionedRecord[V] | None:
        found = self.read(key) if as_of is None else self.read_as_of(key, timestamp_ms(as_of))
        return None if found is None else VersionedRecord(*found)

    def delete(self, key: K, timestamp: Timestamp) -> VersionedRecord[V] | None:
        time = timestamp_ms(timestamp)
        found = self.get(key, time)
        return found if self.write(key, None, time) != NOT_PUT else None

    def encoded_key(self, key: K) -> bytes:
        """Return the bytes of a key, which decide its partition."""
        return self._keys.encode(key)

    def read(self, key: K) -> tuple[V, int] | None:
        """Return the latest value of a key and its timestamp, or None."""
        return self.read_at(self._keys.encode(key), key)

    def read_at(self, encoded: bytes, _key: K) -> tuple[V, int] | None:
        """Return what `read` returns, for a key whose bytes are at hand."""
        latest = self._latest.get(encoded)
        return None if latest is None else (self._deserialize(latest[0]), latest[1])

    def read_as_of(self, key: K, timestamp: int) -> tuple[V, int] | None:
        """Return the value of a key at a time and since when it was that, or None."""
        found = self.version_at(self._keys.encode(key), timestamp)
        return None if found is None else (self._deserialize(found[0]), found[1])

    def version_at(self, encoded: bytes, timestamp: int) -> Version | None:
        """Return the version of a key that was valid at a time, or None."""
        latest = self._latest.get(encoded)
        if latest is not None and latest[1] <= timestamp:
            return *latest, None
        if timestamp < self._oldest:
            return None
        for segment in self._segments_until(timestamp):
            found = segment.last((encoded, 0), (encoded, timestamp + 1))
            if found is not None:
                (_, since), (until, *stored) = found
                return (stored[0], since, until) if until > timestamp and stored else None
        return None

    def versions(self, encoded: bytes, first: int, last: int) -> Iterator[Version]:
        """Yield the versions of a key that were valid between two times, newest first."""
        if last < self._oldest:
            return
        first = max(first, self._oldest)
        latest = self._latest.get(encoded)
        if latest is not None and latest[1] <= last:
            yield *latest, None
            if latest[1] <= first:
                return
        for segment in self._segments_until(first):
            found = segment.scan((encoded, 0), (encoded, last + 1), reverse=True)
            for (_, since), (until, *stored) in found:
                if until > first and stored:
                    yield stored[0], since, until

    def write(self, key: K, value: V | None, timestamp: int, headers: Headers = NO_HEADERS) -> int:
        """Set what the value of a key is from a time on; None says that there is none.

        Returns:
            Until when it is valid; `IS_LATEST` if it is the latest, `NOT_PUT` if it was too old.
        """
        return self.write_at(self._keys.encode(key), key, value, timestamp, headers)

    def write_at(
        self, encoded: bytes, _key: K, value: V | None, timestamp: int, _headers: Headers
    ) -> int:
        """Do what `write` does, for a key whose bytes are at hand."""
        if timestamp < self._oldest:
            self._refused()
            return NOT_PUT
        oldest = timestamp - self._retention_ms
        if oldest > self._oldest:
            self._oldest = oldest
            self._times.time = timestamp
            first_segment = oldest // self._segment_ms
            if first_segment > self._first_segment:
                self._first_segment = first_segment
                self._history.drop_before(first_segment)
        stored = None if value is None else self._serialize(value)
        changelog = self._changelog
        if changelog is None:
            return self.restore(encoded, stored, timestamp)
        changelog.add_version(encoded, stored, timestamp)
        valid_until = self.restore(encoded, stored, timestamp)
        if valid_until != IS_LATEST:
            changelog.add_latest(encoded, *self._latest_version(encoded))
        return valid_until

    def restore(self, encoded: bytes, stored: bytes | None, timestamp: int) -> int:
        """Do what `write_at` does for bytes, without refusing, dropping or logging anything."""
        latest = self._latest.get(encoded)
        if latest is None:
            return self._insert(encoded, stored, timestamp, None)
        if timestamp < latest[1]:
            return self._insert(encoded, stored, timestamp, latest[1])
        if timestamp > latest[1]:
            self._end(encoded, latest[1], timestamp, latest[0])
        return self._set_latest(encoded, stored, timestamp)

    def _latest_version(self, encoded: bytes) -> tuple[bytes | None, int]:
        """Return the latest value of a key and since when it is valid; None: it is deleted."""
        latest = self._latest.get(encoded)
        if latest is not None:
            return latest
        for segment in self._segments_until(-_FOREVER):
            found = segment.last((encoded, -_FOREVER), (encoded, _FOREVER))
            if found is not None:
                return None, found[1][0]
        msg = "the history has the version that was put"
        raise AssertionError(msg)

    def _set_latest(self, encoded: bytes, stored: bytes | None, timestamp: int) -> int:
        if stored is None:
            self._latest.pop(encoded)
        else:
            self._latest.put(encoded, (stored, timestamp))
        return IS_LATEST

    def _insert(
        self, encoded: bytes, stored: bytes | None, timestamp: int, until: int | None
    ) -> int:
        """Put a version that is older than the latest, or that of a key without a latest."""
        for segment in self._segments_until(timestamp):
            following = segment.first((encoded, timestamp + 1), (encoded, _FOREVER))
            if following is not None:
                until = following[0][1]
            found = segment.last((encoded, 0), (encoded, timestamp + 1))
            if found is None:
                continue
            (_, since), (ended, *replaced) = found
            if ended > timestamp:
                until = ended
                if since < timestamp:
                    segment.pop((encoded, since))
                    self._end(encoded, since, timestamp, *replaced)
            break
        if until is not None:
            self._end(encoded, timestamp, until, *(() if stored is None else (stored,)))
            return until
        if stored is None:
            self._end(encoded, timestamp, timestamp)
            return IS_LATEST
        return self._set_latest(encoded, stored, timestamp)

    def _end(self, encoded: bytes, since: int, until: int, *stored: bytes) -> None:
        """Remember a version that was valid from one time to another."""
        segment = self._history.segment(until // self._segment_ms)
        segment.put((encoded, since), (until, *stored))

    def _segments_until(self, timestamp: int) -> Iterator[OrderedMap[tuple[bytes, int], Ended]]:
        """Yield the segments of versions that were valid after a time, newest first."""
        first = timestamp // self._segment_ms
        for number in reversed(self._history.numbers()):
            if number < first:
                return
            segment = self._history.existing(number)
            assert segment is not None, "its number was listed"
            yield segment
