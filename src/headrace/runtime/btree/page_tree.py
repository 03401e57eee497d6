"""The loaded pages of a B+ tree, the search in them, and the loading of more pages."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterable
from itertools import chain
from typing import Any, TypeAlias

from headrace.runtime.btree.pages import (
    COUNTER,
    INLINE,
    PAGE,
    ROOT,
    ROOT_PAGE,
    Choose,
    IndexPage,
    Key,
    LeafPage,
    PageLimits,
    choose_all,
    choose_prefixes,
    decode_counter,
    decode_index_page,
    decode_leaf_pages,
    decode_root,
    encode_page_id,
    tree_prefix,
)

Loading: TypeAlias = Generator[list[bytes], list[bytes | None], None]
"""Loads pages: yields the keys of blobs, and is sent the blobs. `run_all` runs it."""

PageSearches: TypeAlias = list[tuple[int, Any]]
"""Page ids, each with the search to continue in that page."""


class PageTree:
    """The loaded pages of one map.

    ``segment`` is its number, if the store has segments. ``limits`` bounds the pages that a fault
    loads. ``on_load`` is called with each list of leaf pages that was loaded.
    """

    def __init__(
        self,
        store: str,
        segment: int | None,
        limits: PageLimits,
        on_load: Callable[[list[LeafPage]], None],
    ) -> None:
        self.store = store
        self.blob_prefix = tree_prefix(store, segment)
        self.limits = limits
        self._on_load = on_load
        self.flushes = 0
        """The number of flushes of the map."""
        self.unload()

    def unload(self) -> None:
        self.level: int | None = None
        """The levels of index pages between the root page and the leaf pages; `INLINE` if the root
        page holds the entries; None if the root page is not loaded."""
        self.root = IndexPage([], [])
        self.index_pages: dict[int, IndexPage] = {}
        self.leaf_pages: dict[int, LeafPage] = {}
        self.is_complete = False
        """Whether all leaf pages are loaded."""
        self.entry_count: int | None = None
        """The number of entries in all leaf pages; None if the counter is not loaded."""
        self.next_page_id = 1

    def set_root(self, blob: bytes | None) -> None:
        """Set the root page from its blob; None means that the map has no entries."""
        keys: list[Key] = []
        values_or_ids: list[Any] = []
        self.level = INLINE
        if blob is not None:
            self.level, keys, values_or_ids = decode_root(blob, self.store)
        if self.level == INLINE:
            self.entry_count = len(keys)
            self.is_complete = True
            leaf = self.leaf_pages[ROOT_PAGE] = LeafPage(
                keys, values_or_ids, len(blob or b""), self.flushes
            )
            self._on_load([leaf])
        else:
            self.root = IndexPage(keys, values_or_ids)

    def is_small(self) -> bool:
        """Return whether a page fault should load the whole map."""
        return self.level == INLINE or (
            self.level == 0 and len(self.root.child_ids) <= self.limits.full_load_pages
        )

    def loading_root(self) -> Loading:
        if self.level is None:
            [blob] = yield [self.blob_prefix + ROOT]
            # Another loading may have loaded it in the same round trip.
            if self.level is None:
                self.set_root(blob)

    def loading_counter(self) -> Loading:
        """Load the number of entries and the next page id."""
        yield from self.loading_root()
        if self.entry_count is None:
            [blob] = yield [self.blob_prefix + COUNTER]
            self.entry_count, self.next_page_id = decode_counter(blob, self.store)

    def loading(self, choose: Choose, search: Any) -> Loading:
        """Load the leaf pages that a search leads to, level by level.

        ``choose`` returns children of an index page; its second argument is ``search``.
        """
        yield from self.loading_root()
        if not self.is_complete:
            searches = yield from self.descending(choose, search)
            yield from self.loading_leaf_pages([page_id for page_id, _ in searches])

    def descending(
        self, choose: Choose, search: Any
    ) -> Generator[list[bytes], list[bytes | None], PageSearches]:
        """Load the index pages that a search leads to; return the ids of the leaf pages."""
        assert self.level is not None, "the root page is loaded"
        searches: PageSearches = []
        pages: list[tuple[IndexPage, Any]] = [(self.root, search)]
        for level in range(self.level, -1, -1):
            searches = [
                (page.child_ids[child], child_search)
                for page, search in pages
                for child, child_search in choose(page.first_keys, search)
            ]
            if level:
                yield from self._loading_index_pages([page_id for page_id, _ in searches])
                pages = [(self.index_pages[page_id], search) for page_id, search in searches]
        return searches

    def loading_leaf_pages(self, page_ids: list[int]) -> Loading:
        """Load those of the given leaf pages that are not loaded yet."""
        leaf_pages = self.leaf_pages
        missing = [page_id for page_id in page_ids if page_id not in leaf_pages]
        if missing:
            page_prefix, store = self.blob_prefix + PAGE, self.store
            blob_keys = [page_prefix + encode_page_id(page_id) for page_id in missing]
            # Read the counter in the same round trip: the flush needs it.
            needs_counter = self.entry_count is None
            blobs = yield [*blob_keys, self.blob_prefix + COUNTER] if needs_counter else blob_keys
            if needs_counter:
                self.entry_count, self.next_page_id = decode_counter(blobs.pop(), store)
            decoded, flushes, loaded = decode_leaf_pages(blobs, store), self.flushes, []
            for page_id, blob, (keys, values) in zip(missing, blobs, decoded, strict=True):
                if page_id not in leaf_pages:
                    leaf = leaf_pages[page_id] = LeafPage(keys, values, len(blob or b""), flushes)
                    loaded.append(leaf)
            self._on_load(loaded)
        self.is_complete = self.level == 0 and len(leaf_pages) == len(self.root.child_ids)

    def loading_all(self) -> Loading:
        yield from self.loading(choose_all, None)

    def loading_index(self) -> Loading:
        """Load all index pages, but no leaf pages."""
        yield from self.loading_root()
        assert self.level is not None, "the root page is loaded"
        pages = [self.root]
        for _ in range(self.level):
            page_ids = list(chain.from_iterable(page.child_ids for page in pages))
            yield from self._loading_index_pages(page_ids)
            pages = [self.index_pages[page_id] for page_id in page_ids]

    def _loading_index_pages(self, page_ids: list[int]) -> Loading:
        missing = [page_id for page_id in page_ids if page_id not in self.index_pages]
        if missing:
            page_prefix = self.blob_prefix + PAGE
            blobs = yield [page_prefix + encode_page_id(page_id) for page_id in missing]
            for page_id, blob in zip(missing, blobs, strict=True):
                if page_id not in self.index_pages:
                    self.index_pages[page_id] = decode_index_page(blob, self.store)

    def leaf_page_of(self, key: Key) -> LeafPage | None:
        """Return the leaf page that a key belongs to, if it is loaded."""
        page = self.root
        if self.level == 0:
            return self.leaf_pages.get(page.child_ids[bisect_right(page.first_keys, key, 1) - 1])
        if self.level is None:
            return None
        if self.level == INLINE:
            return self.leaf_pages[ROOT_PAGE]
        for _ in range(self.level):
            child = self.index_pages.get(page.child_ids[bisect_right(page.first_keys, key, 1) - 1])
            if child is None:
                return None
            page = child
        return self.leaf_pages.get(page.child_ids[bisect_right(page.first_keys, key, 1) - 1])

    def next_leaf_ids(self, key: Key, count: int) -> list[int]:
        """Return the ids of up to ``count`` leaf pages after the page of a key.

        The index pages over the key must be loaded.
        """
        page = self.root
        for _ in range(self.level or 0):
            page = self.index_pages[page.child_ids[bisect_right(page.first_keys, key, 1) - 1]]
        child = bisect_right(page.first_keys, key, 1)
        return page.child_ids[child : child + count]

    def end_of_leaf_page(self, key: Key) -> Key | None:
        """Return the first key of the leaf page after the page of a key; None for the last page.

        The index pages over the key must be loaded.
        """
        if self.level == INLINE:
            return None
        upper, page = None, self.root
        for level in range(self.level or 0, -1, -1):
            child = bisect_right(page.first_keys, key, 1) - 1
            if child + 1 < len(page.first_keys):
                upper = page.first_keys[child + 1]
            if level:
                page = self.index_pages[page.child_ids[child]]
        return upper

    def start_of_leaf_page(self, end: Key) -> Key | None:
        """Return the first key of the leaf page of the keys just before ``end``.

        None for the first page. The index pages over these keys must be loaded.
        """
        if self.level == INLINE:
            return None
        lower, page = None, self.root
        for level in range(self.level or 0, -1, -1):
            child = bisect_left(page.first_keys, end, 1) - 1
            if child:
                lower = page.first_keys[child]
            if level:
                page = self.index_pages[page.child_ids[child]]
        return lower

    def leaf_pages_with(self, prefix: bytes) -> list[LeafPage] | None:
        """Return the leaf pages of the tuples that begin with a prefix, if all are loaded."""
        if self.level is None:
            return None
        if self.level == INLINE:
            return [self.leaf_pages[ROOT_PAGE]]
        pages = [self.root]
        for level in range(self.level, -1, -1):
            page_ids = [
                page.child_ids[child]
                for page in pages
                for child, _ in choose_prefixes(page.first_keys, [prefix])
            ]
            loaded: dict[int, Any] = self.index_pages if level else self.leaf_pages
            if any(page_id not in loaded for page_id in page_ids):
                return None
            pages = [loaded[page_id] for page_id in page_ids]
        return pages  # type: ignore[return-value]  # the last level has leaf pages


def run_all(
    loadings: Iterable[Loading], get_many: Callable[[list[bytes]], list[bytes | None]]
) -> None:
    """Run loadings side by side; each round trip gets the blobs that all of them wait for."""
    waiting: list[tuple[Loading, list[bytes]]] = []
    for loading in loadings:
        blob_keys = next(loading, None)
        if blob_keys is not None:
            waiting.append((loading, blob_keys))
    while waiting:
        blobs = get_many([key for _, blob_keys in waiting for key in blob_keys])
        start, still_waiting = 0, []
        for loading, blob_keys in waiting:
            reply = blobs[start : start + len(blob_keys)]
            start += len(blob_keys)
            try:
                still_waiting.append((loading, loading.send(reply)))
            except StopIteration:
                continue
        waiting = still_waiting
