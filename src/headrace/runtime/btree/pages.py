"""The page format of the B+ tree over blobs.

Leaf pages hold entries; index pages hold the first keys of their children::

    root page            a small map: its entries
    root page            a larger map: the first keys and page ids of its children
    ├── index page       the same for one range of keys, if the root page would be too large
    │   ├── leaf page    consecutive entries
    │   └── leaf page
    └── index page
    counter              the number of entries, and the next page id

Each page is one blob, so a batch reads and writes whole pages. A flush splits and merges leaf
pages: their size follows the share of their entries that a batch changes. See `split_count`.
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
"""The key of an entry: bytes, or a tuple of bytes and integers."""

Scalar: TypeAlias = bytes | int | None
Value: TypeAlias = bytes | tuple[Scalar | tuple[Scalar, ...], ...]
"""The value of an entry: bytes, or a tuple of scalars and of tuples of scalars."""

_Keys: TypeAlias = list[bytes | tuple[bytes | int, ...]]

T = TypeVar("T")

INLINE = -1
"""The level of a root page that holds the entries itself."""

ROOT_PAGE = 0
"""The page id of a root page that holds the entries. All other page ids are greater."""

_encode = msgspec.msgpack.Encoder().encode
_decode_leaf_page = msgspec.msgpack.Decoder(tuple[_Keys, list[Value]]).decode
_decode_index_page = msgspec.msgpack.Decoder(tuple[_Keys, list[int]]).decode
_decode_root = msgspec.msgpack.Decoder(tuple[int, _Keys, list[int | Value]]).decode
_decode_counter = msgspec.msgpack.Decoder(tuple[int, int]).decode
_decode_segments = msgspec.msgpack.Decoder(tuple[int, dict[str, list[int]]]).decode

_FORMAT = 2
"""The format of the blobs. The blob with the list of segments holds it."""
_TREE_PREFIX = b"\x01"
"""The first byte of the key of each blob that belongs to a B+ tree."""
_PAGE_ID_BYTES = 6
_DENSE_RATIO = 2
"""A leaf page is dense if at least one in 2 of its entries is dirty."""


@dataclass(frozen=True)
class PageLimits:
    """The sizes at which pages split and merge, and how many pages a fault loads."""

    max_entries: int = 512
    """A flush splits a leaf page with more entries."""
    max_bytes: int = 32_768
    """A flush splits a leaf page with more bytes."""
    min_entries: int = 16
    """A flush splits a sparse leaf page into pages of at least this many entries."""
    min_bytes: int = 2_048
    """If entries are large, it splits a sparse leaf page into pages of at least this many bytes."""
    sparse_ratio: int = 8
    """A leaf page is sparse if fewer than one in this many entries are dirty."""
    max_children: int = 512
    """A flush splits an index page with more children."""
    full_load_pages: int = 32
    """The first page fault loads all leaf pages of a map that has at most this many."""
    read_ahead_pages: int = 4
    """After this many page faults since the last flush, each further fault of a larger map loads
    this many leaf pages."""


@dataclass
class BTreeStats:
    """Counts the reads and writes of `BTreeStores`."""

    read_round_trips: int = 0
    blobs_read: int = 0
    bytes_read: int = 0
    write_round_trips: int = 0
    blobs_written: int = 0
    bytes_written: int = 0
    bytes_changed: int = 0
    """About how many of the bytes written are dirty entries; the rest is write amplification."""
    faults: int = 0
    """How often an operation waited for blobs that no prefetch had loaded."""


class IndexPage:
    """An index page: the page ids of its children, and the first key of each.

    A search never compares with the first of these keys: a smaller key belongs to the first child.
    """

    __slots__ = ("child_ids", "first_keys")

    def __init__(self, first_keys: list[Key], child_ids: list[int]) -> None:
        self.first_keys = first_keys
        self.child_ids = child_ids


class LeafPage:
    """A leaf page: consecutive entries, as its blob holds them."""

    __slots__ = ("is_unpacked", "keys", "last_used", "size", "values")

    def __init__(self, keys: list[Key], values: list[Any], size: int, last_used: int) -> None:
        self.keys = keys
        self.values = values
        self.is_unpacked = False
        """Whether the dict of the map has all entries of the page."""
        self.size = size
        """The bytes of its blob."""
        self.last_used = last_used
        """The map's number of flushes when the page was last loaded or written."""


def tree_prefix(store: str, segment: int | None) -> bytes:
    """Return the prefix of the blob keys of one map."""
    name = store.encode()
    kind = b"m" if segment is None else b"s" + segment.to_bytes(8, "big", signed=True)
    return _TREE_PREFIX + len(name).to_bytes(2, "big") + name + kind


SEGMENTS_KEY = _TREE_PREFIX
"""The key of the blob that lists the segments of all stores."""
ROOT, COUNTER, PAGE = b"r", b"c", b"p"
"""The byte that follows the prefix of a map in a blob key. A page id follows `PAGE`."""


def encode_page_id(page_id: int) -> bytes:
    """Return the page id as the last bytes of a blob key."""
    return page_id.to_bytes(_PAGE_ID_BYTES, "big")


def encode_leaf_page(keys: list[Key], values: list[Any]) -> bytes:
    """Return the blob of a leaf page."""
    return _encode((keys, values))


def decode_leaf_pages(blobs: list[bytes | None], store: str) -> list[tuple[list[Key], list[Any]]]:
    """Return the keys and values of each leaf page."""
    return _decode_or_raise(_decode_all_leaf_pages, blobs, store)


def encode_index_page(page: IndexPage) -> bytes:
    """Return the blob of an index page."""
    return _encode((page.first_keys, page.child_ids))


def decode_index_page(blob: bytes | None, store: str) -> IndexPage:
    """Return the index page in a blob."""
    first_keys, child_ids = _decode_or_raise(_decode_index_page, blob, store)
    return IndexPage(first_keys, child_ids)


def encode_root(level: int, keys: list[Key], values_or_ids: list[Any]) -> bytes:
    """Return the blob of a root page.

    ``level`` is the number of index levels below it, or `INLINE`. The others are the keys and
    values of its entries, or the first keys and page ids of its children.
    """
    return _encode((level, keys, values_or_ids))


def decode_root(blob: bytes, store: str) -> tuple[int, list[Key], list[Any]]:
    """Return the arguments of `encode_root`."""
    return _decode_or_raise(_decode_root, blob, store)


def encode_counter(entry_count: int, next_page_id: int) -> bytes:
    """Return the blob of the counter of a map."""
    return _encode((entry_count, next_page_id))


def decode_counter(blob: bytes | None, store: str) -> tuple[int, int]:
    """Return the number of entries of a map, and its next page id."""
    return _decode_or_raise(_decode_counter, blob, store)


def encode_segments(segments: dict[str, list[int]]) -> bytes:
    """Return the blob that lists the segments of all stores."""
    return _encode((_FORMAT, segments))


def decode_segments(blob: bytes) -> dict[str, list[int]]:
    """Return the segments of all stores; raise `StateStoreError` if the format is another one."""
    blob_format, segments = _decode_or_raise(_decode_segments, blob, None)
    if blob_format != _FORMAT:
        msg = (
            f"The stores are in format {blob_format}, but this version of Headrace reads format "
            f"{_FORMAT}. Use the version that wrote them, or reset the application."
        )
        raise StateStoreError(msg)
    return segments


def _decode_all_leaf_pages(blobs: list[bytes]) -> list[tuple[list[Key], list[Any]]]:
    return list(map(_decode_leaf_page, blobs))


def _decode_or_raise(decode: Callable[[Any], T], blob: Any, store: str | None) -> T:
    try:
        return decode(blob)
    except TypeError:
        reason = "is missing"
    except msgspec.MsgspecError as error:
        reason = f"cannot be read ({error})"
    blob_name = "The list of segments" if store is None else f"A page of store {store!r}"
    msg = (
        f"{blob_name} {reason}. The checkpoint is damaged. "
        "Restore it from a backup, or reset the application."
    )
    raise StateStoreError(msg)


def separator(before: Key, after: Key) -> Key:
    """Return a short separator key: greater than ``before``, and at most ``after``."""
    if type(after) is bytes:
        for index, (left, right) in enumerate(zip(before, after, strict=False)):
            if left != right:
                return after[: index + 1]
        return after[: len(before) + 1]
    # The first element stays whole: `choose_prefixes` compares it with a prefix.
    return after if before[0] == after[0] else (after[0],)


def split_count(entries: int, dirty: int, size: int, limits: PageLimits) -> int:
    """Return into how many pages a flush should split a leaf page of ``size`` bytes.

    A flush writes the whole page for each dirty entry. If few entries are dirty, smaller pages make
    the next batch cheaper. If most are dirty, a split saves nothing. Removed keys are dirty too.
    """
    if entries > limits.max_entries:
        return -(-entries * 4 // (limits.max_entries * 3))
    if size > limits.max_bytes:
        return min(entries, -(-size * 4 // (limits.max_bytes * 3)))
    if dirty * limits.sparse_ratio < entries and (
        entries > 2 * limits.min_entries or size > 2 * limits.min_bytes
    ):
        return min(4, entries, max(entries // limits.min_entries, size // limits.min_bytes))
    return 1


def should_merge(
    left: tuple[int, int, int], right: tuple[int, int, int], limits: PageLimits
) -> bool:
    """Return whether a flush should merge two neighbouring leaf pages.

    ``left`` and ``right`` are their numbers of entries, dirty keys and bytes.
    """
    entries = left[0] + right[0]
    if entries > limits.max_entries or left[2] + right[2] > limits.max_bytes // 2:
        return False
    if entries <= limits.min_entries:
        return True
    return left[1] * _DENSE_RATIO >= left[0] and right[1] * _DENSE_RATIO >= right[0]


def split_evenly(items: list[T], count: int) -> list[list[T]]:
    """Return ``count`` consecutive slices of a list, of about the same length."""
    ends = [len(items) * number // count for number in range(count + 1)]
    return [items[start:end] for start, end in pairwise(ends)]


ChosenChildren: TypeAlias = list[tuple[int, Any]]
"""Positions of children in an index page, each with the search to continue there."""

Choose: TypeAlias = Callable[[list[Key], Any], ChosenChildren]
"""Chooses the children of an index page, from their first keys and a search."""


def choose_points(first_keys: list[Key], points: list[Key]) -> ChosenChildren:
    """Return the children that may hold the given keys, which are sorted."""
    chosen: ChosenChildren = []
    child, last, start, end = 0, len(first_keys) - 1, 0, len(points)
    while start < end:
        child = bisect_right(first_keys, points[start], child + 1) - 1
        if child == last:
            chosen.append((child, points[start:] if start else points))
            break
        stop = start + 1
        upper = first_keys[child + 1]
        if stop < end and points[stop] < upper:
            stop = bisect_left(points, upper, stop)
        chosen.append((child, points[start:stop]))
        start = stop
    return chosen


def choose_prefixes(first_keys: list[Key], prefixes: list[bytes]) -> ChosenChildren:
    """Return the children that may hold tuples with the given first elements, which are sorted."""
    chosen: dict[int, list[bytes]] = {}
    child, last = 0, len(first_keys) - 1
    for prefix in prefixes:
        child = bisect_right(first_keys, (prefix,), child + 1) - 1
        chosen.setdefault(child, []).append(prefix)
        following = child
        while following < last and first_keys[following + 1][0] == prefix:
            following += 1
            chosen.setdefault(following, []).append(prefix)
    return list(chosen.items())


def choose_range(first_keys: list[Key], bounds: tuple[Key | None, Key | None]) -> ChosenChildren:
    """Return the children that may hold keys from the first bound to before the second."""
    start, end = bounds
    first = 0 if start is None else bisect_right(first_keys, start, 1) - 1
    last = len(first_keys) - 1 if end is None else bisect_left(first_keys, end, 1) - 1
    return [(child, bounds) for child in range(first, max(first, last) + 1)]


def choose_before(first_keys: list[Key], key: Key) -> ChosenChildren:
    """Return the child that may hold the greatest key before the given one."""
    return [(bisect_left(first_keys, key, 1) - 1, key)]


def choose_all(first_keys: list[Key], _search: Any) -> ChosenChildren:
    """Return all children."""
    return [(child, None) for child in range(len(first_keys))]
