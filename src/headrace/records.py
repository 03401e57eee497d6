"""Records and what belongs to them: headers, metadata, and the pairs stores hand out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import index
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")

Timestamp: TypeAlias = int | datetime
"""A point in time: milliseconds since the epoch, or an aware ``datetime``."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
MAX_TIMESTAMP = 2**63 - 1
"""The latest timestamp that a topic holds."""


def timestamp_ms(timestamp: Timestamp) -> int:
    """Return the milliseconds since the epoch of a point in time."""
    if isinstance(timestamp, datetime):
        if timestamp.tzinfo is None:
            msg = (
                f"The timestamp {timestamp!r} has no time zone, so it is not a point in time. "
                "Give it one, for example `.replace(tzinfo=UTC)`."
            )
            raise ValueError(msg)
        return (timestamp - _EPOCH) // _MILLISECOND
    return timestamp


def _checked_timestamp(timestamp: Any) -> int:
    """Return the timestamp of a record in milliseconds, if a topic can hold it."""
    try:
        checked = index(timestamp_ms(timestamp))
    except TypeError:
        msg = f"The timestamp {timestamp!r} of the record is neither an int nor a datetime."
        raise TypeError(msg) from None
    if checked < 0:
        msg = f"The timestamp {timestamp!r} of the record is negative. Use zero or more."
        raise ValueError(msg)
    if checked > MAX_TIMESTAMP:
        msg = f"The timestamp {timestamp!r} of the record does not fit in 64 bits."
        raise ValueError(msg)
    return checked


def _checked_header(item: Any) -> tuple[str, bytes | None]:
    """Return a header as a topic holds it."""
    try:
        name, value = item
    except (TypeError, ValueError):
        msg = f"A header is a pair of a name and bytes, and not {item!r}."
        raise TypeError(msg) from None
    if not isinstance(name, str):
        msg = f"The name of a header is text, and not {name!r}."
        raise TypeError(msg)
    name.encode()  # raises if it is no text that a topic can hold
    if value is None or isinstance(value, (bytes, bytearray, memoryview)):
        return name, value if value is None else bytes(value)
    msg = f"The value of header {name!r} is bytes or None, and not {type(value).__name__}."
    raise TypeError(msg)


class Headers(Sequence[tuple[str, bytes | None]]):
    """The headers of a record, in order; a name may appear more than once. Immutable."""

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[tuple[str, bytes | None]] = ()) -> None:
        self._items = tuple(items)
        for item in self._items:
            # Checked without a call: it is done for each header that is read.
            if (
                type(item) is not tuple
                or len(item) != 2  # a name and a value
                or type(item[0]) is not str
                or not item[0].isascii()
                or (item[1] is not None and type(item[1]) is not bytes)
            ):
                self._items = tuple(map(_checked_header, self._items))
                return

    @overload
    def __getitem__(self, index: int) -> tuple[str, bytes | None]: ...
    @overload
    def __getitem__(self, index: slice) -> Headers: ...
    def __getitem__(self, index: int | slice) -> tuple[str, bytes | None] | Headers:
        return Headers(self._items[index]) if isinstance(index, slice) else self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[tuple[str, bytes | None]]:
        return iter(self._items)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Headers):
            return self._items == other._items
        if isinstance(other, (list, tuple)):
            return self._items == tuple(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._items)

    def __repr__(self) -> str:
        return f"Headers({list(self._items)!r})"

    def last(self, name: str) -> bytes | None:
        """Return the value of the last header called ``name``, or None if there is none."""
        return next((value for key, value in reversed(self._items) if key == name), None)

    def all(self, name: str) -> list[bytes | None]:
        """Return the values of every header called ``name``, in order."""
        return [value for key, value in self._items if key == name]

    def adding(self, name: str, value: bytes | None) -> Headers:
        """Return these headers with one more at the end."""
        return Headers((*self._items, (name, value)))

    def without(self, name: str) -> Headers:
        """Return these headers without those called ``name``."""
        return Headers(item for item in self._items if item[0] != name)


NO_HEADERS = Headers()

_UNREADABLE, _OVERSIZED = "\0unreadable", "\0oversized"
"""Headers that mark a record with a negative timestamp. No record of a user has both: names that
librdkafka reads end before the zero, and the embedded log refuses negative timestamps."""

HeadersLike: TypeAlias = Headers | Iterable[tuple[str, bytes | None]]


def headers_of(items: HeadersLike) -> Headers:
    """Return ``items`` as `Headers`."""
    return items if isinstance(items, Headers) else Headers(items)


# Not frozen: made several times per input record, and a frozen dataclass takes four times as long
# to make. Immutable by rule.
@dataclass(slots=True, eq=True, init=False)
class Record(Generic[K, V]):
    """A key, a value, a timestamp in milliseconds and headers. Copied with `with_…`, not edited."""

    key: K
    value: V
    timestamp: int
    headers: Headers

    def __init__(
        self, key: K, value: V, timestamp: Timestamp, headers: HeadersLike = NO_HEADERS
    ) -> None:
        self.key = key
        self.value = value
        if type(timestamp) is int and 0 <= timestamp <= MAX_TIMESTAMP:
            self.timestamp = timestamp
        else:
            self.timestamp = _checked_timestamp(timestamp)
        self.headers = headers if type(headers) is Headers else headers_of(headers)

    def with_key(self, key: K2) -> Record[K2, V]:
        """Return a copy with another key."""
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: V2) -> Record[K, V2]:
        """Return a copy with another value."""
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: Timestamp) -> Record[K, V]:
        """Return a copy with another timestamp."""
        return Record(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: HeadersLike) -> Record[K, V]:
        """Return a copy with other headers."""
        return Record(self.key, self.value, self.timestamp, headers)


class FixedKeyRecord(Generic[K, V]):
    """A record whose key cannot be changed, so that its partition stays right."""

    __slots__ = ("_key", "headers", "timestamp", "value")

    def __init__(
        self, key: K, value: V, timestamp: Timestamp, headers: HeadersLike = NO_HEADERS
    ) -> None:
        self._key = key
        self.value = value
        if type(timestamp) is int and 0 <= timestamp <= MAX_TIMESTAMP:
            self.timestamp = timestamp
        else:
            self.timestamp = _checked_timestamp(timestamp)
        self.headers = headers if type(headers) is Headers else headers_of(headers)

    @property
    def key(self) -> K:
        """The key, which stays as it is."""
        return self._key

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FixedKeyRecord):
            return NotImplemented
        return (self._key, self.value, self.timestamp, self.headers) == (
            other.key,
            other.value,
            other.timestamp,
            other.headers,
        )

    __hash__ = None  # type: ignore[assignment]  # values may be unhashable, as for Record

    def __repr__(self) -> str:
        return (
            f"FixedKeyRecord(key={self._key!r}, value={self.value!r}, "
            f"timestamp={self.timestamp!r}, headers={self.headers!r})"
        )

    def with_value(self, value: V2) -> FixedKeyRecord[K, V2]:
        """Return a copy with another value."""
        return FixedKeyRecord(self._key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: Timestamp) -> FixedKeyRecord[K, V]:
        """Return a copy with another timestamp."""
        return FixedKeyRecord(self._key, self.value, timestamp, self.headers)

    def with_headers(self, headers: HeadersLike) -> FixedKeyRecord[K, V]:
        """Return a copy with other headers."""
        return FixedKeyRecord(self._key, self.value, self.timestamp, headers)


class RecordMetadata(NamedTuple):
    """The origin of a record."""

    topic: str
    partition: int
    offset: int
    """-1 if it is unknown: the broker had the record when the client sent it once more."""


class RecordContext(NamedTuple):
    """The facts besides key and value for a function that chooses a topic."""

    topic: str | None
    partition: int
    offset: int
    timestamp: int
    headers: Headers


class ConsumerRecord(NamedTuple):
    """A record as it was read from a topic; key and value are bytes until a source decodes them."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Headers = NO_HEADERS


def without_headers(timestamp: int, reason: str) -> tuple[int, Headers]:
    """Return a timestamp and headers that replace those of a record with unreadable headers.

    The negative timestamp marks such a record, so that readers need not check the headers of all
    records. `readable` undoes it.
    """
    return -1, Headers([(_UNREADABLE, f"{timestamp} {reason}".encode())])


def readable(record: ConsumerRecord) -> tuple[ConsumerRecord, str | None]:
    """Return a record without the headers that cannot be read, and why they cannot, if so."""
    note = record.headers.last(_UNREADABLE) if record.timestamp < 0 else None
    if note is None:
        return record, None
    timestamp, _, reason = note.decode().partition(" ")
    return record._replace(timestamp=int(timestamp), headers=NO_HEADERS), reason


def payload_size(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]
) -> int:
    """Return how many bytes the key, the value and the headers of a record have."""
    size = len(key or b"") + len(value or b"")
    return size + sum(len(name) + len(data or b"") for name, data in headers)


def without_payload(timestamp: int, size: int) -> tuple[int, Headers]:
    """Return a timestamp and headers that replace those of a record that is too large.

    Such a record travels without its key and value. `oversized` undoes it.
    """
    return -1, Headers([(_OVERSIZED, f"{timestamp} {size}".encode())])


def oversized(record: ConsumerRecord) -> tuple[ConsumerRecord, int | None]:
    """Return a record with its own timestamp, and its size if it was too large."""
    note = record.headers.last(_OVERSIZED) if record.timestamp < 0 else None
    if note is None:
        return record, None
    timestamp, size = map(int, note.split())
    return record._replace(timestamp=timestamp, headers=NO_HEADERS), size


class ProducerRecord(NamedTuple):
    """A record to be written: bytes, and the partition if it is already decided."""

    topic: str
    partition: int | None
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = NO_HEADERS


class ValueAndTimestamp(NamedTuple, Generic[V]):
    """A value of a store with the timestamp of its last update."""

    value: V
    timestamp: int


class VersionedRecord(NamedTuple, Generic[V]):
    """One version of a value: from ``timestamp`` on, up to ``valid_to`` where that is known."""

    value: V
    timestamp: int
    valid_to: int | None = None
