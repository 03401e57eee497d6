"""What a batch reads and writes follows the keys it touches, not the size or age of a store."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from headrace.errors import StateStoreError
from headrace.runtime.btree.blobs import MemoryBlobs
from headrace.runtime.btree.pages import StateStats
from headrace.runtime.btree.stores import BTreeStores
from headrace.serdes import Serdes
from headrace.state.lru_and_ttl import Expiring
from headrace.state.specs import Stores

STORE = Stores.key_value("store", Serdes.bytes(), Serdes.bytes())
OTHER = Stores.key_value("other", Serdes.bytes(), Serdes.bytes())
VALUE = (b"12345678", 1_700_000_000_000)


def key_of(number: int) -> bytes:
    return b"%012d" % (number * 2_654_435_761 % 10**12)


def filled(entries: int) -> MemoryBlobs:
    blobs = MemoryBlobs()
    state = BTreeStores(blobs)
    for number in range(entries):
        state.map(STORE).put(key_of(number), VALUE)
    state.flush()
    return blobs


def update(blobs: MemoryBlobs, keys: Iterable[bytes]) -> StateStats:
    """Update keys in a batch of their own; return what that took."""
    state = BTreeStores(blobs)
    entries = state.map(STORE)
    keys = list(keys)
    state.prefetch(keys)
    for key in keys:
        value, timestamp = entries.get(key)
        entries.put(key, (value, timestamp + 1))
    state.flush()
    return state.stats()


def random_keys(chance: random.Random, entries: int, count: int) -> list[bytes]:
    return [key_of(number) for number in chance.sample(range(entries), count)]


def test_a_batch_costs_about_the_same_in_a_store_thirty_times_as_large() -> None:
    costs = {}
    for entries in (5_000, 150_000):
        chance, blobs = random.Random(1), filled(entries)
        for _ in range(20):
            cost = update(blobs, random_keys(chance, entries, 300))
        costs[entries] = cost

    for cost in costs.values():
        assert cost.bursts_read <= 3
        assert cost.bursts_written == 1
        assert cost.faults == 0
        assert cost.blobs_read <= 2 * 300
    assert costs[150_000].blobs_written <= 4 * 300
    assert costs[150_000].bytes_written <= 8 * costs[5_000].bytes_written


def test_leaves_become_small_where_few_of_their_entries_are_touched() -> None:
    chance, blobs = random.Random(2), filled(20_000)

    first, *_, last = [update(blobs, random_keys(chance, 20_000, 100)) for _ in range(40)]

    assert last.bytes_read < first.bytes_read / 3
    assert last.bytes_written / last.bytes_changed < 45


def test_leaves_become_large_where_all_of_their_entries_are_touched() -> None:
    chance, blobs = random.Random(3), filled(20_000)
    for _ in range(50):
        update(blobs, random_keys(chance, 20_000, 200))
    small = len(blobs.blobs)

    for _ in range(3):
        cost = update(blobs, [key_of(number) for number in range(20_000)])

    assert len(blobs.blobs) < small / 4
    assert cost.bytes_written / cost.bytes_changed < 1.1


def test_leaves_that_are_read_for_few_entries_are_split_too() -> None:
    chance, blobs = random.Random(4), filled(40_000)
    read = []
    for _ in range(40):
        state = BTreeStores(blobs)
        state.map(STORE)
        state.prefetch(random_keys(chance, 40_000, 100))
        state.flush()
        read.append(state.stats().bytes_read)

    assert read[-1] < read[0] / 2


def test_what_is_kept_is_not_read_again() -> None:
    blobs = filled(20_000)
    state = BTreeStores(blobs)
    keys = [key_of(number) for number in range(0, 20_000, 7)]
    for _ in range(3):
        before = blobs.blobs_read
        state.prefetch(keys)
        for key in keys:
            state.map(STORE).put(key, (b"", len(state.map(STORE).get(key))))
        state.flush()

    assert blobs.blobs_read == before


def test_a_key_that_is_not_there_is_looked_for_once() -> None:
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


def test_the_number_of_entries_is_known_without_reading_them() -> None:
    blobs = filled(40_000)
    before = blobs.blobs_read

    assert len(BTreeStores(blobs).map(STORE)) == 40_000
    assert blobs.blobs_read - before == 2


def test_an_empty_map_leaves_nothing() -> None:
    blobs = filled(5_000)
    state = BTreeStores(blobs)
    for number in range(5_000):
        state.map(STORE).pop(key_of(number))
    state.flush()

    assert blobs.blobs == {}


def test_segments_that_were_dropped_leave_nothing() -> None:
    blobs = MemoryBlobs()
    sizes = []
    for number in range(60):
        state = BTreeStores(blobs)
        segments = state.segments(STORE)
        for index in range(1_500):
            segments.segment(number).put((key_of(index), number), b"x" * 20)
        segments.drop_before(number - 2)
        state.flush()
        assert segments.numbers() == list(range(max(0, number - 2), number + 1))
        sizes.append(len(blobs.blobs))
    state = BTreeStores(blobs)
    state.segments(STORE).drop_before(1000)
    state.flush()

    assert max(sizes[3:]) == min(sizes[3:])
    assert blobs.blobs == {}


def test_all_stores_of_a_batch_are_read_together() -> None:
    blobs = MemoryBlobs()
    state = BTreeStores(blobs)
    stores = [Stores.key_value(f"store-{number}", bytes, bytes) for number in range(5)]
    keys = [key_of(number) for number in range(30_000)]
    for store in stores:
        for key in keys:
            state.map(store).put(key, VALUE)
            if store.name == "store-0":
                state.segments(store).segment(7).put((key, 7_000), b"value")
    state.flush()
    state = BTreeStores(blobs)
    maps: list[Any] = [state.map(store) for store in stores]
    segment: Any = state.segments(stores[0]).existing(7)
    wanted = keys[::1000]

    state.prefetch(wanted)

    before = blobs.reads
    assert all(each.get(key) == VALUE for each in maps for key in wanted)
    assert all(list(segment.scan((key, 0), (key, 10_000))) for key in wanted)
    assert blobs.reads == before
    assert state.stats().bursts_read <= 4


def test_entries_that_expire_are_read_with_their_place_in_the_order() -> None:
    store = Stores.key_value("store", bytes, bytes, ttl=1_000_000)
    blobs = MemoryBlobs()
    state = BTreeStores(blobs)
    entries = Expiring(state.map(store), 1_000_000, lambda: 5)
    for number in range(30_000):
        entries.put(key_of(number), b"value")
    state.flush()
    state = BTreeStores(blobs)
    entries = Expiring(state.map(store), 1_000_000, lambda: 6)
    keys = [key_of(number) for number in range(0, 30_000, 1000)]

    state.prefetch(keys)
    before = state.stats().faults
    for key in keys:
        entries.put(key, b"other")

    assert state.stats().faults - before <= 1


def test_what_was_loaded_can_be_forgotten() -> None:
    state = BTreeStores(filled(50_000))
    entries = state.map(STORE)
    assert sum(1 for _ in entries.scan()) == 50_000

    state.evict(1_000_000)

    assert entries.weight() <= 1_000_000
    assert sum(1 for _ in entries.scan()) == 50_000


def test_changes_are_not_forgotten() -> None:
    state = BTreeStores(MemoryBlobs())
    state.map(STORE).put(b"key", b"value")
    state.evict(0)
    state.flush()

    assert BTreeStores(state.blobs).map(STORE).get(b"key") == b"value"


def test_stores_do_not_mix() -> None:
    state = BTreeStores(MemoryBlobs())
    state.map(STORE).put(b"key", b"one")
    state.map(OTHER).put(b"key", b"other")
    state.segments(STORE).segment(0).put(b"key", b"zero")
    state.segments(STORE).segment(-1).put(b"key", b"minus")
    state.flush()

    state = BTreeStores(state.blobs)
    assert state.map(STORE).get(b"key") == b"one"
    assert state.map(OTHER).get(b"key") == b"other"
    assert state.segments(STORE).numbers() == [-1, 0]
    assert [state.segments(STORE).segment(n).get(b"key") for n in (-1, 0)] == [b"minus", b"zero"]
    assert state.segments(OTHER).existing(0) is None


@pytest.mark.parametrize(("damage", "reason"), [(None, "is missing"), (b"\xc1", "cannot be read")])
def test_damaged_state_is_told(damage: bytes | None, reason: str) -> None:
    blobs = filled(5_000)
    leaf = max(blobs.blobs, key=lambda key: len(blobs.blobs[key]))
    blobs.apply({leaf: damage})

    with pytest.raises(StateStoreError, match=f"store 'store' {reason}"):
        list(BTreeStores(blobs).map(STORE).scan())
