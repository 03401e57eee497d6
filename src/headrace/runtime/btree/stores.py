"""The store backend of one task: a B+ tree for each store and segment, over one blob store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from headrace.runtime.btree.blobs import BlobStore
from headrace.runtime.btree.btree_map import BTreeMap
from headrace.runtime.btree.page_tree import Loading, run_all
from headrace.runtime.btree.page_writer import PageWriter
from headrace.runtime.btree.pages import (
    SEGMENTS_KEY,
    BTreeStats,
    PageLimits,
    decode_segments,
    encode_segments,
)
from headrace.runtime.gc_pause import without_collection
from headrace.state.specs import StoreBuilder
from headrace.state.store_types.base import Prefetch
from headrace.state.store_types.lookup import type_of

_PREFETCHED_SEGMENTS = 6
"""A prefetch loads pages of this many of the newest segments of a store."""


class BTreeSegments:
    """A `SegmentedMap` with a B+ tree for each segment."""

    __slots__ = ("_backend", "_maps", "_store", "existing")

    def __init__(self, store: str, numbers: Iterable[int], backend: BTreeStores) -> None:
        self._store = store
        self._backend = backend
        self._maps: dict[int, BTreeMap] = {
            number: backend.open_map(store, number) for number in numbers
        }
        self.existing = self._maps.get

    def segment(self, number: int, /) -> BTreeMap:
        segment = self._maps.get(number)
        if segment is None:
            segment = self._backend.open_map(self._store, number, is_new=True)
            self._maps[number] = segment
            self._backend.mark_segments_changed()
        return segment

    def numbers(self) -> list[int]:
        return sorted(self._maps)

    def drop_before(self, number: int, /) -> None:
        for expired in [existing for existing in self._maps if existing < number]:
            self._backend.drop(self._maps.pop(expired))

    def maps(self) -> Iterable[BTreeMap]:
        return self._maps.values()

    def newest(self) -> list[BTreeMap]:
        """Return the maps of the newest segments, which the next records probably use."""
        return [self._maps[number] for number in self.numbers()[-_PREFETCHED_SEGMENTS:]]


class BTreeStores:
    """A `StoreBackend` over a blob store.

    Loaded pages stay in memory until `evict` or `release`, and changes until `flush`. An instance
    can serve several batches if nothing else writes its blobs: set `blobs` for each batch. Do not
    use it after an error.

    The keys of its blobs begin with byte 1. The blob store may hold other data under other keys.
    """

    def __init__(self, blobs: BlobStore, *, limits: PageLimits | None = None) -> None:
        self.blobs = blobs
        """Holds the pages."""
        self._limits = limits or PageLimits()
        self._stats = BTreeStats()
        self._maps: dict[str, BTreeMap] = {}
        self._segments: dict[str, BTreeSegments] = {}
        self._stores: dict[str, StoreBuilder[Any]] = {}
        self._stored_segments: dict[str, list[int]] | None = None
        """The numbers of the segments of each store, as the blob lists them; None before it is
        loaded."""
        self._segments_changed = False
        self._dropped: list[BTreeMap] = []

    def map(self, store: StoreBuilder[Any], /) -> BTreeMap:
        store_map = self._maps.get(store.name)
        if store_map is None:
            store_map = self._maps[store.name] = self.open_map(store.name, None)
            self._stores[store.name] = store
        return store_map

    def segments(self, store: StoreBuilder[Any], /) -> BTreeSegments:
        segments = self._segments.get(store.name)
        if segments is None:
            numbers = self._load_segments().get(store.name, [])
            segments = self._segments[store.name] = BTreeSegments(store.name, numbers, self)
            self._stores[store.name] = store
        return segments

    def prefetch(self, keys: Iterable[bytes]) -> None:
        """Load the pages that these keys need in all open stores, in a few round trips.

        A prefetch is only a hint: a key without it causes a page fault.
        """
        sorted_keys = sorted(set(keys))
        if sorted_keys:
            with without_collection():
                self._run([*self._prefetching(sorted_keys)])

    def _prefetching(self, keys: list[bytes]) -> Iterator[Loading]:
        for name, store in self._stores.items():
            prefetch = type_of(store).prefetch(keys)
            if prefetch is not None:
                yield self._prefetching_entries(name, prefetch)
                continue
            if name in self._maps:
                yield self._maps[name].prefetching(keys)
            if name in self._segments:
                yield from (
                    btree_map.prefetching(keys) for btree_map in self._segments[name].newest()
                )

    def _prefetching_entries(self, store: str, prefetch: Prefetch) -> Loading:
        """Load the pages of the entries that the store type names, step by step."""
        found: list[Any] | None = None
        with suppress(StopIteration):
            while True:
                number, keys = prefetch.send(found)  # type: ignore[arg-type]  # None starts it
                if number is None:
                    btree_map = self._maps[store]
                else:
                    btree_map = self._segments[store].segment(number)
                yield from btree_map.prefetching_points(keys)
                found = [btree_map.data.get(key) for key in keys]

    def flush(self) -> None:
        """Write all changes in one round trip, after loading the pages of blind writes."""
        with without_collection():
            changes = self._changes()
        if changes:
            self._count_written(changes)
            self.blobs.apply(changes)

    def _changes(self) -> dict[bytes, bytes | None]:
        dirty_maps = [btree_map for btree_map in self._all_maps() if btree_map.dirty]
        loadings = [btree_map.resolving() for btree_map in dirty_maps]
        self._run([*loadings, *(segment.tree.loading_index() for segment in self._dropped)])
        changes: dict[bytes, bytes | None] = {}
        for segment in self._dropped:
            PageWriter(segment, changes, self._stats).remove()
        self._dropped.clear()
        for btree_map in dirty_maps:
            PageWriter(btree_map, changes, self._stats).write()
        if self._segments_changed:
            changes[SEGMENTS_KEY] = self._encode_segments()
            self._segments_changed = False
        return changes

    def entry_counts(self) -> dict[str, int]:
        """Return how many entries stores have, of those whose counter is loaded, by store.

        A flush loads it. Stores with segments are left out: most of theirs are not loaded.
        """
        counts = {name: btree_map.tree.entry_count for name, btree_map in self._maps.items()}
        return {name: count for name, count in counts.items() if count is not None}

    def evict(self, max_bytes: int) -> None:
        """Unload the least recently used leaf pages until about ``max_bytes`` remain.

        It unloads no page of a map that has dirty keys, so flush first.
        """
        clean_maps = [btree_map for btree_map in self._all_maps() if not btree_map.dirty]
        excess = sum(btree_map.memory_bytes() for btree_map in clean_maps) - max_bytes
        if excess <= 0:
            return
        ages = sorted(
            (leaf.last_used - btree_map.tree.flushes, index, page_id)
            for index, btree_map in enumerate(clean_maps)
            for page_id, leaf in btree_map.tree.leaf_pages.items()
        )
        for _, index, page_id in ages:
            if excess <= 0:
                break
            excess -= clean_maps[index].evict(page_id)

    def release(self) -> None:
        """Free the memory of all maps, which must not be used afterwards."""
        for btree_map in self._all_maps():
            btree_map.release()

    def stats(self) -> BTreeStats:
        return replace(self._stats)

    def open_map(self, store: str, segment: int | None, *, is_new: bool = False) -> BTreeMap:
        """Return the map of a store or segment, which loads its pages when it needs them."""
        return BTreeMap(store, segment, self._load, self._limits, is_new=is_new)

    def mark_segments_changed(self) -> None:
        """Write the list of segments at the next flush."""
        self._segments_changed = True

    def drop(self, segment: BTreeMap) -> None:
        """Delete the blobs of a segment at the next flush."""
        self._segments_changed = True
        self._dropped.append(segment)

    def _all_maps(self) -> list[BTreeMap]:
        maps = list(self._maps.values())
        for segments in self._segments.values():
            maps += segments.maps()
        return maps

    def _load_segments(self) -> dict[str, list[int]]:
        if self._stored_segments is None:
            [blob] = self._get_many([SEGMENTS_KEY])
            self._stored_segments = {} if blob is None else decode_segments(blob)
        return self._stored_segments

    def _encode_segments(self) -> bytes | None:
        # The list also has stores that this batch did not open.
        stored = self._load_segments()
        for name, segments in self._segments.items():
            stored[name] = segments.numbers()
        self._stored_segments = {name: numbers for name, numbers in stored.items() if numbers}
        return encode_segments(self._stored_segments) if self._stored_segments else None

    def _load(self, loading: Loading) -> None:
        before = self._stats.read_round_trips
        self._run([loading])
        self._stats.faults += self._stats.read_round_trips > before

    def _run(self, loadings: Iterable[Loading]) -> None:
        run_all(loadings, self._get_many)

    def _get_many(self, keys: list[bytes]) -> list[bytes | None]:
        blobs = self.blobs.get_many(keys)
        self._stats.read_round_trips += 1
        self._stats.blobs_read += len(keys)
        self._stats.bytes_read += sum(map(len, filter(None, blobs)))
        return blobs

    def _count_written(self, changes: dict[bytes, bytes | None]) -> None:
        written = [blob for blob in changes.values() if blob is not None]
        self._stats.write_round_trips += 1
        self._stats.blobs_written += len(written)
        self._stats.bytes_written += sum(map(len, written))
