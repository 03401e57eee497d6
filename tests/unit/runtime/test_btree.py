"""A B+ tree answers as maps in memory do, whatever is loaded, flushed or evicted."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from headrace.runtime.btree.blobs import MemoryBlobs
from headrace.runtime.btree.page_tree import run_all
from headrace.runtime.btree.page_writer import PageWriter
from headrace.runtime.btree.pages import SEGMENTS_KEY, BTreeStats, PageLimits
from headrace.runtime.btree.stores import BTreeStores
from headrace.serdes import Serdes
from headrace.state.maps import MemoryStores
from headrace.state.specs import Stores

STORE = Stores.key_value("store", Serdes.bytes(), Serdes.bytes())
OTHER = Stores.key_value("other", Serdes.bytes(), Serdes.bytes())

TINY = PageLimits(
    max_entries=6,
    max_bytes=400,
    min_entries=2,
    min_bytes=60,
    sparse_ratio=3,
    max_children=4,
    full_load_pages=3,
    read_ahead_pages=2,
)
SMALL = PageLimits(max_entries=16, min_entries=4, max_children=8, full_load_pages=2)

KeyMaker = Callable[[random.Random], Any]


def random_bytes(chance: random.Random) -> bytes:
    return b"%x" % chance.randrange(60)


KEYS: dict[str, KeyMaker] = {
    "bytes": lambda chance: b"%x" % chance.randrange(300),
    "bytes, int": lambda chance: (random_bytes(chance), chance.randrange(8)),
    "bytes, int, int": lambda chance: (
        random_bytes(chance),
        chance.randrange(4),
        chance.randrange(3),
    ),
    "few bytes, int": lambda chance: (b"%x" % chance.randrange(3), chance.randrange(100)),
    "int, bytes": lambda chance: (chance.randrange(12), random_bytes(chance)),
    "bytes, bytes": lambda chance: (random_bytes(chance), random_bytes(chance)),
}


def random_value(chance: random.Random) -> Any:
    size = chance.choice([0, 1, 8, 8, 8, 300])
    return chance.choice(
        [b"v" * size, (b"v" * size, chance.randrange(2**40)), (-1, None, b"", (b"x", -5))]
    )


def random_bounds(chance: random.Random, make: KeyMaker) -> tuple[Any, Any]:
    start, end = sorted((make(chance), make(chance)))
    if isinstance(start, tuple):
        shape = chance.randrange(4)
        if shape == 0:
            end = (start[0], 1000) if isinstance(start[-1], int) else (start[0], b"\xff")
        elif shape == 1:
            start, end = start[:1], end[:1]
        elif shape == 2 and isinstance(start[0], bytes):
            start, end = (start[0],), (start[0] + b"\0",)
    return start, end


class RandomOperations:
    """Applies random operations to a B+ tree and to maps in memory, and compares the results."""

    def __init__(self, seed: int, make: KeyMaker, limits: PageLimits) -> None:
        self.chance = random.Random(seed)
        self.make = make
        self.limits = limits
        self.blobs = MemoryBlobs()
        self.backend = BTreeStores(self.blobs, limits=limits)
        self.expected = MemoryStores()
        self.removing = False

    def run(self, steps: int) -> None:
        for step in range(steps):
            if step % 200 == 0:
                self.removing = self.chance.random() < 0.4
            action = self.chance.choices(
                [self.put, self.pop, self.get, self.read, self.flush, self.drop, self.evict],
                [2, 20, 5, 6, 2, 0.3, 0.5] if self.removing else [20, 3, 5, 6, 2, 0.3, 0.5],
            )[0]
            action()
        self.check()

    def maps(self) -> tuple[Any, Any]:
        number = self.chance.randrange(4)
        if number == 0:
            return self.backend.map(STORE), self.expected.map(STORE)
        base = 10 + (number - 2)
        actual, expected = self.backend.segments(STORE), self.expected.segments(STORE)
        return actual.segment(base), expected.segment(base)

    def put(self) -> None:
        actual, expected = self.maps()
        for _ in range(self.chance.choice([1, 1, 1, 30])):
            key, value = self.make(self.chance), random_value(self.chance)
            actual.put(key, value)
            expected.put(key, value)

    def pop(self) -> None:
        actual, expected = self.maps()
        for _ in range(self.chance.choice([1, 1, 1, 20])):
            key = self.make(self.chance)
            assert actual.pop(key) == expected.pop(key)

    def get(self) -> None:
        actual, expected = self.maps()
        key = self.make(self.chance)
        assert actual.get(key) == expected.get(key)

    def read(self) -> None:
        actual, expected = self.maps()
        start, end = random_bounds(self.chance, self.make)
        operation = self.chance.randrange(6)
        if operation == 0:
            assert actual.first(start, end) == expected.first(start, end)
        elif operation == 1:
            assert actual.last(start, end) == expected.last(start, end)
        elif operation == 2:
            assert len(actual) == len(expected)
        else:
            if operation == 3:
                start, end = self.chance.choice([(None, end), (start, None), (None, None)])
            reverse = self.chance.random() < 0.3
            assert list(actual.scan(start, end, reverse=reverse)) == list(
                expected.scan(start, end, reverse=reverse)
            )

    def flush(self) -> None:
        self.backend.flush()
        if self.chance.random() < 0.3:
            self.evict()
        elif self.chance.random() < 0.7:
            self.backend = BTreeStores(self.blobs, limits=self.limits)
        if self.chance.random() < 0.5:
            self.backend.map(STORE), self.backend.segments(STORE)
            keys = [self.make(self.chance) for _ in range(self.chance.choice([0, 1, 5, 40]))]
            self.backend.prefetch(key if isinstance(key, bytes) else _bytes_of(key) for key in keys)

    def evict(self) -> None:
        self.backend.evict(self.chance.choice([0, 2000, 10**9]))

    def drop(self) -> None:
        number = self.chance.randrange(9, 13)
        self.backend.segments(STORE).drop_before(number)
        self.expected.segments(STORE).drop_before(number)

    def check(self) -> None:
        for _ in range(2):
            actual, expected = self.backend.segments(STORE), self.expected.segments(STORE)
            assert actual.numbers() == expected.numbers()
            pairs: list[tuple[Any, Any]] = [(self.backend.map(STORE), self.expected.map(STORE))]
            pairs += [
                (actual.existing(number), expected.existing(number))
                for number in expected.numbers()
            ]
            for actual_map, expected_map in pairs:
                assert len(actual_map) == len(expected_map)
                assert list(actual_map.scan()) == list(expected_map.scan())
            self.backend.flush()
            assert reachable_blobs(self.backend) == set(self.blobs.blobs)
            self.backend = BTreeStores(self.blobs, limits=self.limits)


def reachable_blobs(backend: BTreeStores) -> set[bytes]:
    """Return the keys of the blobs that a flush would delete if all maps were dropped."""
    maps = [backend.map(STORE), *backend.segments(STORE).maps()]
    changes: dict[bytes, bytes | None] = {}
    for btree_map in maps:
        run_all([btree_map.tree.loading_index()], lambda keys: backend.blobs.get_many(keys))
        PageWriter(btree_map, changes, BTreeStats()).remove()
    return {*changes, *([SEGMENTS_KEY] if backend.segments(STORE).numbers() else [])}


def _bytes_of(key: Any) -> bytes:
    return next(element for element in key if isinstance(element, bytes))


@pytest.mark.parametrize("limits", [TINY, SMALL, PageLimits()], ids=["tiny", "small", "default"])
@pytest.mark.parametrize("shape", KEYS)
@pytest.mark.parametrize("seed", range(6))
def test_a_btree_answers_as_maps_in_memory_do(shape: str, seed: int, limits: PageLimits) -> None:
    operations = RandomOperations(seed, KEYS[shape], limits)

    operations.run(600)
