"""Stores of every kind after random puts, with their changelogs; and all reads of each."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from headrace import Stores, ValueAndTimestamp, Window, Windowed
from headrace.durations import MAX_MS
from headrace.state.maps import MemoryMap, MemorySegments, MemoryStores
from headrace.state.specs import StoreBuilder
from headrace.state.store_types.base import ChangelogRecord, Opening
from headrace.state.store_types.lookup import logged_type_of

KEYS = [b"", b"\x00", b"a", b"a\x00", b"ab", b"\xff" * 600, b"\x80\x00\xff" * 200]
STEP = 5_000
WINDOWS: dict[str, Any] = {"retention": 100_000, "size": STEP}


class Written:
    """A store of one task: its entries, its times, and all records of its changelog."""

    def __init__(self, spec: StoreBuilder[Any]) -> None:
        self.spec = spec
        self.records: list[ChangelogRecord] = []
        self.commits: list[tuple[int, dict[str, int]]] = []
        """How many records there were after each commit, and the times of the store."""
        self.time = 0
        self.context: Any = SimpleNamespace(cache=None, stream_time=-1, drop=lambda *_: None)
        self.type = logged_type_of(spec)
        self.times: Any = self.type.times()
        self.changelog = self.type.new_changelog("topic", lambda: self.time)
        opening = Opening(MemoryStores(), self.context, self.times, self.changelog)
        self.store = self.type.open(opening)

    def advance(self, time: int) -> None:
        self.time = time
        self.context.stream_time = max(time, self.context.stream_time)

    def commit(self) -> None:
        timestamps, keys, values = self.changelog.take()
        for key, value, timestamp in zip(keys, values, timestamps, strict=True):
            assert key is not None
            self.records.append(ChangelogRecord(key, value, timestamp))
        self.commits.append((len(self.records), self.times.saved()))

    def read_back(
        self, records: list[ChangelogRecord] | None = None, times: dict[str, int] | None = None
    ) -> Any:
        """Return the store as a reader of its changelog opens it."""
        store_type = logged_type_of(self.spec)
        backend = MemoryStores()
        some = len(self.records) // 2
        for batch in [self.records[:some], self.records[some:]] if records is None else [records]:
            store_type.apply(batch, backend)
        times = json.loads(json.dumps(self.times.saved() if times is None else times))
        return store_type.open_for_reading(
            UnchangedStores(backend), store_type.times.from_saved(times)
        )


class UnchangedStores(MemoryStores):
    """A backend that fails when a reader changes it."""

    def __init__(self, stores: MemoryStores) -> None:
        super().__init__()
        self._stores = stores

    def map(self, store: StoreBuilder[Any], /) -> Any:
        return UnchangedMap(self._stores.map(store))

    def segments(self, store: StoreBuilder[Any], /) -> Any:
        return UnchangedSegments(self._stores.segments(store))


class UnchangedMap:
    def __init__(self, data: MemoryMap[Any, Any]) -> None:
        self.get, self.scan, self.first, self.last = data.get, data.scan, data.first, data.last
        self._data = data

    def __len__(self) -> int:
        return len(self._data)


class UnchangedSegments:
    def __init__(self, segments: MemorySegments[Any, Any]) -> None:
        self.numbers = segments.numbers
        self._segments = segments

    def existing(self, number: int, /) -> UnchangedMap | None:
        segment = self._segments.existing(number)
        return None if segment is None else UnchangedMap(segment)


def put_value(written: Written, key: bytes, value: int | None, _time: int) -> None:
    written.store.put(key, value)


def put_timestamped(written: Written, key: bytes, value: int | None, time: int) -> None:
    written.store.put(key, None if value is None else ValueAndTimestamp(value, time))


def put_window(written: Written, key: bytes, value: int | None, time: int) -> None:
    written.store.put(key, value, time // STEP * STEP)


def put_timestamped_window(written: Written, key: bytes, value: int | None, time: int) -> None:
    pair = None if value is None else ValueAndTimestamp(value, time)
    written.store.put(key, pair, time // STEP * STEP)


def put_session(written: Written, key: bytes, value: int | None, time: int) -> None:
    start = time // STEP * STEP
    written.store.put(Windowed(key, Window(start, start + STEP // 2)), value)


def put_version(written: Written, key: bytes, value: int | None, time: int) -> None:
    written.store.put(key, value, time)


def key_values(store: Any) -> Iterator[Any]:
    yield from (list(store.all()), list(store.reverse_all()), store.approximate_num_entries())
    for key in KEYS:
        yield store.get(key), list(store.range(key, None)), list(store.prefix_scan(key))


def windows(store: Any) -> Iterator[Any]:
    yield from (list(store.all()), list(store.backward_all()))
    for key in KEYS:
        yield list(store.fetch(key, 0, MAX_MS)), list(store.backward_fetch(key, 0, 300_000))
        yield list(store.fetch_range(key, None, 100_000, 400_000))
        yield [store.fetch(key, start) for start in range(0, 600_000, STEP)]


def sessions(store: Any) -> Iterator[Any]:
    yield from (list(store.all()), list(store.backward_all()))
    for key in KEYS:
        yield list(store.fetch(key)), list(store.find_sessions(key, 200_000, 400_000))


def versions(store: Any) -> Iterator[Any]:
    for key in KEYS:
        yield store.get(key), [store.get(key, time) for time in range(0, 600_000, STEP // 2)]


Put = Callable[[Written, bytes, int | None, int], None]
Reads = Callable[[Any], Iterator[Any]]
PLAIN = Stores.key_value("s", bytes, int)
STAMPED = Stores.timestamped_key_value("s", bytes, int)
WINDOW = Stores.window("s", bytes, int, **WINDOWS)
SESSION = Stores.session("s", bytes, int, retention=100_000)
CASES: dict[str, tuple[StoreBuilder[Any], Put, Reads]] = {
    "key_value": (PLAIN, put_value, key_values),
    "ttl": (replace(PLAIN, ttl_ms=60_000), put_value, key_values),
    "timestamped_key_value": (STAMPED, put_timestamped, key_values),
    "timestamped ttl": (replace(STAMPED, ttl_ms=60_000), put_timestamped, key_values),
    "lru_map": (Stores.lru_map("s", bytes, int, capacity=3), put_value, key_values),
    "window": (WINDOW, put_window, windows),
    "window in memory": (replace(WINDOW, persistent=False), put_window, windows),
    "window by time": (replace(WINDOW, time_first=True), put_window, windows),
    "duplicates": (replace(WINDOW, retain_duplicates=True), put_window, windows),
    "timestamped_window": (
        Stores.timestamped_window("s", bytes, int, **WINDOWS),
        put_timestamped_window,
        windows,
    ),
    "session": (SESSION, put_session, sessions),
    "session in memory": (replace(SESSION, persistent=False), put_session, sessions),
    "session by time": (replace(SESSION, time_first=True), put_session, sessions),
    "versioned_key_value": (
        Stores.versioned_key_value("s", bytes, int, history_retention=60_000),
        put_version,
        versions,
    ),
}


def written(case: str, seed: int) -> Written:
    """Return a store after 12 batches of puts and deletions, late ones and a leap in time."""
    spec, put, _ = CASES[case]
    chance, store, time = random.Random(seed), Written(spec), 0
    for batch in range(12):
        time += 200_000 if batch == 8 else 0
        for number in range(15):
            time += chance.randrange(STEP)
            late = chance.randrange(80_000) if chance.random() < 0.3 else 0
            store.advance(max(0, time - late))
            value = None if chance.random() < 0.25 else number
            put(store, chance.choice(KEYS), value, store.time)
        store.commit()
    return store


def compacted(records: list[ChangelogRecord]) -> list[ChangelogRecord]:
    """Return the last record of each key, in the order of the log."""
    last = {record.key: number for number, record in enumerate(records)}
    return [records[number] for number in sorted(last.values())]
