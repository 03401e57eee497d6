"""The changelog of a store has the same entries as the store, after any batch."""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from headrace import (
    JoinWindows,
    Materialized,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
)
from headrace.brokers import open_log
from headrace.serdes.partitioner import partition_for_key
from headrace.topology.naming import markers_name
from tests.runtime.changelogs import changelogs_that_differ, changes
from tests.runtime.in_process import InProcessQuery
from tests.runtime.random_cuts import RandomShares

PARTITIONS = 2


def none_now_and_then(_key: str, value: int, total: int) -> Any:
    return None if value % 7 == 0 else total + value


def tables(builder: StreamsBuilder) -> None:
    table = builder.table("b", key=str, value=int, materialized="table")
    stream = builder.stream("a", key=str, value=int)
    totals = stream.group_by_key().aggregate(
        lambda: 0, none_now_and_then, materialized=Materialized("totals", value=int)
    )
    totals.map_values(lambda value: -value, materialized=Materialized("negative", value=int))
    totals.join(table, lambda v, w: v + w, materialized=Materialized("joined", value=int))
    totals.filter(lambda _k, v: v % 2 == 0, materialized="even")
    moved = table.group_by(lambda k, v: (k[:1], v), key=str, value=int)
    moved.count(materialized="moved")


def windows(builder: StreamsBuilder) -> None:
    both = builder.stream(["a", "b"], key=str, value=int).group_by_key()
    hopping = both.windowed_by(TimeWindows(40, advance=20, grace=10))
    hopping.aggregate(lambda: 0, none_now_and_then, materialized=Materialized("hopping", value=int))
    both.windowed_by(SlidingWindows(30, grace=10)).count(materialized="sliding")
    both.windowed_by(SessionWindows(6, grace=20)).count(materialized="sessions")
    kept = Materialized("kept", retention="1h", store_type="in_memory")
    both.windowed_by(SessionWindows(6, grace=20)).count(materialized=kept)


def versions(builder: StreamsBuilder) -> None:
    versioned = Materialized("versions", history_retention=60)
    table = builder.table("b", key=str, value=int, materialized=versioned)
    builder.stream("a", key=str, value=int).join(table, lambda v, w: v + w, value=int).to("out")


class Keeping(Processor[str, int, str, int]):
    """Writes all kinds of stores by hand, and deletes every fifth value and at each punctuation."""

    def init(self, context: ProcessorContext[str, int]) -> None:
        super().init(context)
        for store in self.stores():
            setattr(self, store.name, context.get_state_store(store.name))
        context.schedule("50ms", PunctuationType.STREAM_TIME, self.forget)

    def process(self, record: Record[str, int]) -> None:
        me: Any = self
        key, value, time = record.key, record.value, record.timestamp
        kept = value if value % 5 else None
        for store in (me.plain, me.buffered, me.brief, me.few):
            store.put(key, kept)
        me.times.put(key, kept, time // 10 * 10)
        me.all_values.put(key, value, time // 10 * 10)
        me.history.put(key, kept, time)

    def forget(self, timestamp: int) -> None:
        me: Any = self
        me.plain.delete("k1")
        me.plain.put("punctuated", timestamp)

    def stores(self) -> list[Any]:
        longest: dict[str, Any] = {"retention": 120, "size": 10}
        return [
            Stores.key_value("plain", str, int),
            Stores.key_value("buffered", str, int, caching=True),
            Stores.key_value("brief", str, int, ttl=30),
            Stores.lru_map("few", str, int, capacity=2),
            Stores.window("times", str, int, caching=True, **longest),
            Stores.window("all_values", str, int, retain_duplicates=True, **longest),
            Stores.versioned_key_value("history", str, int, history_retention=50),
        ]


def by_hand(builder: StreamsBuilder) -> None:
    builder.stream(["a", "b"], key=str, value=int).process(Keeping)


Build = Callable[[StreamsBuilder], None]
PROGRAMS: list[Build] = [tables, windows, versions, by_hand]


def query(build: Build, folder: Path, *, cache: int, seed: int = 0) -> InProcessQuery:
    """Return a query on topics of 150 records of ten keys each, some of them late."""
    builder = StreamsBuilder()
    build(builder)
    folder.mkdir()
    log = open_log(StreamsConfig(application_id="application", state_dir=folder))
    chance = random.Random(seed)
    for topic in ("a", "b"):
        log.create_topic(topic, partitions=PARTITIONS)
        time = 0
        for number in range(150):
            time += chance.randrange(8)
            key = b"k%d" % chance.randrange(10)
            stamp = max(1, time - chance.randrange(50) * (chance.random() < 0.3))
            value = (
                None if topic == "b" and build in (tables, versions) and number % 9 == 0 else number
            )
            log.append(
                [
                    (
                        topic,
                        partition_for_key(key, PARTITIONS),
                        stamp,
                        key,
                        None if value is None else value.to_bytes(8, "big"),
                        None,
                    )
                ]
            )
    log.close()
    made = InProcessQuery(builder.build(), folder, seed=seed, statestore_cache_max_bytes=cache)
    made.planner._admission = RandomShares(seed)  # type: ignore[assignment]
    return made


def all_changes(query: InProcessQuery) -> dict[str, list[Any]]:
    return {
        f"{topic} {partition}": changes(query.log, topic, partition)
        for topic in query.plan.changelogs
        for partition in range(query.log.partition_count(topic))
    }


@pytest.mark.parametrize("cache", [0, 2_000, 1 << 24])
@pytest.mark.parametrize("build", PROGRAMS)
def test_the_changelog_has_the_entries_of_its_store_after_each_batch(
    tmp_path: Path, build: Build, cache: int
) -> None:
    running = query(build, tmp_path / "query", cache=cache, seed=cache % 5)

    while running.batch():
        assert changelogs_that_differ(running) == []

    assert running.batches > 5
    written = {record.topic for records in all_changes(running).values() for record in records}
    assert written == running.plan.changelogs.keys()


@pytest.mark.parametrize("build", PROGRAMS)
def test_a_replayed_batch_adds_nothing_to_changelogs_or_the_same_records(
    tmp_path: Path, build: Build
) -> None:
    running = query(build, tmp_path / "query", cache=1 << 24)
    for _ in range(4):
        earlier, start, before = all_changes(running), running.position, deepcopy(running._blobs)
        assert running.batch()
        first = all_changes(running)
        running.batches -= 1

        running._blobs = deepcopy(before)
        running.replay(start, running.position)
        assert all_changes(running) == first, "its markers exist"

        running.log.delete_group(markers_name("application"))
        running._blobs = deepcopy(before)
        running.replay(start, running.position)
        running.batches += 1
        for name, records in all_changes(running).items():
            added, again = first[name][len(earlier[name]) :], records[len(first[name]) :]
            assert [each[3:] for each in again] == [each[3:] for each in added]


def test_each_key_is_written_once_per_batch(tmp_path: Path) -> None:
    running = query(tables, tmp_path / "query", cache=0)

    before: dict[str, list[Any]] = {name: [] for name in all_changes(running)}
    while running.batch():
        after = all_changes(running)
        for name, records in after.items():
            keys = [record.key for record in records[len(before[name]) :]]
            assert len(keys) == len(set(keys))
        before = after


def test_stores_without_a_name_or_logging_have_no_changelog(tmp_path: Path) -> None:
    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("a", key=str, value=int)
        other = builder.stream("b", key=str, value=int)
        stream.group_by_key().count()
        stream.group_by_key().count(materialized=Materialized("silent", logging=False))
        builder.global_table("g", key=str, value=int)
        stream.join(other, lambda v, w: v + w, JoinWindows(5), value=int, store_name="sides")

    builder = StreamsBuilder()
    build(builder)
    log = open_log(StreamsConfig(application_id="application", state_dir=tmp_path))
    for topic in ("a", "b", "g"):
        log.create_topic(topic)
    log.append([("a", 0, 1, b"k", (1).to_bytes(8, "big"), None)])
    running = InProcessQuery(builder.build(), tmp_path)
    running.run()

    assert running.plan.changelogs == {}
    assert [name for name in log.list_topics() if name.endswith("-changelog")] == []
