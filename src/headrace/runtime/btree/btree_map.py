"""An ordered map whose entries lie in leaves; only the leaves that are needed are loaded."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, TypeAlias

from sortedcontainers import SortedList

from headrace.runtime.btree.page_tree import LeafTree, Loading
from headrace.runtime.btree.pages import (
    INLINE,
    Key,
    Leaf,
    LeafLimits,
    choose_before,
    choose_points,
    choose_prefixes,
    choose_range,
)
from headrace.state.maps import keys_between

Load: TypeAlias = Callable[[Loading], None]
"""Runs one `Loading` to its end."""

_FEW = 4
"""The keys that begin with the same bytes are ordered on their own if they lie in few leaves."""
_SPREAD = 4
"""A leaf is spread at once if one in so many of its entries is wanted."""
_ENTRY_OVERHEAD = 160
"""About what Python takes for an entry besides its bytes."""


class _Entries(dict[Key, Any]):
    """Entries by key; None says that there is none. What is not here is asked for."""

    __slots__ = ("fault",)

    fault: Callable[[Key], Any]

    def __missing__(self, key: Key) -> Any:
        return self.fault(key)


class LeafMap:
    """An `OrderedMap` over leaves.

    Entries that were used are in a dict, as in a map in memory, so using them again costs the same.
    What was changed is noted, and sorted into the leaves by `LeafWriter` at the next flush.

    Args:
        store: The store it belongs to.
        segment: The number of the segment it is, if the store has segments.
        load: Loads blobs.
        limits: How large leaves become.
        is_new: Whether it is known to have no entries.
    """

    __slots__ = (
        "_absent",
        "_blind",
        "_empty",
        "_faults",
        "_groups",
        "_keys",
        "_load",
        "_loose",
        "data",
        "fresh",
        "get",
        "pending",
        "removed",
        "touched",
        "tree",
    )

    def __init__(
        self,
        store: str,
        segment: int | None,
        load: Load,
        limits: LeafLimits,
        *,
        is_new: bool = False,
    ) -> None:
        self._load = load
        self.tree = LeafTree(store, segment, limits, self._take)
        self.data = _Entries()
        """Entries by key; those of a loaded leaf only if they were used or the leaf is spread."""
        self.data.fault = self._fault
        self.get = self.data.__getitem__
        self.touched: set[Key] = set()
        """The keys that were put or removed since the last flush."""
        self.fresh: set[Key] = set()
        """Those that are in no leaf, as far as it is known."""
        self.removed: set[Key] = set()
        """Those that were removed and are still in a leaf."""
        self.pending: list[Key] = []
        """What was touched, sorted, while it is being written."""
        self._blind: set[Key] = set()
        """Those that were put before their leaf was loaded."""
        self._absent: list[Key] = []
        """Keys that are in the dict although there is no entry and never was."""
        self._faults = 0
        self._keys: SortedList[Key] | None = None
        """All loaded keys, from the first scan over several groups on."""
        self._groups: dict[bytes, list[Key]] = {}
        """The keys that begin with the same bytes, from the first scan within them on."""
        self._loose: dict[bytes, list[Key]] | None = None
        """Those of `fresh` that are in no group, from the first group on."""
        self._empty: tuple[Key, Key] | None = None
        """A range that is known to hold nothing."""
        if is_new:
            self.tree.open(None)

    def put(self, key: Key, value: Any, /) -> None:
        data = self.data
        if data.get(key) is None:
            self._add(key)
        data[key] = value
        self.touched.add(key)

    def _add(self, key: Key) -> None:
        if key in self.removed:
            self.removed.discard(key)
        else:
            if key not in self.data and not self._is_known(key):
                self._blind.add(key)
                self.fresh.add(key)
            elif self.data.get(key) is None:
                self.fresh.add(key)
            else:
                return  # it was in a leaf that is loaded
        if self._keys is not None:
            self._keys.add(key)
        if self._loose is not None:
            group = self._groups.get(key[0])
            insort(self._loose.setdefault(key[0], []) if group is None else group, key)
        if self._empty is not None and self._empty[0] <= key < self._empty[1]:
            self._empty = None

    def _is_known(self, key: Key) -> bool:
        """Return whether the leaf of a key is loaded; then the dict says whether it has it."""
        tree = self.tree
        if tree.level == INLINE:
            return True
        leaf = tree.leaf_of(key)
        if leaf is None:
            return False
        if not leaf.is_spread:
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
        if key in self.fresh:
            self.fresh.discard(key)
            self.touched.discard(key)
            self._absent.append(key)
        else:
            self.removed.add(key)
            self.touched.add(key)
        if self._keys is not None:
            self._keys.remove(key)
        if self._loose is not None:
            groups = self._groups if key[0] in self._groups else self._loose
            group = groups.get(key[0], [])
            position = bisect_left(group, key)
            if position < len(group) and group[position] == key:
                del group[position]
        return value

    def scan(
        self, start: Key | None = None, end: Key | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[Key, Any]]:
        data = self.data
        if start is not None and end is not None:
            group = self._group(start, end)
            if group is not None:
                keys = keys_between(group, start, end, reverse=reverse)
                return iter([(key, data[key]) for key in keys])
        if not self.tree.complete:
            self._load(self.tree.loading(choose_range, (start, end)))
        found = self._ordered().irange(start, end, inclusive=(True, False), reverse=reverse)
        return iter([(key, data[key]) for key in found])

    def first(self, start: Key, end: Key, /) -> tuple[Key, Any] | None:
        group = self._group(start, end)
        if group is not None:
            position = bisect_left(group, start)
            if position < len(group) and group[position] < end:
                return group[position], self.data[group[position]]
            return None
        low = start
        if self._empty is not None and self._empty[0] <= start < self._empty[1]:
            low = self._empty[1]
        while low < end:
            until = self._loaded_until(low)
            if until is None or until > end:
                until = end
            for key in self._ordered().irange(low, until, inclusive=(True, False)):
                self._empty = (start, key)
                return key, self.data[key]
            low = until
        self._empty = (start, end)
        return None

    def last(self, start: Key, end: Key, /) -> tuple[Key, Any] | None:
        group = self._group(start, end)
        if group is not None:
            position = bisect_left(group, end) - 1
            if position >= 0 and group[position] >= start:
                return group[position], self.data[group[position]]
            return None
        high = end
        while start < high:
            since = self._loaded_since(high)
            if since is None or since < start:
                since = start
            ordered = self._ordered()
            for key in ordered.irange(since, high, inclusive=(True, False), reverse=True):
                return key, self.data[key]
            high = since
        return None

    def __len__(self) -> int:
        if self.tree.count is None or self._blind:
            self._load(self._resolving())
        assert self.tree.count is not None, "it was loaded"
        return self.tree.count + len(self.fresh) - len(self.removed)

    def prefetching(self, keys: list[bytes]) -> Loading:
        """Load what the map has of the given keys, or of tuples that begin with them."""
        tree = self.tree
        yield from tree.opening()
        if tree.level == INLINE or len(tree.root.ids) < 2:
            return
        sample = tree.root.lows[1]
        if type(sample) is bytes:
            yield from self.prefetching_points(keys)
        elif type(sample[0]) is bytes:
            groups = self._groups
            wanted = [key for key in keys if key not in groups] if groups else keys
            yield from tree.loading(choose_prefixes, wanted)

    def prefetching_points(self, keys: list[Key]) -> Loading:
        """Load what the map has of the given keys, which are sorted."""
        tree = self.tree
        yield from tree.opening()
        if self.data:
            data = self.data
            keys = [key for key in keys if key not in data]
        if tree.level == INLINE or not keys:
            return
        found = yield from tree.descending(choose_points, keys)
        leaves, limits = tree.leaves, tree.limits
        new = [(id_, part) for id_, part in found if id_ not in leaves]
        yield from tree.load_leaves([id_ for id_, _ in found])
        look_up = self._look_up
        for id_, part in found:
            leaf = leaves[id_]
            if leaf.is_spread:
                continue
            if len(part) * _SPREAD > len(leaf.keys):
                self._spread(leaf)
            else:
                for key in part:
                    look_up(leaf, key)
        for id_, part in new:
            # A large leaf that is read for few of its entries is worth splitting, too.
            keys = leaves[id_].keys
            if len(keys) > 4 * limits.fewest_entries and len(part) * limits.sparse < len(keys):
                self.touched.add(keys[0])
                self._look_up(leaves[id_], keys[0])

    def resolving(self) -> Loading:
        """Load all that must be known to write what was changed."""
        self.pending = sorted(self.touched)
        yield from self._resolving()

    def _resolving(self) -> Loading:
        if self._blind:
            yield from self.tree.loading(choose_points, sorted(self._blind))
            self._blind.clear()
        yield from self.tree.counting()

    def settle(self) -> None:
        """Take note that all changes were written."""
        data = self.data
        for key in chain(self.removed, self._absent):
            if data.get(key, self) is None:
                del data[key]
        for changes in (self.touched, self.fresh, self.removed):
            changes.clear()
        self._absent.clear()
        self.pending = []
        if self._loose is not None:
            self._loose.clear()
        self._faults = 0
        self.tree.tick += 1

    def release(self) -> None:
        """Forget everything: the map is not used any more."""
        self.data.clear()
        self.tree.forget()
        self.forget_order()

    def forget_order(self) -> None:
        """Forget the order of keys; the next scan makes it again."""
        self._keys = None
        self._groups = {}
        self._loose = None
        self._empty = None

    def evict(self, id_: int) -> int:
        """Forget a leaf, and the order of keys; return its weight. There must be no changes."""
        tree = self.tree
        leaf = tree.leaves.pop(id_)
        pop = self.data.pop
        for key in chain(leaf.keys, self._absent):
            pop(key, None)
        self._absent.clear()
        tree.complete = False
        self.forget_order()
        if tree.level == INLINE:
            tree.forget()
        return _weight(leaf)

    def weight(self) -> int:
        """Return about how much memory the loaded entries take."""
        return sum(map(_weight, self.tree.leaves.values()))

    def _fault(self, key: Key) -> Any:
        tree = self.tree
        if tree.level == INLINE:
            return None
        leaf = tree.leaf_of(key)
        if leaf is None:
            self._load(self._faulting(key))
            if tree.level == INLINE:
                return self.data.get(key)
            leaf = tree.leaf_of(key)
            assert leaf is not None, "it was loaded"
        return self._look_up(leaf, key)

    def _look_up(self, leaf: Leaf, key: Key) -> Any:
        """Return the value of a key, which the dict then has, or None for there is none."""
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
        yield from tree.opening()
        if tree.is_small():
            yield from tree.loading_all()
            return
        yield from tree.loading(choose_points, [key])
        self._faults += 1
        if self._faults > tree.limits.read_ahead:
            # Entries that are used together were often put together.
            yield from tree.load_leaves(tree.next_to(key, tree.limits.read_ahead - 1))

    def _take(self, leaves: list[Leaf]) -> None:
        """Take note of leaves that were loaded."""
        if self._blind:
            for leaf in leaves:
                known = self._blind.intersection(leaf.keys)
                if known:
                    self._note_known(known)
        if self._keys is not None:
            # Those that were put before are there already.
            touched = self.touched
            for leaf in leaves:
                self._keys.update(key for key in leaf.keys if key not in touched)
        if self._keys is not None or self.tree.is_small():
            for leaf in leaves:
                self._spread(leaf)

    def _note_known(self, known: set[Key]) -> None:
        """Take note of keys that were put before their leaf was loaded, and are in it."""
        self._blind -= known
        self.fresh -= known
        if self._loose is not None:
            for key in known:
                loose = self._loose.get(key[0], [])
                if key in loose:
                    loose.remove(key)

    def _spread(self, leaf: Leaf) -> None:
        """Put all entries of a leaf into the dict."""
        if self.touched:
            setdefault = self.data.setdefault
            for key, value in zip(leaf.keys, leaf.values, strict=True):
                setdefault(key, value)
        else:
            self.data.update(zip(leaf.keys, leaf.values, strict=True))
        leaf.is_spread = True

    def _loaded_until(self, key: Key) -> Key | None:
        """Load the leaf a key belongs to; return where the next one begins, or None."""
        tree = self.tree
        if tree.complete:
            return None
        if tree.leaf_of(key) is None:
            self._load(self._faulting(key))
        return tree.end_of_leaf(key)

    def _loaded_since(self, key: Key) -> Key | None:
        """Load the leaf of what comes before a key; return where it begins, or None."""
        if self.tree.complete:
            return None
        self._load(self.tree.loading(choose_before, key))
        return self.tree.start_of_leaf(key)

    def _ordered(self) -> SortedList[Key]:
        if self._keys is None:
            for leaf in self.tree.leaves.values():
                if not leaf.is_spread:
                    self._spread(leaf)
            self._keys = SortedList(key for key, value in self.data.items() if value is not None)
        return self._keys

    def _group(self, start: Key, end: Key) -> list[Key] | None:
        """Return the keys that begin with the same bytes as both bounds; None if those differ.

        None also if they are many and not loaded.
        """
        if type(start) is not tuple or type(end) is not tuple:
            return None
        begin = start[0]
        if type(begin) is not bytes or begin != end[0]:
            return None
        group = self._groups.get(begin)
        return self._new_group(begin) if group is None else group

    def _new_group(self, begin: bytes) -> list[Key] | None:
        leaves = self.tree.leaves_of(begin)
        if leaves is None:
            self._load(self._loading_group(begin))
            leaves = self.tree.leaves_of(begin)
            if leaves is None:
                return None
        group = [key for leaf in leaves for key in self._part_of(leaf, begin)]
        if self.removed:
            removed = self.removed
            group = [key for key in group if key not in removed]
        if self._loose is None:
            self._loose = {}
            for key in sorted(self.fresh):
                self._loose.setdefault(key[0], []).append(key)
        loose = self._loose.pop(begin, None)
        if loose:
            group = sorted(group + loose)
        self._groups[begin] = group
        return group

    def _part_of(self, leaf: Leaf, begin: bytes) -> list[Key]:
        """Return the keys of a leaf that begin with given bytes; the dict then has them."""
        start = bisect_left(leaf.keys, (begin,))
        stop = bisect_left(leaf.keys, (begin + b"\0",), start)
        found = leaf.keys[start:stop]
        if not leaf.is_spread:
            for key, value in zip(found, leaf.values[start:stop], strict=True):
                self.data.setdefault(key, value)
        return found

    def _loading_group(self, begin: bytes) -> Loading:
        tree = self.tree
        yield from tree.opening()
        if tree.is_small():
            yield from tree.loading_all()
            return
        found = yield from tree.descending(choose_prefixes, [begin])
        if len(found) <= _FEW:
            yield from tree.load_leaves([id_ for id_, _ in found])


def _weight(leaf: Leaf) -> int:
    return leaf.size + _ENTRY_OVERHEAD * len(leaf.keys)
