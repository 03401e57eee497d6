"""The catalog knows the stores of a program, their shards and where a key lies."""

from __future__ import annotations

import pytest

from headrace import (
    Materialized,
    Processor,
    ProcessorContext,
    Record,
    SessionWindows,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
)
from headrace.queries.catalog import Catalog, catalog_of
from headrace.queries.copy.layout import Shard
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.runtime.plan import plan_topology
from headrace.serdes.partitioner import partition_for_key
from headrace.state.specs import Stores
from tests.unit.queries.snapshot_records import make_record


def catalog_for(builder: StreamsBuilder) -> Catalog:
    return catalog_of(plan_topology(builder.build(), StreamsConfig(application_id="app")))


def program() -> StreamsBuilder:
    builder = StreamsBuilder()
    lines = builder.stream("lines", key=str, value=str)
    lines.group_by_key().count(materialized=Materialized("counts"))
    words = lines.group_by(lambda _, line: line, key=str, name="words")
    words.windowed_by(TimeWindows("1h")).count(materialized=Materialized("windows"))
    words.windowed_by(SessionWindows("5m")).count(materialized=Materialized("sessions"))
    words.count()  # has no name, so nobody can ask for it
    builder.global_table("rates", key=str, value=int, materialized=Materialized("rates"))
    builder.global_table("names", key=str, value=str, materialized=Materialized("names"))
    return builder


def test_each_subtopology_and_all_global_stores_are_a_group() -> None:
    catalog = catalog_for(program())

    assert {name: store.group for name, store in catalog.stores.items()} == {
        "counts": "0", "windows": "1", "sessions": "1", "rates": "global", "names": "global",
    }  # fmt: skip
    assert catalog.snapshots_topic == "app-snapshots"
    assert [(group.name, group.is_global) for group in catalog.layout.groups] == [
        ("0", False), ("1", False), ("global", True),
    ]  # fmt: skip
    assert catalog.layout.changelogs() == [
        "app-counts-changelog", "app-windows-changelog", "app-sessions-changelog",
        "app-rates-changelog", "app-names-changelog",
    ]  # fmt: skip


def test_a_store_tells_its_kind_and_serdes() -> None:
    store = catalog_for(program()).store("windows")

    assert (store.kind, store.is_global) == ("timestamped_window", False)
    assert store.key.deserialize(b"k") == "k"
    assert store.value.deserialize(store.value.serialize(7)) == 7


@pytest.mark.parametrize(
    ("name", "hint"),
    [("count", "Did you mean 'counts'?"), ("x", "Its stores are ['counts', 'names', ")],
)
def test_an_unknown_store_is_refused_with_similar_names(name: str, hint: str) -> None:
    with pytest.raises(QueryProblemError, match="no queryable store") as error:
        catalog_for(program()).store(name)

    assert error.value.code is ProblemCode.UNKNOWN_STORE
    assert hint in error.value.detail


def test_a_program_without_stores_says_how_to_name_one() -> None:
    builder = StreamsBuilder()
    builder.stream("lines", key=str, value=str).to("copy")

    with pytest.raises(QueryProblemError, match="It has none: name one with `materialized=`"):
        catalog_for(builder).store("counts")


def test_shards_are_those_of_the_snapshot() -> None:
    catalog = catalog_for(program())
    record = make_record(1, ends={"app-counts-changelog": [3, 0, 1], "app-rates-changelog": [2]})

    assert catalog.shards(catalog.store("counts"), record) == [Shard("0", n) for n in range(3)]
    assert catalog.shards(catalog.store("rates"), record) == [Shard("global", 0)]
    assert catalog.shards(catalog.store("windows"), record) == []


def test_a_key_lies_where_its_hash_says() -> None:
    catalog = catalog_for(program())
    record = make_record(1, ends={"app-counts-changelog": [0] * 3, "app-rates-changelog": [0]})
    counts, rates = catalog.store("counts"), catalog.store("rates")

    keys = [b"%d" % number for number in range(20)]

    found = [catalog.shard_of_key(counts, key, record) for key in keys]
    assert found == [Shard("0", partition_for_key(key, 3)) for key in keys]
    assert len({*found}) == 3
    assert catalog.shard_of_key(rates, b"k", record) == Shard("global", 0)
    assert catalog.shard_of_key(catalog.store("windows"), b"k", record) is None


def test_keys_of_a_topic_with_fewer_partitions_than_tasks_may_lie_anywhere() -> None:
    catalog = catalog_for(program())
    ends = {"app-counts-changelog": [0] * 3}
    counts = catalog.store("counts")

    assert catalog.shard_of_key(
        counts, b"k", make_record(1, ends=ends, position={"lines": [1] * 3})
    )
    record = make_record(1, ends=ends, position={"lines": [1, 1]})
    assert catalog.shard_of_key(counts, b"k", record) is None


class PutLength(Processor[str, str, str, str]):
    def init(self, context: ProcessorContext[str, str]) -> None:
        self.store = context.get_state_store("lengths")

    def process(self, record: Record[str, str]) -> None:
        self.store.put(len(record.value), record.value)


def test_keys_that_a_processor_chooses_may_lie_anywhere() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value("lengths", int, str))
    lines = builder.stream("lines", key=str, value=str)
    lines.group_by_key().count(materialized=Materialized("counts"))
    lines.process(PutLength, stores=["lengths"])
    catalog = catalog_for(builder)
    ends = {f"app-{name}-changelog": [0, 0] for name in ("lengths", "counts")}

    record = make_record(1, ends=ends)
    assert catalog.shard_of_key(catalog.store("lengths"), b"k", record) is None
    assert catalog.shard_of_key(catalog.store("counts"), b"k", record) is not None


def test_keys_behind_a_partitioner_may_lie_anywhere() -> None:
    builder = StreamsBuilder()
    lines = builder.stream("lines", key=str, value=str)
    moved = lines.repartition(key=str, value=str, name="moved", partitioner=lambda *_: 0)
    moved.group_by_key().count(materialized=Materialized("moved-counts"))
    lines.group_by_key().count(materialized=Materialized("counts"))
    catalog = catalog_for(builder)
    ends = {f"app-{name}-changelog": [0, 0] for name in ("moved-counts", "counts")}

    record = make_record(1, ends=ends)
    assert catalog.shard_of_key(catalog.store("moved-counts"), b"k", record) is None
    assert catalog.shard_of_key(catalog.store("counts"), b"k", record) is not None
