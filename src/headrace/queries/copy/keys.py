"""The keys of an instance's database, and the bytes of an entry.

The key of an entry is made of changelog, partition, segment (if the store has segments) and entry
key. The entry key is the changelog key, except for windows: if one of their keys begins with
another, their changelog keys are not in the order of the keys, so they have bytes that are. Numbers
are big-endian, so that bytes sort as numbers do.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, NamedTuple

from headrace.brokers.log import TopicPartition
from headrace.queries.copy.layout import Shard, StoreLayout

COPY_KEY = b"m"
"""Where the database keeps what it says about the copy as a whole."""

EVERYTHING = (b"", b"\x7f")
"""The range of all keys."""

_SHARD, _ENTRY, _CHANGED = b"s", b"e", b"c"
_PARTITION = Struct(">I")
_NUMBER = Struct(">Q")
_SIGNED = 1 << 63
"""Makes negative timestamps and segments sort below the others."""
_HEADER = Struct(">q?")
pack_header, unpack_header = _HEADER.pack, _HEADER.unpack_from
HEADER_SIZE = _HEADER.size
"""How many bytes of an entry come before its value."""
"""Returns the first bytes of an entry: its timestamp, and whether it has a value."""
_END = b"\0\0"
_BEHIND = b"\xff" * 32
"""Sorts behind all numbers, and what follows them in an entry key."""

LATEST_SEGMENT = _SIGNED - 1
"""The segment of the latest versions of a versioned store, which never expires."""


class Entry(NamedTuple):
    """A value as the copy keeps it."""

    timestamp: int
    value: bytes | None
    """None: a version that was deleted."""


def shard_key(shard: Shard) -> bytes:
    """Return where the database keeps the state of a shard."""
    return _SHARD + _PARTITION.pack(shard.partition) + shard.group.encode()


def shard_from_key(key: bytes) -> Shard:
    """Return the shard of a key of `shard_key`."""
    return Shard(key[5:].decode(), _PARTITION.unpack(key[1:5])[0])


SHARD_KEYS = (_SHARD, _SHARD + b"\xff")
"""The range of the keys of all shards."""


def entry_prefix(partition: TopicPartition) -> bytes:
    """Return the prefix of all entries of a changelog partition."""
    name = partition.topic.encode()
    return _ENTRY + bytes([len(name)]) + name + _PARTITION.pack(partition.partition)


def segment_prefix(prefix: bytes, segment: int) -> bytes:
    """Return the prefix of the entries of one segment, behind that of a changelog partition."""
    return prefix + _NUMBER.pack(segment + _SIGNED)


def sorted_key(entry_key: Sequence[Any]) -> bytes:
    """Return bytes that sort as entry keys of bytes and numbers do; a beginning of one will do."""
    # A zero byte ends the key, and one inside it is followed by the highest byte.
    data: bytes = entry_key[0].replace(b"\0", b"\0\xff") + _END
    for number in entry_key[1:]:
        data += _NUMBER.pack(max(number, -_SIGNED) + _SIGNED) if number < _SIGNED else _BEHIND
    return data


def from_sorted_key(data: bytes) -> tuple[Any, ...]:
    """Return the entry key of the bytes of `sorted_key`."""
    end = data.index(_END)
    numbers = _NUMBER.iter_unpack(data[end + len(_END) :])
    key = data[:end].replace(b"\0\xff", b"\0")
    return key, *(number - _SIGNED for (number,) in numbers)


def database_key(prefix: bytes, store: StoreLayout, key: bytes, timestamp: int) -> bytes:
    """Return the key of an entry.

    Args:
        prefix: The prefix of its changelog partition.
        store: How the store is arranged; it has no ``apply``.
        key: The changelog key.
        timestamp: The timestamp of the changelog record.
    """
    if store.segment is not None:
        prefix += _NUMBER.pack(store.segment(key, timestamp) + _SIGNED)
    return prefix + (key if store.entry_key is None else sorted_key(store.entry_key(key)))


def segment_number(data: bytes) -> int:
    """Return the number of the segment with which the bytes behind a partition's prefix begin."""
    number: int = _NUMBER.unpack_from(data)[0]
    return number - _SIGNED


def changed_prefix(snapshot: int, partition: TopicPartition | None = None) -> bytes:
    """Return the prefix of the changed keys of a snapshot, of one changelog partition or of all."""
    prefix = _CHANGED + _NUMBER.pack(snapshot)
    return prefix if partition is None else prefix + entry_prefix(partition)


CHANGED_KEYS = (_CHANGED, _CHANGED + b"\xff")
"""The range of the changed keys of all snapshots."""


def changed_entry(key: bytes) -> bytes:
    """Return the key of the entry that a changed key is about."""
    return key[len(_CHANGED) + _NUMBER.size :]


def entry_bytes(timestamp: int, value: bytes | None) -> bytes:
    """Return the bytes of an entry."""
    return pack_header(timestamp, value is not None) + (value or b"")


def entry_from_bytes(data: bytes) -> Entry:
    """Return the entry of its bytes."""
    timestamp, has_value = _HEADER.unpack_from(data)
    return Entry(timestamp, data[_HEADER.size :] if has_value else None)
