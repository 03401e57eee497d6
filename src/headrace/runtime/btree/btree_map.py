"""An ordered map over a B+ tree: loads the pages it needs, and holds changes until the flush."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, TypeAlias

from sortedcontainers import SortedList

from headrace.runtime.btree.page_tree import Loading, PageTree
from headrace.runtime.btree.pages import (
    INLINE,
    Key,
    LeafPage,
    PageLimits,
    choose_before,
    choose_points,
    choose_prefixes,
    choose_range,
)
from headrace.state.maps import keys_between

Load: TypeAlias = Callable[[Loading], None]
"""Runs one `Loading` to its end."""

_MAX_PREFIX_PAGES = 4
"""A scan within one prefix loads and sorts only its keys, if at most this many pages have them."""
_UNPACK_RATIO = 4
"""A prefetch unpacks a leaf page if it needs more than one in this many of its entries."""
_ENTRY_OVERHEAD = 160
"""About how many bytes of memory Python needs for an entry besides its key and value."""


class _Entries(dict[Key, Any]):
    """Entries by key; None marks a key that has no entry. Any other missing key faults."""

    __slots__ = ("fault",)

    fault: Callable[[Key], Any]

    def __missing__(self, key: Key) -> Any:
        return self.fault(key)


class BTreeMap:
    """An `OrderedMap` over the B+ tree of a store, or of one of its segments.

    A dict holds the entries that were used, so another use of them costs as much as in a map in
    memory. The map collects the dirty keys, and `PageWriter` writes them to the pages at the flush.

    Below, the prefix of a key is its first element, if the key is a tuple that begins with bytes.
    """

    __slots__ = (
        "_absent",
        "_blind",
        "_empty_range",
        "_faults",
        "_inserted_by_prefix",
        "_keys_by_prefix",
        "_load",
        "_sorted_keys",
        "data",
        "dirty",
        "get",
        "inserted",
        "removed",
        "sorted_dirty",
        "tree",
    )

    def __init__(
        self,
        store: str,
        segment: int | None,
        load: Load,
        limits: PageLimits,
        *,
        is_new: bool = False,
    ) -> None:
        self._load = load
        self.tree = PageTree(store, segment, limits, self._add_loaded)
        self.data = _Entries()
        """Entries by key. It has those of a loaded leaf page if they were used, or if the page is
        unpacked."""
        self.data.fault = self._fault
        self.get = self.data.__getitem__
        self.dirty: set[Key] = set()
        """The keys that were put or removed since the last flush."""
        self.inserted: set[Key] = set()
        """The dirty keys that no loaded leaf page has."""
        self.removed: set[Key] = set()
        """The dirty keys that were removed and that a leaf page still has."""
        self.sorted_dirty: list[Key] = []
        """The dirty keys in order, during a flush."""
        self._blind: set[Key] = set()
        """The keys of blind writes: put before their leaf page was loaded."""
        self._absent: list[Key] = []
        """The keys that the dict marks with None and that no leaf page has."""
        self._faults = 0
        self._sorted_keys: SortedList[Key] | None = None
        """All loaded keys, from the first scan over several prefixes on."""
        self._keys_by_prefix: dict[bytes, list[Key]] = {}
        """The sorted keys of each prefix, from the first scan within the prefix on."""
        self._inserted_by_prefix: dict[bytes, list[Key]] | None = None
        """The sorted inserted keys of each prefix that `_keys_by_prefix` does not have; None before
        the first scan within a prefix."""
        self._empty_range: tuple[Key, Key] | None = None
        """The bounds of a range that has no entries."""
        if is_new:
            self.tree.set_root(None)

    def put(self, key: Key, value: Any, /) -> None:
        data = self.data
        if data.get(key) is None:
            self._add(key)
        data[key] = value
        self.dirty.add(key)

    def _add(self, key: Key) -> None:
        if key in self.removed:
            self.removed.discard(key)
        else:
            if key not in self.data and not self._is_page_loaded(key):
                self._blind.add(key)
                self.inserted.add(key)
            elif self.data.get(key) is None:
                self.inserted.add(key)
            else:
                return  # A loaded leaf page has the key.
        if self._sorted_keys is not None:
            self._sorted_keys.add(key)
        if self._inserted_by_prefix is not None:
            keys = self._keys_by_prefix.get(key[0])
            insort(self._inserted_by_prefix.setdefault(key[0], []) if keys is None else keys, key)
        if self._empty_range is not None and self._empty_range[0] <= key < self._empty_range[1]:
            self._empty_range = None

    def _is_page_loaded(self, key: Key) -> bool:
        """Return whether the leaf page of a key is loaded; if so, look the key up in it."""
        tree = self.tree
        if tree.level == INLINE:
            return True
        leaf = tree.leaf_page_of(key)
        if leaf is None:
            return False
        if not leaf.is_unpacked:
            self._look_up(leaf, key)
        return True

    def pop(self, key: Key, /) -> Any:
        value = self.data[key]
        if value is None:
            return None
        if key in self._blind:
            self._load(self.tree.loading(choose_points, [key]))
            self._blind.discard(key)
        self.data[key] = None
        if key in self.inserted:
            self.inserted.discard(key)
            self.dirty.discard(key)
            self._absent.append(key)
        else:
            self.removed.add(key)
            self.dirty.add(key)
        if self._sorted_keys is not None:
            self._sorted_keys.remove(key)
        if self._inserted_by_prefix is not None:
            by_prefix = (
                self._keys_by_prefix if key[0] in self._keys_by_prefix else self._inserted_by_prefix
            )
            keys = by_prefix.get(key[0], [])
            position = bisect_left(keys, key)
            if position < len(keys) and keys[position] == key:
                del keys[position]
        return value

    def scan(
        self, start: Key | None = None, end: Key | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[Key, Any]]:
        data = self.data
        if start is not None and end is not None:
            prefix_keys = self._keys_of_prefix(start, end)
            if prefix_keys is not None:
                keys = keys_between(prefix_keys, start, end, reverse=reverse)
                return iter([(key, data[key]) for key in keys])
        if not self.tree.is_complete:
            self._load(self.tree.loading(choose_range, (start, end)))
        range_keys = self._sort_keys().irange(start, end, inclusive=(True, False), reverse=reverse)
        return iter([(key, data[key]) for key in range_keys])

    def first(self, start: Key, end: Key, /) -> tuple[Key, Any] | None:
        prefix_keys = self._keys_of_prefix(start, end)
        if prefix_keys is not None:
            position = bisect_left(prefix_keys, start)
            if position < len(prefix_keys) and prefix_keys[position] < end:
                return prefix_keys[position], self.data[prefix_keys[position]]
            return None
        lower = start
        if self._empty_range is not None and self._empty_range[0] <= start < self._empty_range[1]:
            lower = self._empty_range[1]
        while lower < end:
            upper = self._load_page_of(lower)
            if upper is None or upper > end:
                upper = end
            for key in self._sort_keys().irange(lower, upper, inclusive=(True, False)):
                self._empty_range = (start, key)
                return key, self.data[key]
            lower = upper
        self._empty_range = (start, end)
        return None

    def last(self, start: Key, end: Key, /) -> tuple[Key, Any] | None:
        prefix_keys = self._keys_of_prefix(start, end)
        if prefix_keys is not None:
            position = bisect_left(prefix_keys, end) - 1
            if position >= 0 and prefix_keys[position] >= start:
                return prefix_keys[position], self.data[prefix_keys[position]]
            return None
        upper = end
        while start < upper:
            lower = self._load_page_before(upper)
            if lower is None or lower < start:
                lower = start
            sorted_keys = self._sort_keys()
            for key in sorted_keys.irange(lower, upper, inclusive=(True, False), reverse=True):
                return key, self.data[key]
            upper = lower
        return None

    def __len__(self) -> int:
        if self.tree.entry_count is None or self._blind:
            self._load(self._resolving())
        assert self.tree.entry_count is not None, "the counter is loaded"
        return self.tree.entry_count + len(self.inserted) - len(self.removed)

    def prefetching(self, keys: list[bytes]) -> Loading:
        """Load the pages of the given keys, or of tuples that begin with them."""
        tree = self.tree
        yield from tree.loading_root()
        if tree.level == INLINE or len(tree.root.child_ids) < 2:
            return
        sample = tree.root.first_keys[1]
        if type(sample) is bytes:
            yield from self.prefetching_points(keys)
        elif type(sample[0]) is bytes:
            sorted_prefixes = self._keys_by_prefix
            prefixes = (
                [key for key in keys if key not in sorted_prefixes] if sorted_prefixes else keys
            )
            yield from tree.loading(choose_prefixes, prefixes)

    def prefetching_points(self, keys: list[Key]) -> Loading:
        """Load the pages of the given keys, which are sorted."""
        tree = self.tree
        yield from tree.loading_root()
        if self.data:
            data = self.data
            keys = [key for key in keys if key not in data]
        if tree.level == INLINE or not keys:
            return
        searches = yield from tree.descending(choose_points, keys)
        leaf_pages, limits = tree.leaf_pages, tree.limits
        missing = [(page_id, points) for page_id, points in searches if page_id not in leaf_pages]
        yield from tree.loading_leaf_pages([page_id for page_id, _ in searches])
        look_up = self._look_up
        for page_id, points in searches:
            leaf = leaf_pages[page_id]
            if leaf.is_unpacked:
                continue
            if len(points) * _UNPACK_RATIO > len(leaf.keys):
                self._unpack(leaf)
            else:
                for key in points:
                    look_up(leaf, key)
        for page_id, points in missing:
            # A large page that is read for few of its entries should split at the flush too.
            keys = leaf_pages[page_id].keys
            if len(keys) > 4 * limits.min_entries and len(points) * limits.sparse_ratio < len(keys):
                self.dirty.add(keys[0])
                self._look_up(leaf_pages[page_id], keys[0])

    def resolving(self) -> Loading:
        """Load the pages of blind writes and the counter, which a flush needs."""
        self.sorted_dirty = sorted(self.dirty)
        yield from self._resolving()

    def _resolving(self) -> Loading:
        if self._blind:
            yield from self.tree.loading(choose_points, sorted(self._blind))
            self._blind.clear()
        yield from self.tree.loading_counter()

    def mark_clean(self) -> None:
        """Mark all keys as clean, after a flush wrote the dirty ones."""
        data = self.data
        for key in chain(self.removed, self._absent):
            if data.get(key, self) is None:
                del data[key]
        for keys in (self.dirty, self.inserted, self.removed):
            keys.clear()
        self._absent.clear()
        self.sorted_dirty = []
        if self._inserted_by_prefix is not None:
            self._inserted_by_prefix.clear()
        self._faults = 0
        self.tree.flushes += 1

    def release(self) -> None:
        """Free the memory of the map, which must not be used afterwards."""
        self.data.clear()
        self.tree.unload()
        self.discard_order()

    def discard_order(self) -> None:
        """Discard the sorted keys; the next scan sorts them again."""
        self._sorted_keys = None
        self._keys_by_prefix = {}
        self._inserted_by_prefix = None
        self._empty_range = None

    def evict(self, page_id: int) -> int:
        """Unload a leaf page and discard the sorted keys; return about how many bytes that frees.

        No key may be dirty.
        """
        tree = self.tree
        leaf = tree.leaf_pages.pop(page_id)
        pop = self.data.pop
        for key in chain(leaf.keys, self._absent):
            pop(key, None)
        self._absent.clear()
        tree.is_complete = False
        self.discard_order()
        if tree.level == INLINE:
            tree.unload()
        return _memory_bytes(leaf)

    def memory_bytes(self) -> int:
        """Return about how many bytes of memory the loaded leaf pages use."""
        return sum(map(_memory_bytes, self.tree.leaf_pages.values()))

    def _fault(self, key: Key) -> Any:
        tree = self.tree
        if tree.level == INLINE:
            return None
        leaf = tree.leaf_page_of(key)
        if leaf is None:
            self._load(self._faulting(key))
            if tree.level == INLINE:
                return self.data.get(key)
            leaf = tree.leaf_page_of(key)
            assert leaf is not None, "the page is loaded"
        return self._look_up(leaf, key)

    def _look_up(self, leaf: LeafPage, key: Key) -> Any:
        """Copy the entry of a key from its page to the dict; return its value, or None."""
        data, keys = self.data, leaf.keys
        if key in data:
            return data[key]
        position = bisect_left(keys, key)
        if position < len(keys) and keys[position] == key:
            value = data[key] = leaf.values[position]
            return value
        data[key] = None
        return self._absent.append(key)

    def _faulting(self, key: Key) -> Loading:
        tree = self.tree
        yield from tree.loading_root()
        if tree.is_small():
            yield from tree.loading_all()
            return
        yield from tree.loading(choose_points, [key])
        self._faults += 1
        if self._faults > tree.limits.read_ahead_pages:
            # Read ahead: entries that are used together often have neighbouring keys.
            yield from tree.loading_leaf_pages(
                tree.next_leaf_ids(key, tree.limits.read_ahead_pages - 1)
            )

    def _add_loaded(self, leaf_pages: list[LeafPage]) -> None:
        """Bring blind writes and sorted keys up to date with leaf pages that were loaded."""
        if self._blind:
            for leaf in leaf_pages:
                existing = self._blind.intersection(leaf.keys)
                if existing:
                    self._mark_existing(existing)
        if self._sorted_keys is not None:
            # The sorted keys already reflect the dirty keys.
            dirty = self.dirty
            for leaf in leaf_pages:
                self._sorted_keys.update(key for key in leaf.keys if key not in dirty)
        if self._sorted_keys is not None or self.tree.is_small():
            for leaf in leaf_pages:
                self._unpack(leaf)

    def _mark_existing(self, keys: set[Key]) -> None:
        """Mark keys of blind writes as not inserted, because a leaf page has them."""
        self._blind -= keys
        self.inserted -= keys
        if self._inserted_by_prefix is not None:
            for key in keys:
                inserted = self._inserted_by_prefix.get(key[0], [])
                if key in inserted:
                    inserted.remove(key)

    def _unpack(self, leaf: LeafPage) -> None:
        """Copy all entries of a leaf page to the dict; dirty keys keep their values."""
        if self.dirty:
            setdefault = self.data.setdefault
            for key, value in zip(leaf.keys, leaf.values, strict=True):
                setdefault(key, value)
        else:
            self.data.update(zip(leaf.keys, leaf.values, strict=True))
        leaf.is_unpacked = True

    def _load_page_of(self, key: Key) -> Key | None:
        """Load the leaf page of a key; return the first key of the next page, or None."""
        tree = self.tree
        if tree.is_complete:
            return None
        if tree.leaf_page_of(key) is None:
            self._load(self._faulting(key))
        return tree.end_of_leaf_page(key)

    def _load_page_before(self, end: Key) -> Key | None:
        """Load the leaf page of the keys just before ``end``; return its first key, or None."""
        if self.tree.is_complete:
            return None
        self._load(self.tree.loading(choose_before, end))
        return self.tree.start_of_leaf_page(end)

    def _sort_keys(self) -> SortedList[Key]:
        """Return all loaded keys in order; the first call unpacks the pages and sorts the keys."""
        if self._sorted_keys is None:
            for leaf in self.tree.leaf_pages.values():
                if not leaf.is_unpacked:
                    self._unpack(leaf)
            self._sorted_keys = SortedList(
                key for key, value in self.data.items() if value is not None
            )
        return self._sorted_keys

    def _keys_of_prefix(self, start: Key, end: Key) -> list[Key] | None:
        """Return the sorted keys of the prefix that both bounds have.

        None if the prefixes differ, or if the keys are in too many pages that are not loaded.
        """
        if type(start) is not tuple or type(end) is not tuple:
            return None
        prefix = start[0]
        if type(prefix) is not bytes or prefix != end[0]:
            return None
        keys = self._keys_by_prefix.get(prefix)
        return self._sort_prefix(prefix) if keys is None else keys

    def _sort_prefix(self, prefix: bytes) -> list[Key] | None:
        leaf_pages = self.tree.leaf_pages_with(prefix)
        if leaf_pages is None:
            self._load(self._loading_prefix(prefix))
            leaf_pages = self.tree.leaf_pages_with(prefix)
            if leaf_pages is None:
                return None
        keys = [key for leaf in leaf_pages for key in self._unpack_prefix(leaf, prefix)]
        if self.removed:
            removed = self.removed
            keys = [key for key in keys if key not in removed]
        if self._inserted_by_prefix is None:
            self._inserted_by_prefix = {}
            for key in sorted(self.inserted):
                self._inserted_by_prefix.setdefault(key[0], []).append(key)
        inserted = self._inserted_by_prefix.pop(prefix, None)
        if inserted:
            keys = sorted(keys + inserted)
        self._keys_by_prefix[prefix] = keys
        return keys

    def _unpack_prefix(self, leaf: LeafPage, prefix: bytes) -> list[Key]:
        """Copy the entries of one prefix from a leaf page to the dict; return their keys."""
        start = bisect_left(leaf.keys, (prefix,))
        stop = bisect_left(leaf.keys, (prefix + b"\0",), start)
        keys = leaf.keys[start:stop]
        if not leaf.is_unpacked:
            for key, value in zip(keys, leaf.values[start:stop], strict=True):
                self.data.setdefault(key, value)
        return keys

    def _loading_prefix(self, prefix: bytes) -> Loading:
        tree = self.tree
        yield from tree.loading_root()
        if tree.is_small():
            yield from tree.loading_all()
            return
        searches = yield from tree.descending(choose_prefixes, [prefix])
        if len(searches) <= _MAX_PREFIX_PAGES:
            yield from tree.loading_leaf_pages([page_id for page_id, _ in searches])


def _memory_bytes(leaf: LeafPage) -> int:
    return leaf.size + _ENTRY_OVERHEAD * len(leaf.keys)
