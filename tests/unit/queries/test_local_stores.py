"""`KafkaStreams.store`: all partitions of this instance as one store."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import (
    Materialized,
    SessionWindows,
    Stores,
    StreamsBuilder,
    TimeWindows,
    ValueAndTimestamp,
    VersionedRecord,
    Window,
    Windowed,
)
from headrace.queries import ProblemCode, QueryableStoreTypes, QueryProblemError
from headrace.queries.local.store_types import QueryableStoreType
from headrace.serdes.partitioner import partition_for_key
from headrace.state.store_types.base import ChangelogRecord
from tests.unit.queries.local_instances import FakeInstance, topology_of

KEYS = ["a", "b", "c", "d", "e", "f"]
HOUR = 3_600_000


def integer(value: int) -> bytes:
    return value.to_bytes(8, "big")


def counted() -> FakeInstance:
    """Return an instance with counts, windows, sessions and a global table, each key 10 and up."""
    builder = StreamsBuilder()
    words = builder.stream("lines", key=str, value=str).group_by_key()
    words.count(materialized=Materialized("counts"))
    words.windowed_by(TimeWindows("1h", grace="2h")).count(materialized=Materialized("windows"))
    words.windowed_by(SessionWindows("1h")).count(materialized=Materialized("sessions"))
    builder.global_table("rates", key=str, value=int, materialized=Materialized("rates"))
    instance = FakeInstance(builder.build())
    counts: dict[int, list[ChangelogRecord]] = {0: [], 1: []}
    windows: dict[int, list[ChangelogRecord]] = {0: [], 1: []}
    sessions: dict[int, list[ChangelogRecord]] = {0: [], 1: []}
    window_type = instance.catalog.store("windows").type
    session_type = instance.catalog.store("sessions").type
    for number, key in enumerate(KEYS):
        encoded = key.encode()
        partition, value = partition_for_key(encoded, 2), integer(10 + number)
        counts[partition].append(ChangelogRecord(encoded, value, number))
        for start in (0, HOUR):
            name = window_type.record_key((encoded, start))
            windows[partition].append(ChangelogRecord(name, value, start + number))
        name = session_type.record_key((encoded, 50, 5))
        sessions[partition].append(ChangelogRecord(name, value, 50))
    rates = [ChangelogRecord(b"eur", integer(7), 3)]
    instance.apply(
        {"counts": counts, "windows": windows, "sessions": sessions, "rates": {0: rates}},
        times={"windows": {"time": HOUR + 5}, "sessions": {"time": 50}},
    )
    return instance


def test_a_store_shows_all_partitions_with_plain_values() -> None:
    store = counted().queries.store("counts")

    by_partition = sorted(KEYS, key=lambda key: (partition_for_key(key.encode(), 2), key))
    expected = [(key, 10 + KEYS.index(key)) for key in by_partition]
    assert [*store.all()] == expected
    assert sorted(store.reverse_all()) == sorted(expected)
    assert sorted(store.range("b", "d")) == [("b", 11), ("c", 12), ("d", 13)]
    assert sorted(store.reverse_range("b", "d")) == [("b", 11), ("c", 12), ("d", 13)]
    assert [*store.prefix_scan("c")] == [("c", 12)]
    assert [store.get(key) for key in (*KEYS, "z")] == [10, 11, 12, 13, 14, 15, None]
    assert (store.approximate_num_entries(), store.name, store.persistent) == (6, "counts", True)


def test_a_timestamped_store_has_timestamps_if_asked() -> None:
    queries = counted().queries
    store = queries.store("counts", QueryableStoreTypes.timestamped_key_value_store())

    assert store.get("b") == ValueAndTimestamp(11, 1)
    assert ("b", ValueAndTimestamp(11, 1)) in [*store.all()]


def test_a_store_reads_the_newest_snapshot_each_time() -> None:
    instance = counted()
    store = instance.queries.store("counts")
    before = store.all()
    partition = partition_for_key(b"a", 2)

    instance.apply({"counts": {partition: [ChangelogRecord(b"a", integer(99), 9)]}})

    assert store.get("a") == 99
    assert dict(before)["a"] == 10, "an iterator stays at the snapshot where it began"


def test_one_partition_can_be_read_alone() -> None:
    queries = counted().queries
    number = partition_for_key(b"a", 2)
    store = queries.store("counts", partition=number)
    other = queries.store("counts", partition=1 - number)

    assert (store.get("a"), other.get("a")) == (10, None)
    assert {*store.all()} | {*other.all()} == {*queries.store("counts").all()}


@pytest.mark.parametrize("partition", [-1, 2])
def test_a_partition_that_the_store_does_not_have_is_refused(partition: int) -> None:
    store = counted().queries.store("counts", partition=partition)

    with pytest.raises(QueryProblemError, match="has no partition") as error:
        store.get("a")

    assert error.value.code is ProblemCode.BAD_REQUEST


def test_windows_have_every_fetch() -> None:
    store = counted().queries.store("windows", QueryableStoreTypes.window_store(str, int))
    everything = [
        (Windowed(key, Window(start, start + HOUR)), 10 + number)
        for number, key in enumerate(KEYS)
        for start in (0, HOUR)
    ]

    def listed(found: Any) -> list[Any]:
        return sorted(found, key=lambda entry: (entry[0].key, entry[0].window))

    assert store.fetch("b", 0) == 11
    assert [*store.fetch("b", 0, HOUR)] == [(0, 11), (HOUR, 11)]
    assert [*store.backward_fetch("b", 0, HOUR)] == [(HOUR, 11), (0, 11)]
    assert listed(store.all()) == listed(store.backward_all()) == everything
    assert listed(store.fetch_all(0, 0)) == listed(store.backward_fetch_all(0, 0))
    assert listed(store.fetch_all(0, 0)) == everything[::2]
    assert listed(store.fetch_range("b", "c", HOUR, HOUR)) == everything[3:6:2]
    assert listed(store.backward_fetch_range("b", "c", HOUR, HOUR)) == everything[3:6:2]


def test_windows_have_timestamps_if_asked() -> None:
    queries = counted().queries
    store = queries.store("windows", QueryableStoreTypes.timestamped_window_store())

    assert store.fetch("b", HOUR) == ValueAndTimestamp(11, HOUR + 1)


def test_sessions_have_every_fetch() -> None:
    store = counted().queries.store("sessions", QueryableStoreTypes.session_store())
    everything = [(Windowed(key, Window(5, 50)), 10 + n) for n, key in enumerate(KEYS)]

    def listed(found: Any) -> list[Any]:
        return sorted(found, key=lambda entry: entry[0].key)

    assert store.fetch_session("a", 5, 50) == 10
    assert [*store.fetch("b")] == [*store.backward_fetch("b")] == [everything[1]]
    assert [*store.find_sessions("b", 50, 5)] == [everything[1]]
    assert [*store.backward_find_sessions("b", 51, 5)] == []
    assert listed(store.all()) == listed(store.backward_all()) == everything
    assert listed(store.fetch_range("b", "c")) == everything[1:3]
    assert listed(store.backward_fetch_range(None, "a")) == everything[:1]


def test_versions_can_be_read_as_of_a_time() -> None:
    versioned = Stores.versioned_key_value("prices", str, int, history_retention="1h")
    instance = FakeInstance(topology_of(versioned), partitions=1)
    records = [ChangelogRecord(b"a", integer(time), time) for time in (10, 20)]
    instance.apply({"prices": {0: records}}, times={"prices": {"time": 20}})

    store = instance.queries.store("prices", QueryableStoreTypes.versioned_key_value_store())

    assert store.get("a") == VersionedRecord(20, 20)
    assert store.get("a", 15) == VersionedRecord(10, 10)
    assert store.get("a", 5) is None


def test_a_global_store_is_read_as_any_other() -> None:
    store = counted().queries.store("rates")

    assert (store.get("eur"), [*store.all()]) == (7, [("eur", 7)])


@pytest.mark.parametrize(
    ("name", "store_type"),
    [
        ("counts", QueryableStoreTypes.window_store()),
        ("windows", QueryableStoreTypes.key_value_store()),
        ("windows", QueryableStoreTypes.session_store()),
        ("counts", QueryableStoreTypes.versioned_key_value_store()),
    ],
)
def test_another_kind_of_store_is_refused(name: str, store_type: QueryableStoreType[Any]) -> None:
    with pytest.raises(QueryProblemError, match="cannot be read as") as error:
        counted().queries.store(name, store_type)

    assert error.value.code is ProblemCode.WRONG_STORE_KIND


def test_a_plain_store_has_no_timestamps() -> None:
    plain = Stores.key_value("plain", str, int)
    instance = FakeInstance(topology_of(plain))

    with pytest.raises(QueryProblemError, match="`timestamped_key_value_store`"):
        instance.queries.store("plain", QueryableStoreTypes.timestamped_key_value_store())


def test_keys_that_processors_choose_are_looked_for_in_all_partitions() -> None:
    instance = FakeInstance(topology_of(Stores.key_value("plain", str, int)))
    elsewhere = 1 - partition_for_key(b"a", 2)
    instance.apply({"plain": {elsewhere: [ChangelogRecord(b"a", integer(5), 0)]}})

    assert instance.queries.store("plain").get("a") == 5


def test_an_instance_that_is_not_ready_refuses() -> None:
    instance = counted()
    store = instance.queries.store("counts")
    shard = instance.shard("counts", partition_for_key(b"a", 2))
    problem = QueryProblemError(ProblemCode.STORE_NOT_READY, "behind")
    instance.problems[shard] = problem

    for read in (lambda: store.get("a"), store.all, store.approximate_num_entries):
        with pytest.raises(QueryProblemError) as error:
            read()
        assert error.value is problem
    assert instance.queries.store("counts", stale=True).get("a") == 10


def test_an_instance_without_a_snapshot_refuses() -> None:
    builder = StreamsBuilder()
    builder.table("in", key=str, value=int, materialized=Materialized("table"))
    instance = FakeInstance(builder.build())
    store = instance.queries.store("table")

    for read in (lambda: store.get("a"), store.all):
        with pytest.raises(QueryProblemError, match="no snapshot yet"):
            read()


def test_standbys_answer_only_if_asked() -> None:
    instance = counted()
    number = partition_for_key(b"a", 2)
    shard = instance.shard("counts", number)
    instance.others[shard] = ("b:2", "a:1")
    store, stale = (instance.queries.store("counts", stale=each) for each in (False, True))

    with pytest.raises(QueryProblemError, match="is a standby for partition"):
        store.get("a")
    own = {key for key in KEYS if partition_for_key(key.encode(), 2) != number}
    assert {key for key, _ in store.all()} == own
    assert stale.get("a") == 10
    assert {key for key, _ in stale.all()} == {*KEYS}


def test_an_instance_without_any_partition_refuses() -> None:
    instance = counted()
    for number in range(2):
        instance.others[instance.shard("counts", number)] = ("b:2", "a:1")

    with pytest.raises(QueryProblemError, match="has no partition of store 'counts'") as error:
        instance.queries.store("counts").all()

    assert error.value.retry_after_ms is not None


def test_partitions_without_a_common_snapshot_refuse() -> None:
    instance = FakeInstance(counted_topology())
    first, second = (instance.shard("counts", number) for number in range(2))
    instance.apply({}, without=[first])
    instance.apply({}, without=[second])

    with pytest.raises(QueryProblemError, match="no snapshot with all its partitions"):
        instance.queries.store("counts").all()


def test_a_key_whose_partition_is_not_here_refuses() -> None:
    instance = FakeInstance(counted_topology())
    number = partition_for_key(b"a", 2)
    instance.apply({}, without=[instance.shard("counts", number)])

    with pytest.raises(QueryProblemError, match=f"no snapshot with partition {number}"):
        instance.queries.store("counts").get("a")


def counted_topology() -> Any:
    builder = StreamsBuilder()
    words = builder.stream("lines", key=str, value=str).group_by_key()
    words.count(materialized=Materialized("counts"))
    return builder.build()
