"""All rows of a store that this instance has, for Arrow tables and DataFrames."""

from __future__ import annotations

import pytest

from headrace import StreamsBuilder
from headrace.queries import ProblemCode, QueryProblemError
from headrace.queries.tables.arrow_tables import arrow_table
from headrace.serdes.partitioner import partition_for_key
from headrace.state.store_types.base import ChangelogRecord
from tests.unit.queries.local_instances import FakeInstance

KEYS = [b"a", b"b", b"c", b"d", b"e"]


def _instance() -> FakeInstance:
    builder = StreamsBuilder()
    builder.table("t", key=str, value=int, materialized="numbers")
    return FakeInstance(builder.build())


def _show(instance: FakeInstance, *without: int) -> None:
    changes: dict[int, list[ChangelogRecord]] = {0: [], 1: []}
    for number, key in enumerate(KEYS):
        record = ChangelogRecord(key, number.to_bytes(8, "big"), 1_000)
        changes[partition_for_key(key, 2)].append(record)
    left_out = [instance.shard("numbers", partition) for partition in without]
    instance.apply({"numbers": changes}, without=left_out)


def test_all_partitions_are_one_table_in_the_order_of_the_keys() -> None:
    instance = _instance()
    _show(instance)

    table = arrow_table(*instance.queries.whole_store("numbers"))

    assert table.column("key").to_pylist() == ["a", "b", "c", "d", "e"]
    assert table.column("value").to_pylist() == [0, 1, 2, 3, 4]


def test_a_store_that_is_not_all_here_is_refused() -> None:
    instance = _instance()
    with pytest.raises(QueryProblemError, match="no snapshot yet"):
        instance.queries.whole_store("numbers")

    _show(instance, 1)
    with pytest.raises(QueryProblemError, match="does not have all partitions") as caught:
        instance.queries.whole_store("numbers")
    assert caught.value.code is ProblemCode.STORE_NOT_READY
