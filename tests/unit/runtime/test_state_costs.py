"""The reads and writes of a batch depend on its keys, not on the size or age of a store."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from headrace.errors import StateStoreError
from headrace.runtime.btree.blobs import MemoryBlobs
from headrace.runtime.btree.pages import SEGMENTS_KEY, BTreeStats
from headrace.runtime.btree.stores import BTreeStores
from headrace.serdes import Serdes
from headrace.state.lru_and_ttl import TtlMap
from headrace.state.specs import Stores

STORE = Stores.key_value("store", Serdes.bytes(), Serdes.bytes())
OTHER = Stores.key_value("other", Serdes.bytes(), Serdes.bytes())
VALUE = (b"12345678", 1_700_000_000_000)


def key_of(number: int) -> bytes:
    return b"%012d" % (number * 2_654_435_761 % 10**12)


def filled(entries: int) -> MemoryBlobs:
    blobs = MemoryBlobs()
    backend = BTreeStores(blobs)
    for number in range(entries):
        backend.map(STORE).put(key_of(number), VALUE)
    backend.flush()
    return blobs


def update(blobs: MemoryBlobs, keys: Iterable[bytes]) -> BTreeStats:
    """Update keys in one batch; return its reads and writes."""
    backend = BTreeStores(blobs)
    entries = backend.map(STORE)
    keys = list(keys)
    backend.prefetch(keys)
    for key in keys:
        value, timestamp = entries.get(key)
        entries.put(key, (value, timestamp + 1))
    backend.flush()
    return backend.stats()


def random_keys(chance: random.Random, entries: int, count: int) -> list[bytes]:
    return [key_of(number) for number in chance.sample(range(entries), count)]


def test_a_batch_costs_about_the_same_in_a_store_with_30_times_the_entries() -> None:
    costs = {}
    for entries in (5_000, 150_000):
        chance, blobs = random.Random(1), filled(entries)
        for _ in range(20):
            cost = update(blobs, random_keys(chance, entries, 300))
        costs[entries] = cost

    for cost in costs.values():
        assert cost.read_round_trips <= 3
        assert cost.write_round_trips == 1
        assert cost.faults == 0
        assert cost.blobs_read <= 2 * 300
    assert costs[150_000].blobs_written <= 4 * 300
    assert costs[150_000].bytes_written <= 8 * costs[5_000].bytes_written


def test_leaf_pages_split_where_few_of_their_entries_are_dirty() -> None:
    chance, blobs = random.Random(2), filled(20_000)

    first, *_, last = [update(blobs, random_keys(chance, 20_000, 100)) for _ in range(40)]

    assert last.bytes_read < first.bytes_read / 3
    assert last.bytes_written / last.bytes_changed < 45


def test_leaf_pages_merge_where_all_of_their_entries_are_dirty() -> None:
    chance, blobs = random.Random(3), filled(20_000)
    for _ in range(50):
        update(blobs, random_keys(chance, 20_000, 200))
    blobs_before = len(blobs.blobs)

    for _ in range(3):
        cost = update(blobs, [key_of(number) for number in range(20_000)])

    assert len(blobs.blobs) < blobs_before / 4
    assert cost.bytes_written / cost.bytes_changed < 1.1


def test_leaf_pages_split_where_few_of_their_entries_are_read() -> None:
    chance, blobs = random.Random(4), filled(40_000)
    bytes_read = []
    for _ in range(40):
        backend = BTreeStores(blobs)
        backend.map(STORE)
        backend.prefetch(random_keys(chance, 40_000, 100))
        backend.flush()
        bytes_read.append(backend.stats().bytes_read)

    assert bytes_read[-1] < bytes_read[0] / 2


def test_loaded_pages_are_not_read_again() -> None:
    blobs = filled(20_000)
    backend = BTreeStores(blobs)
    keys = [key_of(number) for number in range(0, 20_000, 7)]
    for _ in range(3):
        before = blobs.blobs_read
        backend.prefetch(keys)
        for key in keys:
            backend.map(STORE).put(key, (b"", len(backend.map(STORE).get(key))))
        backend.flush()

    assert blobs.blobs_read == before


def test_a_missing_key_causes_one_page_fault() -> None:
    blobs = filled(40_000)
    entries = BTreeStores(blobs).map(STORE)
    assert entries.get(b"none") is None
    before = blobs.reads

    assert entries.get(b"none") is None
    assert entries.pop(b"none") is None
    assert blobs.reads == before


def test_a_small_map_is_one_blob() -> None:
    blobs = filled(100)
    before = blobs.blobs_read
    entries = BTreeStores(blobs).map(STORE)

    assert len(blobs.blobs) == 1
    assert len(list(entries.scan())) == len(entries) == 100
    assert blobs.blobs_read - before == 1


def test_len_reads_only_the_root_page_and_the_counter() -> None:
    blobs = filled(40_000)
    before = blobs.blobs_read

    assert len(BTreeStores(blobs).map(STORE)) == 40_000
    assert blobs.blobs_read - before == 2


def test_an_empty_map_has_no_blobs() -> None:
    blobs = filled(5_000)
    backend = BTreeStores(blobs)
    for number in range(5_000):
        backend.map(STORE).pop(key_of(number))
    backend.flush()

    assert blobs.blobs == {}


def test_dropped_segments_have_no_blobs() -> None:
    blobs = MemoryBlobs()
    sizes = []
    for number in range(60):
        backend = BTreeStores(blobs)
        segments = backend.segments(STORE)
        for index in range(1_500):
            segments.segment(number).put((key_of(index), number), b"x" * 20)
        segments.drop_before(number - 2)
        backend.flush()
        assert segments.numbers() == list(range(max(0, number - 2), number + 1))
        sizes.append(len(blobs.blobs))
    backend = BTreeStores(blobs)
    backend.segments(STORE).drop_before(1000)
    backend.flush()

    assert max(sizes[3:]) == min(sizes[3:])
    assert blobs.blobs == {}


def test_a_prefetch_reads_all_stores_in_the_same_round_trips() -> None:
    blobs = MemoryBlobs()
    backend = BTreeStores(blobs)
    stores = [Stores.key_value(f"store-{number}", bytes, bytes) for number in range(5)]
    keys = [key_of(number) for number in range(30_000)]
    for store in stores:
        for key in keys:
            backend.map(store).put(key, VALUE)
            if store.name == "store-0":
                backend.segments(store).segment(7).put((key, 7_000), b"value")
    backend.flush()
    backend = BTreeStores(blobs)
    maps: list[Any] = [backend.map(store) for store in stores]
    segment: Any = backend.segments(stores[0]).existing(7)
    batch_keys = keys[::1000]

    backend.prefetch(batch_keys)

    before = blobs.reads
    assert all(store_map.get(key) == VALUE for store_map in maps for key in batch_keys)
    assert all(list(segment.scan((key, 0), (key, 10_000))) for key in batch_keys)
    assert blobs.reads == before
    assert backend.stats().read_round_trips <= 4


def test_a_prefetch_of_a_ttl_map_reads_the_order_of_expiry_too() -> None:
    store = Stores.key_value("store", bytes, bytes, ttl=1_000_000)
    blobs = MemoryBlobs()
    backend = BTreeStores(blobs)
    entries = TtlMap(backend.map(store), 1_000_000, lambda: 5)
    for number in range(30_000):
        entries.put(key_of(number), b"value")
    backend.flush()
    backend = BTreeStores(blobs)
    entries = TtlMap(backend.map(store), 1_000_000, lambda: 6)
    keys = [key_of(number) for number in range(0, 30_000, 1000)]

    backend.prefetch(keys)
    before = backend.stats().faults
    for key in keys:
        entries.put(key, b"other")

    assert backend.stats().faults - before <= 1


def test_evict_frees_memory_and_loses_no_entries() -> None:
    backend = BTreeStores(filled(50_000))
    entries = backend.map(STORE)
    assert sum(1 for _ in entries.scan()) == 50_000

    backend.evict(1_000_000)

    assert entries.memory_bytes() <= 1_000_000
    assert sum(1 for _ in entries.scan()) == 50_000


def test_evict_keeps_changes() -> None:
    backend = BTreeStores(MemoryBlobs())
    backend.map(STORE).put(b"key", b"value")
    backend.evict(0)
    backend.flush()

    assert BTreeStores(backend.blobs).map(STORE).get(b"key") == b"value"


def test_stores_and_segments_have_separate_entries() -> None:
    backend = BTreeStores(MemoryBlobs())
    backend.map(STORE).put(b"key", b"one")
    backend.map(OTHER).put(b"key", b"other")
    backend.segments(STORE).segment(0).put(b"key", b"zero")
    backend.segments(STORE).segment(-1).put(b"key", b"minus")
    backend.flush()

    backend = BTreeStores(backend.blobs)
    assert backend.map(STORE).get(b"key") == b"one"
    assert backend.map(OTHER).get(b"key") == b"other"
    assert backend.segments(STORE).numbers() == [-1, 0]
    assert [backend.segments(STORE).segment(n).get(b"key") for n in (-1, 0)] == [b"minus", b"zero"]
    assert backend.segments(OTHER).existing(0) is None


@pytest.mark.parametrize(("damage", "reason"), [(None, "is missing"), (b"\xc1", "cannot be read")])
def test_a_damaged_page_raises_an_error_with_the_store(damage: bytes | None, reason: str) -> None:
    blobs = filled(5_000)
    leaf_page = max(blobs.blobs, key=lambda key: len(blobs.blobs[key]))
    blobs.apply({leaf_page: damage})

    with pytest.raises(StateStoreError, match=f"page of store 'store' {reason}"):
        list(BTreeStores(blobs).map(STORE).scan())


def test_stores_in_another_format_raise_an_error() -> None:
    blobs = MemoryBlobs()
    blobs.apply({SEGMENTS_KEY: msgspec.msgpack.encode((1, {"store": [0]}))})

    with pytest.raises(StateStoreError, match="in format 1, but this version of Headrace reads"):
        BTreeStores(blobs).segments(STORE)
