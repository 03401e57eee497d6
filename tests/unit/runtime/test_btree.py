"""State over leaves does what maps in memory do, whatever is loaded, flushed or forgotten."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from headrace.engine.stores import MemoryStores
from headrace.runtime.btree.blobs import MemoryBlobs
from headrace.runtime.btree.page_tree import run_all
from headrace.runtime.btree.page_writer import PageWriter
from headrace.runtime.btree.pages import SEGMENTS_KEY, PageLimits, StateStats
from headrace.runtime.btree.stores import BTreeStores
from headrace.serdes import Serdes
from headrace.state.specs import Stores

STORE = Stores.key_value("store", Serdes.bytes(), Serdes.bytes())
OTHER = Stores.key_value("other", Serdes.bytes(), Serdes.bytes())

TINY = PageLimits(
    most_entries=6,
    most_bytes=400,
    fewest_entries=2,
    fewest_bytes=60,
    sparse=3,
    most_children=4,
    loaded_whole=3,
    read_ahead=2,
)
SMALL = PageLimits(most_entries=16, fewest_entries=4, most_children=8, loaded_whole=2)

KeyMaker = Callable[[random.Random], Any]


def some_bytes(chance: random.Random) -> bytes:
    return b"%x" % chance.randrange(60)


KEYS: dict[str, KeyMaker] = {
    "bytes": lambda chance: b"%x" % chance.randrange(300),
    "bytes, int": lambda chance: (some_bytes(chance), chance.randrange(8)),
    "bytes, int, int": lambda chance: (
        some_bytes(chance),
        chance.randrange(4),
        chance.randrange(3),
    ),
    "few bytes, int": lambda chance: (b"%x" % chance.randrange(3), chance.randrange(100)),
    "int, bytes": lambda chance: (chance.randrange(12), some_bytes(chance)),
    "bytes, bytes": lambda chance: (some_bytes(chance), some_bytes(chance)),
}


def some_value(chance: random.Random) -> Any:
    size = chance.choice([0, 1, 8, 8, 8, 300])
    return chance.choice(
        [b"v" * size, (b"v" * size, chance.randrange(2**40)), (-1, None, b"", (b"x", -5))]
    )


def bounds(chance: random.Random, make: KeyMaker) -> tuple[Any, Any]:
    start, end = sorted((make(chance), make(chance)))
    if isinstance(start, tuple):
        how = chance.randrange(4)
        if how == 0:
            end = (start[0], 1000) if isinstance(start[-1], int) else (start[0], b"\xff")
        elif how == 1:
            start, end = start[:1], end[:1]
        elif how == 2 and isinstance(start[0], bytes):
            start, end = (start[0],), (start[0] + b"\0",)
    return start, end


class Program:
    """Does the same at random to two kinds of state, and compares what they answer."""

    def __init__(self, seed: int, make: KeyMaker, limits: PageLimits) -> None:
        self.chance = random.Random(seed)
        self.make = make
        self.limits = limits
        self.blobs = MemoryBlobs()
        self.state = BTreeStores(self.blobs, limits=limits)
        self.expected = MemoryStores()
        self.removing = False

    def run(self, steps: int) -> None:
        for step in range(steps):
            if step % 200 == 0:
                self.removing = self.chance.random() < 0.4
            action = self.chance.choices(
                [self.put, self.pop, self.get, self.read, self.cut, self.drop, self.evict],
                [2, 20, 5, 6, 2, 0.3, 0.5] if self.removing else [20, 3, 5, 6, 2, 0.3, 0.5],
            )[0]
            action()
        self.check()

    def maps(self) -> tuple[Any, Any]:
        number = self.chance.randrange(4)
        if number == 0:
            return self.state.map(STORE), self.expected.map(STORE)
        base = 10 + (number - 2)
        return self.state.segments(STORE).segment(base), self.expected.segments(STORE).segment(base)

    def put(self) -> None:
        got, wanted = self.maps()
        for _ in range(self.chance.choice([1, 1, 1, 30])):
            key, value = self.make(self.chance), some_value(self.chance)
            got.put(key, value)
            wanted.put(key, value)

    def pop(self) -> None:
        got, wanted = self.maps()
        for _ in range(self.chance.choice([1, 1, 1, 20])):
            key = self.make(self.chance)
            assert got.pop(key) == wanted.pop(key)

    def get(self) -> None:
        got, wanted = self.maps()
        key = self.make(self.chance)
        assert got.get(key) == wanted.get(key)

    def read(self) -> None:
        got, wanted = self.maps()
        start, end = bounds(self.chance, self.make)
        how = self.chance.randrange(6)
        if how == 0:
            assert got.first(start, end) == wanted.first(start, end)
        elif how == 1:
            assert got.last(start, end) == wanted.last(start, end)
        elif how == 2:
            assert len(got) == len(wanted)
        else:
            if how == 3:
                start, end = self.chance.choice([(None, end), (start, None), (None, None)])
            reverse = self.chance.random() < 0.3
            assert list(got.scan(start, end, reverse=reverse)) == list(
                wanted.scan(start, end, reverse=reverse)
            )

    def cut(self) -> None:
        self.state.flush()
        if self.chance.random() < 0.3:
            self.evict()
        elif self.chance.random() < 0.7:
            self.state = BTreeStores(self.blobs, limits=self.limits)
        if self.chance.random() < 0.5:
            self.state.map(STORE), self.state.segments(STORE)
            raw = [self.make(self.chance) for _ in range(self.chance.choice([0, 1, 5, 40]))]
            self.state.prefetch(key if isinstance(key, bytes) else _bytes_of(key) for key in raw)

    def evict(self) -> None:
        self.state.evict(self.chance.choice([0, 2000, 10**9]))

    def drop(self) -> None:
        number = self.chance.randrange(9, 13)
        self.state.segments(STORE).drop_before(number)
        self.expected.segments(STORE).drop_before(number)

    def check(self) -> None:
        for _ in range(2):
            got, wanted = self.state.segments(STORE), self.expected.segments(STORE)
            assert got.numbers() == wanted.numbers()
            pairs: list[tuple[Any, Any]] = [(self.state.map(STORE), self.expected.map(STORE))]
            pairs += [(got.existing(each), wanted.existing(each)) for each in wanted.numbers()]
            for one, other in pairs:
                assert len(one) == len(other)
                assert list(one.scan()) == list(other.scan())
            self.state.flush()
            assert blobs_in_use(self.state) == set(self.blobs.blobs)
            self.state = BTreeStores(self.blobs, limits=self.limits)


def blobs_in_use(state: BTreeStores) -> set[bytes]:
    """Return the keys of the blobs that a state would remove if all its maps were dropped."""
    maps = [state.map(STORE), *state.segments(STORE).maps()]
    changes: dict[bytes, bytes | None] = {}
    for each in maps:
        run_all([each.tree.indexing()], lambda keys: state.blobs.get_many(keys))
        PageWriter(each, changes, StateStats()).remove()
    return {*changes, *([SEGMENTS_KEY] if state.segments(STORE).numbers() else [])}


def _bytes_of(key: Any) -> bytes:
    return next(subtopology for subtopology in key if isinstance(subtopology, bytes))


@pytest.mark.parametrize("limits", [TINY, SMALL, PageLimits()], ids=["tiny", "small", "default"])
@pytest.mark.parametrize("shape", KEYS)
@pytest.mark.parametrize("seed", range(6))
def test_state_over_leaves_answers_as_maps_in_memory_do(
    shape: str, seed: int, limits: PageLimits
) -> None:
    program = Program(seed, KEYS[shape], limits)

    program.run(600)
