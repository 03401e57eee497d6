"""The stores of one task over blobs: what a batch touches is fetched and written in bursts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from headrace.runtime.btree.blobs import BlobState
from headrace.runtime.btree.btree_map import LeafMap
from headrace.runtime.btree.page_tree import Loading, run_all
from headrace.runtime.btree.page_writer import LeafWriter
from headrace.runtime.btree.pages import (
    SEGMENTS_KEY,
    LeafLimits,
    StateStats,
    decode_segments,
    encode_segments,
)
from headrace.runtime.gc_pause import without_collection
from headrace.state.specs import StoreBuilder

_NEWEST = 6
"""How many of the newest segments of a store a batch is taken to use."""
_BY_TIME, _BY_KEY = 0, 1
"""The segments of a suppress buffer: see `SuppressBuffer`."""
_ENTRIES, _ORDER = 0, 1
"""How keys of a map that forgets begin: see `headrace.state.lru_and_ttl`."""


class LeafSegments:
    """A `SegmentedMap` over leaves."""

    __slots__ = ("_maps", "_state", "_store", "existing")

    def __init__(self, store: str, numbers: Iterable[int], state: OrderedState) -> None:
        self._store = store
        self._state = state
        self._maps: dict[int, LeafMap] = {
            number: state.leaf_map(store, number) for number in numbers
        }
        self.existing = self._maps.get

    def segment(self, number: int, /) -> LeafMap:
        found = self._maps.get(number)
        if found is None:
            found = self._state.leaf_map(self._store, number, is_new=True)
            self._maps[number] = found
            self._state.note_segments()
        return found

    def numbers(self) -> list[int]:
        return sorted(self._maps)

    def drop_before(self, number: int, /) -> None:
        for old in [each for each in self._maps if each < number]:
            self._state.drop(self._maps.pop(old))

    def maps(self) -> Iterable[LeafMap]:
        """Return the maps of the segments there are."""
        return self._maps.values()

    def newest(self) -> list[LeafMap]:
        """Return the maps of the segments that the next records are likely to be in."""
        return [self._maps[number] for number in self.numbers()[-_NEWEST:]]


class OrderedState:
    """A `StoreData` over blobs.

    It holds what was loaded until it is told otherwise, so it can serve several batches, if nothing
    else writes the blobs: set `blobs` to those of the next batch. Changes are in memory until
    `flush`. After an error it must not be used any more.

    Its blobs have keys that begin with a byte of value 1; others are free for other uses.

    Args:
        blobs: Where the entries are.
        limits: How large leaves become.
    """

    def __init__(self, blobs: BlobState, *, limits: LeafLimits | None = None) -> None:
        self.blobs = blobs
        """Where the entries are."""
        self._limits = limits or LeafLimits()
        self._stats = StateStats()
        self._maps: dict[str, LeafMap] = {}
        self._segments: dict[str, LeafSegments] = {}
        self._stores: dict[str, StoreBuilder[Any]] = {}
        self._listed: dict[str, list[int]] | None = None
        self._list_changed = False
        self._dropped: list[LeafMap] = []

    def map(self, store: StoreBuilder[Any], /) -> LeafMap:
        found = self._maps.get(store.name)
        if found is None:
            found = self._maps[store.name] = self.leaf_map(store.name, None)
            self._stores[store.name] = store
        return found

    def segments(self, store: StoreBuilder[Any], /) -> LeafSegments:
        found = self._segments.get(store.name)
        if found is None:
            numbers = self._all_segments().get(store.name, [])
            found = self._segments[store.name] = LeafSegments(store.name, numbers, self)
            self._stores[store.name] = store
        return found

    def prefetch(self, keys: Iterable[bytes]) -> None:
        """Load what the stores have of these keys, in a few bursts. It is a hint.

        Args:
            keys: The keys of the records to come, as bytes.
        """
        wanted = sorted(set(keys))
        if wanted:
            with without_collection():
                self._run([*self._prefetching(wanted)])

    def _prefetching(self, keys: list[bytes]) -> Iterator[Loading]:
        for name, entries in self._maps.items():
            store = self._stores[name]
            if store.kind == "lru_map" or store.ttl_ms is not None:
                yield _prefetching_bounded(entries, keys)
            else:
                yield entries.prefetching(keys)
        for name, segments in self._segments.items():
            if self._stores[name].kind == "suppress_buffer":
                by_time, by_key = segments.segment(_BY_TIME), segments.segment(_BY_KEY)
                yield _prefetching_suppressed(by_time, by_key, keys)
            else:
                yield from (each.prefetching(keys) for each in segments.newest())

    def flush(self) -> None:
        """Write what was changed: one burst, after what it needs to know was read."""
        with without_collection():
            changes = self._changes()
        if changes:
            self._count_written(changes)
            self.blobs.apply(changes)

    def _changes(self) -> dict[bytes, bytes | None]:
        changed = [each for each in self._all_maps() if each.touched]
        loadings = [each.resolving() for each in changed]
        self._run([*loadings, *(each.tree.indexing() for each in self._dropped)])
        changes: dict[bytes, bytes | None] = {}
        for each in self._dropped:
            LeafWriter(each, changes, self._stats).remove()
        self._dropped.clear()
        for each in changed:
            LeafWriter(each, changes, self._stats).write()
        if self._list_changed:
            changes[SEGMENTS_KEY] = self._segment_list()
            self._list_changed = False
        return changes

    def evict(self, max_bytes: int) -> None:
        """Forget leaves that were not used for longest, until the rest takes about ``max_bytes``.

        What was changed must be flushed before.
        """
        maps = [each for each in self._all_maps() if not each.touched]
        excess = sum(each.weight() for each in maps) - max_bytes
        if excess <= 0:
            return
        ages = sorted(
            (leaf.used - each.tree.tick, index, id_)
            for index, each in enumerate(maps)
            for id_, leaf in each.tree.leaves.items()
        )
        for _, index, id_ in ages:
            if excess <= 0:
                break
            excess -= maps[index].evict(id_)

    def release(self) -> None:
        """Forget everything: it is not used any more."""
        for each in self._all_maps():
            each.release()

    def stats(self) -> StateStats:
        """Return what was read and written so far."""
        return replace(self._stats)

    def leaf_map(self, store: str, segment: int | None, *, is_new: bool = False) -> LeafMap:
        """Return a map whose blobs are read when they are needed."""
        return LeafMap(store, segment, self._load, self._limits, is_new=is_new)

    def note_segments(self) -> None:
        """Take note that the list of segments changed."""
        self._list_changed = True

    def drop(self, segment: LeafMap) -> None:
        """Remove a segment at the next flush."""
        self._list_changed = True
        self._dropped.append(segment)

    def _all_maps(self) -> list[LeafMap]:
        maps = list(self._maps.values())
        for segments in self._segments.values():
            maps += segments.maps()
        return maps

    def _all_segments(self) -> dict[str, list[int]]:
        if self._listed is None:
            [blob] = self._get_many([SEGMENTS_KEY])
            self._listed = {} if blob is None else decode_segments(blob)
        return self._listed

    def _segment_list(self) -> bytes | None:
        # Stores that were not opened this time may be opened the next.
        listed = self._all_segments()
        for name, segments in self._segments.items():
            listed[name] = segments.numbers()
        self._listed = {name: numbers for name, numbers in listed.items() if numbers}
        return encode_segments(self._listed) if self._listed else None

    def _load(self, loading: Loading) -> None:
        before = self._stats.bursts_read
        self._run([loading])
        self._stats.faults += self._stats.bursts_read > before

    def _run(self, loadings: Iterable[Loading]) -> None:
        run_all(loadings, self._get_many)

    def _get_many(self, keys: list[bytes]) -> list[bytes | None]:
        found = self.blobs.get_many(keys)
        self._stats.bursts_read += 1
        self._stats.blobs_read += len(keys)
        self._stats.bytes_read += sum(map(len, filter(None, found)))
        return found

    def _count_written(self, changes: dict[bytes, bytes | None]) -> None:
        written = [blob for blob in changes.values() if blob is not None]
        self._stats.bursts_written += 1
        self._stats.blobs_written += len(written)
        self._stats.blobs_removed += len(changes) - len(written)
        self._stats.bytes_written += sum(map(len, written))


def _prefetching_bounded(entries: LeafMap, keys: list[bytes]) -> Loading:
    """Load entries and where they stand in the order in which they are forgotten."""
    yield from entries.prefetching_points([(_ENTRIES, key) for key in keys])
    found = ((key, entries.data.get((_ENTRIES, key))) for key in keys)
    places = [(_ORDER, stored[0], key) for key, stored in found if stored is not None]
    yield from entries.prefetching_points(sorted(places))


def _prefetching_suppressed(by_time: LeafMap, by_key: LeafMap, keys: list[bytes]) -> Loading:
    """Load which keys wait, and what waits."""
    yield from by_key.prefetching_points(keys)
    found = ((key, by_key.data.get(key)) for key in keys)
    places = [(stored[0], key) for key, stored in found if stored is not None]
    yield from by_time.prefetching_points(sorted(places))
