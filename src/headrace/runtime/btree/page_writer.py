"""The flush of a B+ tree: writes dirty keys to pages, and splits and merges the pages."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, TypeAlias

from headrace.runtime.btree.btree_map import BTreeMap
from headrace.runtime.btree.pages import (
    COUNTER,
    INLINE,
    PAGE,
    ROOT,
    ROOT_PAGE,
    BTreeStats,
    ChosenChildren,
    IndexPage,
    Key,
    LeafPage,
    choose_points,
    encode_counter,
    encode_index_page,
    encode_leaf_page,
    encode_page_id,
    encode_root,
    separator,
    should_merge,
    split_count,
    split_evenly,
)

IndexEdit: TypeAlias = tuple[int, int, list[Key], list[int]]
"""Replaces the children of an index page from one position to before another: the first keys and
page ids of the new children."""

_IN_PLACE_RATIO = 8
"""If fewer than one in this many entries of a leaf page are dirty, its lists change in place."""
_SMALL_ROOT_BYTES = 8_192
"""A root page of at most this many bytes does not split because few of its entries are dirty."""
_SMALL_INDEX_RATIO = 8
"""An index page with fewer children than `max_children` divided by this may merge."""


class _MergedPages:
    """The entries of one leaf page, or of neighbouring pages that merge."""

    __slots__ = ("dirty", "end", "is_unpacked", "keys", "size", "start", "values")

    def __init__(
        self, start: int, leaf: LeafPage, keys: list[Key], values: list[Any], dirty: int
    ) -> None:
        self.start = start
        """The position of the first page in its index page."""
        self.end = start + 1
        self.keys = keys
        self.values = values
        self.dirty = dirty
        """The number of dirty keys."""
        self.size = leaf.size
        self.is_unpacked = leaf.is_unpacked

    def measures(self) -> tuple[int, int, int]:
        """Return the numbers of entries, dirty keys and bytes, for `should_merge`."""
        return len(self.keys), self.dirty, self.size


NewPage: TypeAlias = tuple[list[Key], list[Any], bytes]
"""The keys, values and blob of a leaf page to write."""


class PageWriter:
    """Writes the dirty keys of one map; `BTreeMap.resolving` loads the pages it needs.

    ``changes`` gets the blobs to write by key; None deletes one.
    """

    def __init__(
        self, target: BTreeMap, changes: dict[bytes, bytes | None], stats: BTreeStats
    ) -> None:
        self._map = target
        self._tree = target.tree
        self._changes = changes
        self._stats = stats
        self._limits = target.tree.limits
        self._page_prefix = target.tree.blob_prefix + PAGE
        self._has_small_index_pages = False

    def write(self) -> None:
        """Write the dirty keys, and mark them as clean."""
        target, tree = self._map, self._tree
        before = tree.entry_count, tree.next_page_id
        assert tree.entry_count is not None, "the counter is loaded"
        tree.entry_count += len(target.inserted) - len(target.removed)
        if tree.level == INLINE:
            self._rewrite_inline_root(target.sorted_dirty)
        else:
            assert tree.level is not None, "the root page is loaded"
            if self._rewrite(tree.root, tree.level, target.sorted_dirty):
                self._write_root()
        if tree.level != INLINE and (tree.entry_count, tree.next_page_id) != before:
            self._changes[tree.blob_prefix + COUNTER] = encode_counter(
                tree.entry_count, tree.next_page_id
            )
        target.mark_clean()

    def remove(self) -> None:
        """Delete all blobs of the map; `PageTree.loading_index` loads the pages it needs."""
        tree = self._tree
        if tree.level != INLINE:
            for page in (tree.root, *tree.index_pages.values()):
                for page_id in page.child_ids:
                    self._changes[self._page_prefix + encode_page_id(page_id)] = None
            self._changes[tree.blob_prefix + COUNTER] = None
        if tree.level != INLINE or tree.leaf_pages[ROOT_PAGE].size:
            self._changes[tree.blob_prefix + ROOT] = None

    def _rewrite_inline_root(self, dirty: list[Key]) -> None:
        tree = self._tree
        leaf = tree.leaf_pages[ROOT_PAGE]
        merged = _MergedPages(0, leaf, *self._apply_dirty(leaf, dirty), len(dirty))
        if leaf.size <= _SMALL_ROOT_BYTES:
            merged.dirty = max(merged.dirty, len(merged.keys))
        new_pages = self._split(merged)
        if len(new_pages) > 1:
            del tree.leaf_pages[ROOT_PAGE]
            tree.level, tree.next_page_id = 0, 1
            tree.root = IndexPage([], [])
            _apply_edits(tree.root, [self._write_split(merged, new_pages, [], None)])
            self._write_root()
        elif merged.keys or leaf.size:
            self._write_inline_root(merged.keys, merged.values)

    def _write_inline_root(self, keys: list[Key], values: list[Any]) -> None:
        blob = encode_root(INLINE, keys, values) if keys else b""
        leaf = LeafPage(keys, values, len(blob), self._tree.flushes)
        leaf.is_unpacked = True
        self._tree.leaf_pages = {ROOT_PAGE: leaf}
        self._changes[self._tree.blob_prefix + ROOT] = blob or None

    def _write_root(self) -> None:
        tree, root = self._tree, self._tree.root
        assert tree.level is not None, "the root page is loaded"
        if not root.child_ids:
            tree.level = 0
        while len(root.child_ids) > self._limits.max_children:
            first_keys, child_ids = self._split_index_page(root)
            tree.root = root = IndexPage(first_keys, child_ids)
            tree.level += 1
        while tree.level > 0 and len(root.child_ids) == 1 and root.child_ids[0] in tree.index_pages:
            child_id = root.child_ids[0]
            tree.root = root = tree.index_pages.pop(child_id)
            tree.level -= 1
            self._changes[self._page_prefix + encode_page_id(child_id)] = None
        if tree.level == 0 and not root.child_ids:
            self._collapse([], [])
        elif tree.level == 0 and len(root.child_ids) == 1 and root.child_ids[0] in tree.leaf_pages:
            leaf = tree.leaf_pages[root.child_ids[0]]
            self._changes[self._page_prefix + encode_page_id(root.child_ids[0])] = None
            self._collapse(leaf.keys, leaf.values)
        else:
            self._changes[tree.blob_prefix + ROOT] = encode_root(
                tree.level, root.first_keys, root.child_ids
            )

    def _collapse(self, keys: list[Key], values: list[Any]) -> None:
        """Move the entries of the last leaf page to the root page."""
        tree = self._tree
        self._changes[tree.blob_prefix + COUNTER] = None
        self._write_inline_root(keys, values)
        setdefault = self._map.data.setdefault
        for key, value in zip(keys, values, strict=True):
            setdefault(key, value)
        tree.level, tree.root, tree.next_page_id = INLINE, IndexPage([], []), 1
        tree.is_complete = True

    def _rewrite(self, page: IndexPage, level: int, dirty: list[Key]) -> bool:
        """Rewrite the pages of dirty keys below an index page; return whether it changed too."""
        chosen = choose_points(page.first_keys, dirty)
        if level == 0:
            edits = self._rewrite_leaf_pages(page, chosen)
        else:
            child_edits = (
                self._rewrite_index_page(page, child, level - 1, child_dirty)
                for child, child_dirty in chosen
            )
            edits = [edit for edit in child_edits if edit is not None]
        _apply_edits(page, edits)
        if self._has_small_index_pages:
            self._has_small_index_pages = False
            return self._merge_index_pages(page) or bool(edits)
        return bool(edits)

    def _rewrite_index_page(
        self, parent: IndexPage, child: int, level: int, dirty: list[Key]
    ) -> IndexEdit | None:
        page_id = parent.child_ids[child]
        page = self._tree.index_pages[page_id]
        if not self._rewrite(page, level, dirty):
            return None
        if not page.child_ids:
            del self._tree.index_pages[page_id]
            self._changes[self._page_prefix + encode_page_id(page_id)] = None
            return child, child + 1, [], []
        if len(page.child_ids) > self._limits.max_children:
            first_keys, page_ids = self._split_index_page(page, page_id)
            return child, child + 1, [parent.first_keys[child], *first_keys[1:]], page_ids
        self._write_index_page(page_id, page)
        if len(page.child_ids) * _SMALL_INDEX_RATIO < self._limits.max_children:
            self._has_small_index_pages = True
        return None

    def _split_index_page(
        self, page: IndexPage, page_id: int | None = None
    ) -> tuple[list[Key], list[int]]:
        """Write an index page as several; return their first keys and page ids.

        The first one keeps ``page_id``, which is None for the root page.
        """
        count = -(-len(page.child_ids) * 4 // (self._limits.max_children * 3))
        first_keys, page_ids = [], []
        for child_keys, child_ids in zip(
            split_evenly(page.first_keys, count), split_evenly(page.child_ids, count), strict=True
        ):
            new_id = self._next_page_id() if page_id is None else page_id
            page_id = None
            self._tree.index_pages[new_id] = IndexPage(child_keys, child_ids)
            self._write_index_page(new_id, self._tree.index_pages[new_id])
            first_keys.append(child_keys[0])
            page_ids.append(new_id)
        return first_keys, page_ids

    def _merge_index_pages(self, parent: IndexPage) -> bool:
        """Merge small index pages with the next one, if it is loaded; return whether any merged."""
        index_pages, has_merged = self._tree.index_pages, False
        max_children = self._limits.max_children
        for child in range(len(parent.child_ids) - 2, -1, -1):
            left_id, right_id = parent.child_ids[child : child + 2]
            left, right = index_pages.get(left_id), index_pages.get(right_id)
            if (
                left is None
                or right is None
                or (len(left.child_ids) + len(right.child_ids)) * 2 > max_children
            ):
                continue
            if min(len(left.child_ids), len(right.child_ids)) * _SMALL_INDEX_RATIO < max_children:
                # No search compares with a page's own first key, so only the parent's is valid.
                left.first_keys += [parent.first_keys[child + 1], *right.first_keys[1:]]
                left.child_ids += right.child_ids
                self._write_index_page(left_id, left)
                self._changes[self._page_prefix + encode_page_id(right_id)] = None
                del index_pages[right_id], parent.first_keys[child + 1], parent.child_ids[child + 1]
                has_merged = True
        return has_merged

    def _write_index_page(self, page_id: int, page: IndexPage) -> None:
        self._changes[self._page_prefix + encode_page_id(page_id)] = encode_index_page(page)

    def _rewrite_leaf_pages(self, parent: IndexPage, chosen: ChosenChildren) -> list[IndexEdit]:
        edits: list[IndexEdit] = []
        page_ids = parent.child_ids
        for merged in self._merge_leaf_pages(page_ids, chosen):
            new_pages = self._split(merged)
            if len(new_pages) == 1 and merged.end - merged.start == 1:
                self._write_new_page(
                    page_ids[merged.start], new_pages[0], is_unpacked=merged.is_unpacked
                )
            else:
                old_ids = page_ids[merged.start : merged.end]
                edits.append(
                    self._write_split(merged, new_pages, old_ids, parent.first_keys[merged.start])
                )
        return edits

    def _merge_leaf_pages(self, page_ids: list[int], chosen: ChosenChildren) -> list[_MergedPages]:
        """Write the leaf pages that neither split nor merge; return the others, merged."""
        leaf_pages, limits = self._tree.leaf_pages, self._limits
        all_merged: list[_MergedPages] = []
        last: _MergedPages | None = None
        for child, dirty in chosen:
            leaf = leaf_pages[page_ids[child]]
            keys, values = self._apply_dirty(leaf, dirty)
            if self._has_right_size(len(keys), len(dirty), leaf.size):
                self._write_leaf_page(page_ids[child], leaf, keys, values, len(dirty))
                continue
            merged = _MergedPages(child, leaf, keys, values, len(dirty))
            if (
                last is not None
                and last.end == child
                and should_merge(last.measures(), merged.measures(), limits)
            ):
                last.end += 1
                last.keys = last.keys + keys
                last.values = last.values + values
                last.dirty += merged.dirty
                last.size += merged.size
                last.is_unpacked &= merged.is_unpacked
            else:
                all_merged.append(merged)
                last = merged
        return all_merged

    def _has_right_size(self, entries: int, dirty: int, size: int) -> bool:
        """Return whether a leaf page can neither split nor merge with any neighbour."""
        limits = self._limits
        return (
            dirty * 2 < entries
            and entries > limits.min_entries
            and size * 2 < limits.max_bytes
            and split_count(entries, dirty, size, limits) == 1
        )

    def _write_leaf_page(
        self, page_id: int, leaf: LeafPage, keys: list[Key], values: list[Any], dirty: int
    ) -> None:
        blob = encode_leaf_page(keys, values)
        leaf.keys, leaf.values = keys, values
        leaf.size, leaf.last_used = len(blob), self._tree.flushes
        self._changes[self._page_prefix + encode_page_id(page_id)] = blob
        self._stats.bytes_changed += leaf.size * dirty // len(keys)

    def _apply_dirty(self, leaf: LeafPage, dirty: list[Key]) -> tuple[list[Key], list[Any]]:
        """Return the keys and values of a leaf page with the changes of its dirty keys."""
        data, keys, values = self._map.data, leaf.keys, leaf.values
        if len(dirty) * _IN_PLACE_RATIO < len(keys):
            for key in dirty:
                value, position = data[key], bisect_left(keys, key)
                if position < len(keys) and keys[position] == key:
                    if value is None:
                        del keys[position], values[position]
                    else:
                        values[position] = value
                elif value is not None:
                    keys.insert(position, key)
                    values.insert(position, value)
            return keys, values
        if leaf.is_unpacked and not self._map.inserted and not self._map.removed:
            return keys, list(map(data.__getitem__, keys))
        entries = dict(zip(keys, values, strict=True))
        count = len(entries)
        entries.update(zip(dirty, map(data.__getitem__, dirty), strict=True))
        if len(entries) > count:
            entries = dict(sorted(entries.items()))
        if self._map.removed:
            entries = {key: value for key, value in entries.items() if value is not None}
        return list(entries), list(entries.values())

    def _split(self, merged: _MergedPages) -> list[NewPage]:
        """Return the leaf pages to write for these entries: none, one, or several."""
        keys, values, limits = merged.keys, merged.values, self._limits
        if not keys:
            return []
        count = split_count(len(keys), merged.dirty, merged.size, limits)
        blob = b"" if count > 1 else encode_leaf_page(keys, values)
        if len(blob) > limits.max_bytes:
            count = split_count(len(keys), merged.dirty, len(blob), limits)
        new_pages: list[NewPage] = [(keys, values, blob)]
        if count > 1:
            slices = zip(split_evenly(keys, count), split_evenly(values, count), strict=True)
            new_pages = [
                (page_keys, page_values, encode_leaf_page(page_keys, page_values))
                for page_keys, page_values in slices
            ]
        size = sum(len(page[2]) for page in new_pages)
        self._stats.bytes_changed += size * merged.dirty // max(len(keys), merged.dirty)
        return new_pages

    def _write_split(
        self,
        merged: _MergedPages,
        new_pages: list[NewPage],
        old_ids: list[int],
        first_key: Key | None,
    ) -> IndexEdit:
        """Write the pages that replace merged ones; return the edit of their index page.

        The first ones get the ``old_ids``. ``first_key`` is that of the merged pages in their index
        page; None if it has none.
        """
        first_keys: list[Key] = []
        page_ids: list[int] = []
        for index, page in enumerate(new_pages):
            if index:
                first_keys.append(separator(new_pages[index - 1][0][-1], page[0][0]))
            else:
                first_keys.append(page[0][0] if first_key is None else first_key)
            page_ids.append(old_ids[index] if index < len(old_ids) else self._next_page_id())
            self._write_new_page(page_ids[index], page, is_unpacked=merged.is_unpacked)
        for page_id in old_ids[len(new_pages) :]:
            del self._tree.leaf_pages[page_id]
            self._changes[self._page_prefix + encode_page_id(page_id)] = None
        return merged.start, merged.end, first_keys, page_ids

    def _write_new_page(self, page_id: int, page: NewPage, *, is_unpacked: bool) -> None:
        keys, values, blob = page
        leaf = self._tree.leaf_pages[page_id] = LeafPage(
            keys, values, len(blob), self._tree.flushes
        )
        leaf.is_unpacked = is_unpacked
        self._changes[self._page_prefix + encode_page_id(page_id)] = blob

    def _next_page_id(self) -> int:
        page_id = self._tree.next_page_id
        self._tree.next_page_id += 1
        return page_id


def _apply_edits(page: IndexPage, edits: list[IndexEdit]) -> None:
    # Backwards, so that the positions of the other edits stay valid.
    for start, end, first_keys, child_ids in reversed(edits):
        page.first_keys[start:end] = first_keys
        page.child_ids[start:end] = child_ids
