"""How the entries of an ordered map lie in blobs: leaves, and index nodes over them.

::

    head         a small map: its entries
    head         a larger map: what is below it, by lowest key
    ├── node     the same, once more, if the head would become too large
    │   ├── leaf     a run of consecutive entries
    │   └── leaf
    └── node
    counter      how many entries there are, and the next number for a leaf or node

A leaf is read and written whole. How many entries it should have depends on how many of them are
touched together, so leaves adapt at each flush: see `pieces_of`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

import msgspec

from headrace.errors import StateStoreError

Key: TypeAlias = Any
"""Bytes, or a tuple of bytes and integers."""

Part: TypeAlias = bytes | int | None
Stored: TypeAlias = bytes | tuple[Part | tuple[Part, ...], ...]
"""What a key has: bytes, or a tuple of bytes, integers, None, and tuples of these."""

_Keys: TypeAlias = list[bytes | tuple[bytes | int, ...]]

T = TypeVar("T")

INLINE = -1
"""The level of a map whose head holds its entries; one with leaves under the head has level 0."""

HEAD_LEAF = 0
"""The number of the leaf that is the head; others begin at 1."""

_encode = msgspec.msgpack.Encoder().encode
_decode_leaf = msgspec.msgpack.Decoder(tuple[_Keys, list[Stored]]).decode
_decode_node = msgspec.msgpack.Decoder(tuple[_Keys, list[int]]).decode
_decode_head = msgspec.msgpack.Decoder(tuple[int, _Keys, list[int | Stored]]).decode
_decode_counter = msgspec.msgpack.Decoder(tuple[int, int]).decode
_decode_segments = msgspec.msgpack.Decoder(tuple[int, dict[str, list[int]]]).decode

_FORMAT = 1
_OURS = b"\x01"
_ID_SIZE = 6
_DENSE = 2
"""A leaf is dense if one in so many entries was touched."""


@dataclass(frozen=True)
class LeafLimits:
    """How large leaves and nodes become."""

    most_entries: int = 512
    """A leaf with more is split."""
    most_bytes: int = 32_768
    """A leaf that takes more is split."""
    fewest_entries: int = 16
    """What a leaf of which little was touched is not split below."""
    fewest_bytes: int = 2_048
    """Nor below this, where entries are large."""
    sparse: int = 8
    """Little was touched if less than one in so many entries was."""
    most_children: int = 512
    """A node with more is split."""
    loaded_whole: int = 32
    """A map of so many leaves is loaded whole at the first miss."""
    read_ahead: int = 4
    """How many leaves of a larger map are loaded at a miss once there were as many misses."""


@dataclass
class StateStats:
    """What was read and written; see `OrderedState.stats`."""

    bursts_read: int = 0
    blobs_read: int = 0
    bytes_read: int = 0
    bursts_written: int = 0
    blobs_written: int = 0
    blobs_removed: int = 0
    bytes_written: int = 0
    bytes_changed: int = 0
    """About how many bytes the entries took that were put; what else was written is overhead."""
    faults: int = 0
    """How often an operation had to wait for blobs that nothing foresaw."""
    leaves_split: int = 0
    leaves_merged: int = 0


class Node:
    """Part of an index: the numbers of what is below it, and the lowest key of each.

    Nothing is compared with the first of the keys: whatever is lower belongs there too.
    """

    __slots__ = ("ids", "lows")

    def __init__(self, lows: list[Key], ids: list[int]) -> None:
        self.lows = lows
        self.ids = ids


class Leaf:
    """A run of consecutive entries, as they are in its blob."""

    __slots__ = ("is_spread", "keys", "size", "used", "values")

    def __init__(self, keys: list[Key], values: list[Any], size: int, used: int) -> None:
        self.keys = keys
        self.values = values
        self.is_spread = False
        """Whether all entries were put into the dict of the map."""
        self.size = size
        """The bytes of its blob."""
        self.used = used
        """The flush before which it was last loaded or written."""


def store_prefix(store: str, segment: int | None) -> bytes:
    """Return how the keys of the blobs of a map begin."""
    name = store.encode()
    kind = b"m" if segment is None else b"s" + segment.to_bytes(8, "big", signed=True)
    return _OURS + len(name).to_bytes(2, "big") + name + kind


SEGMENTS_KEY = _OURS
"""The key of the blob that lists the segments of all stores."""
HEAD, COUNTER, NUMBERED = b"h", b"c", b"n"
"""What follows the prefix of a map."""


def numbered(id_: int) -> bytes:
    """Return how the key of a leaf or node ends."""
    return id_.to_bytes(_ID_SIZE, "big")


def encode_leaf(keys: list[Key], values: list[Any]) -> bytes:
    """Return the blob of a leaf."""
    return _encode((keys, values))


def decode_leaves(blobs: list[bytes | None], store: str) -> list[tuple[list[Key], list[Any]]]:
    """Return the keys and values of leaves."""
    return _decoded(_decode_all, blobs, store)


def encode_node(node: Node) -> bytes:
    """Return the blob of an index node."""
    return _encode((node.lows, node.ids))


def decode_node(blob: bytes | None, store: str) -> Node:
    """Return an index node."""
    lows, ids = _decoded(_decode_node, blob, store)
    return Node(lows, ids)


def encode_head(level: int, keys: list[Key], below: list[Any]) -> bytes:
    """Return the blob of a head: values or numbers, by key."""
    return _encode((level, keys, below))


def decode_head(blob: bytes, store: str) -> tuple[int, list[Key], list[Any]]:
    """Return the level of a map, and what its head holds."""
    return _decoded(_decode_head, blob, store)


def encode_counter(count: int, next_id: int) -> bytes:
    """Return the blob of the counter of a map."""
    return _encode((count, next_id))


def decode_counter(blob: bytes | None, store: str) -> tuple[int, int]:
    """Return how many entries a map has, and the next number."""
    return _decoded(_decode_counter, blob, store)


def encode_segments(segments: dict[str, list[int]]) -> bytes:
    """Return the blob that lists the segments of all stores."""
    return _encode((_FORMAT, segments))


def decode_segments(blob: bytes) -> dict[str, list[int]]:
    """Return the segments of all stores."""
    layout, segments = _decoded(_decode_segments, blob, "all")
    if layout != _FORMAT:
        msg = (
            f"The state was written in format {layout}, this version reads {_FORMAT}. "
            "Use the version that wrote it, or reset the application."
        )
        raise StateStoreError(msg)
    return segments


def _decode_all(blobs: list[bytes]) -> list[tuple[list[Key], list[Any]]]:
    return list(map(_decode_leaf, blobs))


def _decoded(decode: Callable[[Any], T], encoded: Any, store: str) -> T:
    try:
        return decode(encoded)
    except TypeError:
        reason = "is missing"
    except msgspec.MsgspecError as error:
        reason = f"cannot be read ({error})"
    msg = (
        f"A part of the entries of store {store!r} {reason}. "
        "The checkpoint is damaged: restore it, or reset the application."
    )
    raise StateStoreError(msg)


def separator(before: Key, after: Key) -> Key:
    """Return a short key that is greater than ``before`` and not greater than ``after``."""
    if type(after) is bytes:
        for index, (left, right) in enumerate(zip(before, after, strict=False)):
            if left != right:
                return after[: index + 1]
        return after[: len(before) + 1]
    # Shortened no further, so that a key that begins with the same bytes as another shows it.
    return after if before[0] == after[0] else (after[0],)


def pieces_of(count: int, touched: int, size: int, limits: LeafLimits) -> int:
    """Return into how many leaves a leaf should be split.

    A leaf is written whole for each of its entries that changes. If only a few were touched, the
    next batch will do better with smaller ones; if most were, there is nothing to gain.

    Args:
        count: How many entries it has.
        touched: How many of them were touched, removed ones included.
        size: How many bytes it takes.
        limits: How large leaves become.
    """
    if count > limits.most_entries:
        return -(-count * 4 // (limits.most_entries * 3))
    if size > limits.most_bytes:
        return min(count, -(-size * 4 // (limits.most_bytes * 3)))
    if touched * limits.sparse < count and (
        count > 2 * limits.fewest_entries or size > 2 * limits.fewest_bytes
    ):
        return min(4, count, max(count // limits.fewest_entries, size // limits.fewest_bytes))
    return 1


def may_merge(one: tuple[int, int, int], other: tuple[int, int, int], limits: LeafLimits) -> bool:
    """Return whether neighbours should be one leaf, given entries, touched ones, and bytes."""
    count = one[0] + other[0]
    if count > limits.most_entries or one[2] + other[2] > limits.most_bytes // 2:
        return False
    if count <= limits.fewest_entries:
        return True
    return one[1] * _DENSE >= one[0] and other[1] * _DENSE >= other[0]


def cut(items: list[T], pieces: int) -> list[list[T]]:
    """Return a list in consecutive pieces of about the same length."""
    ends = [len(items) * number // pieces for number in range(pieces + 1)]
    return [items[start:end] for start, end in pairwise(ends)]


Chosen: TypeAlias = list[tuple[int, Any]]
"""Which children of a node are wanted, and what is wanted of each."""

Choose: TypeAlias = Callable[[list[Key], Any], Chosen]
"""Given the lowest keys of the children of a node, and what is wanted, chooses among them."""


def choose_points(lows: list[Key], points: list[Key]) -> Chosen:
    """Return the children that may hold the given keys, which are sorted."""
    chosen: Chosen = []
    child, last, start, end = 0, len(lows) - 1, 0, len(points)
    while start < end:
        child = bisect_right(lows, points[start], child + 1) - 1
        if child == last:
            chosen.append((child, points[start:] if start else points))
            break
        stop = start + 1
        upper = lows[child + 1]
        if stop < end and points[stop] < upper:
            stop = bisect_left(points, upper, stop)
        chosen.append((child, points[start:stop]))
        start = stop
    return chosen


def choose_prefixes(lows: list[Key], prefixes: list[bytes]) -> Chosen:
    """Return the children that may hold tuples that begin with the given bytes, sorted."""
    chosen: dict[int, list[bytes]] = {}
    child, last = 0, len(lows) - 1
    for prefix in prefixes:
        child = bisect_right(lows, (prefix,), child + 1) - 1
        chosen.setdefault(child, []).append(prefix)
        following = child
        while following < last and lows[following + 1][0] == prefix:
            following += 1
            chosen.setdefault(following, []).append(prefix)
    return list(chosen.items())


def choose_range(lows: list[Key], bounds: tuple[Key | None, Key | None]) -> Chosen:
    """Return the children that may hold keys from the first bound to before the second."""
    start, end = bounds
    first = 0 if start is None else bisect_right(lows, start, 1) - 1
    last = len(lows) - 1 if end is None else bisect_left(lows, end, 1) - 1
    return [(child, bounds) for child in range(first, max(first, last) + 1)]


def choose_before(lows: list[Key], key: Key) -> Chosen:
    """Return the child that may hold what comes before a key."""
    return [(bisect_left(lows, key, 1) - 1, key)]


def choose_all(lows: list[Key], _wanted: Any) -> Chosen:
    """Return all children."""
    return [(child, None) for child in range(len(lows))]
