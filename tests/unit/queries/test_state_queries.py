"""Interactive queries v2 and metadata, on one instance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace import (
    Materialized,
    QueryError,
    SessionWindows,
    Stores,
    StreamsBuilder,
    TimeWindows,
    ValueAndTimestamp,
    VersionedRecord,
    Window,
    Windowed,
)
from headrace.brokers.log import TopicPartition
from headrace.queries import (
    FailureReason,
    HostInfo,
    KeyQuery,
    KeyQueryMetadata,
    MultiVersionedKeyQuery,
    Position,
    PositionBound,
    ProblemCode,
    Query,
    QueryProblemError,
    RangeQuery,
    StateQueryRequest,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from headrace.serdes.partitioner import partition_for_key
from headrace.state.store_types.base import ChangelogRecord
from tests.unit.queries.local_instances import FakeInstance, topology_of

HOUR = 3_600_000
A = partition_for_key(b"a", 2)
OTHER = next(key for key in "bcdefgh" if partition_for_key(key.encode(), 2) != A)


def integer(value: int) -> bytes:
    return value.to_bytes(8, "big")


def asked() -> FakeInstance:
    """Return an instance whose stores have the key a in its partition, and b in the other one."""
    builder = StreamsBuilder()
    words = builder.stream("lines", key=str, value=str).group_by_key()
    words.count(materialized=Materialized("counts"))
    words.windowed_by(TimeWindows("1h")).count(materialized=Materialized("windows"))
    words.windowed_by(SessionWindows("1h")).count(materialized=Materialized("sessions"))
    builder.global_table("rates", key=str, value=int, materialized=Materialized("rates"))
    instance = FakeInstance(builder.build())
    window = instance.catalog.store("windows").type.record_key((b"a", HOUR))
    session = instance.catalog.store("sessions").type.record_key((b"a", 9, 4))
    instance.apply(
        {
            "counts": {
                A: [ChangelogRecord(b"a", integer(1), 5), ChangelogRecord(b"c", integer(3), 6)],
                1 - A: [ChangelogRecord(b"b", integer(2), 7)],
            },
            "windows": {A: [ChangelogRecord(window, integer(4), HOUR + 8)]},
            "sessions": {A: [ChangelogRecord(session, integer(5), 9)]},
            "rates": {0: [ChangelogRecord(b"eur", integer(7), 3)]},
        },
        times={"windows": {"time": HOUR}, "sessions": {"time": 9}},
        position={"lines": [4, 0]},
    )
    return instance


def answers(store: str, query: Query[Any]) -> dict[int, Any]:
    """Return the results by partition, iterators as lists."""
    results = asked().queries.query(StateQueryRequest(store, query)).partition_results
    return {
        number: [*each.result] if isinstance(each.result, Iterator) else each.result
        for number, each in results.items()
    }


@pytest.mark.parametrize(
    ("store", "query", "in_a", "in_b"),
    [
        ("counts", KeyQuery("a"), 1, None),
        ("counts", TimestampedKeyQuery("a"), ValueAndTimestamp(1, 5), None),
        ("counts", RangeQuery(), [("a", 1), ("c", 3)], [("b", 2)]),
        ("counts", RangeQuery(descending=True), [("c", 3), ("a", 1)], [("b", 2)]),
        ("counts", RangeQuery("b", "c"), [("c", 3)], [("b", 2)]),
        ("counts", TimestampedRangeQuery(end="a"), [("a", ValueAndTimestamp(1, 5))], []),
        ("windows", WindowKeyQuery("a", 0, HOUR), [(HOUR, ValueAndTimestamp(4, HOUR + 8))], []),
        (
            "windows",
            WindowRangeQuery(start=0, end=HOUR),
            [(Windowed("a", Window(HOUR, 2 * HOUR)), ValueAndTimestamp(4, HOUR + 8))],
            [],
        ),
        ("sessions", WindowRangeQuery(key="a"), [(Windowed("a", Window(4, 9)), 5)], []),
    ],
)
def test_each_query_answers_by_partition(
    store: str, query: Query[Any], in_a: object, in_b: object
) -> None:
    assert answers(store, query) == {A: in_a, 1 - A: in_b}


def versioned() -> FakeInstance:
    prices = Stores.versioned_key_value("prices", str, int, history_retention="1h")
    instance = FakeInstance(topology_of(prices), partitions=1)
    records = [
        ChangelogRecord(b"a", None if time == 30 else integer(time), time)
        for time in (10, 20, 30, 40)
    ]
    instance.apply({"prices": {0: records}}, times={"prices": {"time": 40}})
    return instance


def test_versions_tell_until_when_they_were_valid() -> None:
    def ask(query: Query[Any]) -> Any:
        result = versioned().queries.query(StateQueryRequest("prices", query))
        only = result.only_partition_result
        return None if only is None else only.result

    assert ask(VersionedKeyQuery("a")) == VersionedRecord(40, 40)
    assert ask(VersionedKeyQuery("a", as_of=10)) == VersionedRecord(10, 10, 20)
    assert ask(VersionedKeyQuery("a", as_of=35)) is None
    newest_first = [
        VersionedRecord(40, 40),
        VersionedRecord(20, 20, 30),
        VersionedRecord(10, 10, 20),
    ]
    assert [*ask(MultiVersionedKeyQuery("a"))] == newest_first
    assert [*ask(MultiVersionedKeyQuery("a", ascending=True))] == newest_first[::-1]
    assert [*ask(MultiVersionedKeyQuery("a", 15, 25))] == newest_first[1:]
    assert [*ask(MultiVersionedKeyQuery("a", 20, 39))] == newest_first[1:2]


def test_a_window_range_query_is_of_times_or_of_a_key() -> None:
    for wrong in ({}, {"start": 1}, {"end": 1}, {"start": 1, "end": 2, "key": "a"}):
        with pytest.raises(QueryError, match="either `start` and `end`"):
            WindowRangeQuery[str, int](**wrong)


def test_a_global_store_has_one_result() -> None:
    result = asked().queries.query(StateQueryRequest("rates", KeyQuery[str, int]("eur")))

    assert result.partition_results == {}
    assert result.global_result is not None
    assert result.global_result.result == 7
    assert result.position == Position({"lines": {0: 3}})


def test_only_partition_result_is_the_one_with_a_result() -> None:
    queries = asked().queries

    found = queries.query(StateQueryRequest("counts", KeyQuery[str, int]("a")))
    assert found.only_partition_result is found.partition_results[A]
    nothing = queries.query(StateQueryRequest("counts", KeyQuery[str, int]("z")))
    assert nothing.only_partition_result is None
    several = queries.query(StateQueryRequest("counts", RangeQuery[str, int]()))
    with pytest.raises(QueryError, match="2 partitions have a result"):
        _ = several.only_partition_result


def reason(instance: FakeInstance, request: StateQueryRequest[Any], partition: int = A) -> Any:
    """Return the reason why a partition has no answer."""
    result = instance.queries.query(request).partition_results[partition]
    if result.failure_reason is not None:
        assert not result.is_success
        with pytest.raises(QueryError, match=result.failure_reason.value):
            _ = result.result
    return result.failure_reason


def test_a_store_of_another_kind_does_not_know_the_query() -> None:
    for store, query in [
        ("counts", WindowKeyQuery("a", 0, 1)),
        ("windows", KeyQuery("a")),
        ("windows", WindowRangeQuery(key="a")),
        ("sessions", WindowRangeQuery(start=0, end=1)),
        ("counts", VersionedKeyQuery("a")),
        ("counts", Query[Any]()),
    ]:
        request = StateQueryRequest[Any](store, query)
        assert reason(asked(), request) is FailureReason.UNKNOWN_QUERY_TYPE


def test_partitions_that_are_elsewhere_or_nowhere_say_so() -> None:
    instance = asked()
    shard = instance.shard("counts", A)
    fresh = FakeInstance(_table())
    fresh.apply({}, without=[fresh.shard("table", 0)])
    request = StateQueryRequest("table", KeyQuery[str, int]("a"), partitions={0, 1, 7})

    assert reason(fresh, request, 0) is FailureReason.NOT_PRESENT
    assert reason(fresh, request, 1) is None
    assert reason(fresh, request, 7) is FailureReason.DOES_NOT_EXIST
    of_all = fresh.queries.query(StateQueryRequest("table", KeyQuery[str, int]("a")))
    assert [*of_all.partition_results] == [1], "without names only what is here answers"
    instance.others[shard] = ("b:2", "a:1")
    active = StateQueryRequest("counts", KeyQuery[str, int]("a"), require_active=True)
    assert reason(instance, active) is FailureReason.NOT_ACTIVE
    assert reason(instance, StateQueryRequest("counts", KeyQuery[str, int]("a"))) is None


def test_shards_without_a_common_snapshot_are_not_present() -> None:
    instance = FakeInstance(_table())
    for number in range(2):
        instance.apply({}, without=[instance.shard("table", number)])

    assert reason(instance, StateQueryRequest("table", KeyQuery[str, int]("a")), 0) is (
        FailureReason.NOT_PRESENT
    )


def _table() -> Any:
    builder = StreamsBuilder()
    builder.table("in", key=str, value=int, materialized=Materialized("table"))
    return builder.build()


def test_an_error_of_the_store_is_a_failure() -> None:
    request = StateQueryRequest[Any]("counts", KeyQuery(5))

    assert reason(asked(), request) is FailureReason.STORE_EXCEPTION


@pytest.mark.parametrize(
    ("topic", "partition", "offset", "is_met"),
    [("lines", 0, 3, True), ("lines", 0, 4, False), ("lines", 1, 0, False), ("x", 0, 0, False)],
)
def test_a_bound_holds_the_last_offset_that_is_reflected(
    topic: str, partition: int, offset: int, is_met: bool
) -> None:
    bound = PositionBound.at(Position().with_component(topic, partition, offset))
    request = StateQueryRequest("counts", KeyQuery[str, int]("a"), position_bound=bound)

    assert reason(asked(), request) is (None if is_met else FailureReason.NOT_UP_TO_BOUND)


def test_positions_merge_to_the_higher_offsets() -> None:
    one = Position({"x": {0: 3, 1: 5}})
    other = Position({"x": {0: 4, 2: 0}, "y": {0: 1}})

    merged = one.merge(other)

    assert merged == Position({"x": {0: 4, 1: 5, 2: 0}, "y": {0: 1}})
    assert merged.topics == {"x", "y"}
    assert (merged.partition_positions("y"), merged.partition_positions("z")) == ({0: 1}, {})
    assert PositionBound.unbounded().is_met_by(Position())


def test_a_query_of_an_unknown_store_or_without_a_snapshot_is_refused() -> None:
    with pytest.raises(QueryProblemError, match="no queryable store 'x'"):
        asked().queries.query(StateQueryRequest("x", KeyQuery[str, int]("a")))
    with pytest.raises(QueryProblemError, match="no snapshot yet") as error:
        FakeInstance(_table()).queries.query(StateQueryRequest("table", KeyQuery[str, int]("a")))
    assert error.value.code is ProblemCode.STORE_NOT_READY


def test_metadata_tells_which_instance_has_what() -> None:
    instance = asked()
    instance.others[instance.shard("counts", 1)] = ("b:2", "a:1")
    instance.others[instance.shard("rates")] = ("a:1", "b:2")

    own, other = instance.queries.all_metadata()

    lines = [TopicPartition("lines", number) for number in range(2)]
    counted = {"counts", "windows", "sessions"}
    assert (own.host_info, own.host, own.port) == (HostInfo("a", 1), "a", 1)
    assert own.state_store_names == {*counted, "rates"}
    assert own.topic_partitions == {lines[0]}
    assert own.standby_topic_partitions == {lines[1]}
    assert own.standby_state_store_names == counted
    assert other.host == "b"
    assert other.state_store_names == {*counted, "rates"}
    assert other.topic_partitions == {lines[1]}
    assert instance.queries.metadata_for_store("rates") == [own, other]
    with pytest.raises(QueryProblemError, match="no queryable store"):
        instance.queries.metadata_for_store("x")


def test_metadata_of_a_key_tells_whom_to_ask() -> None:
    instance = asked()
    instance.others[instance.shard("counts", A)] = ("b:2", "a:1")
    of_key = instance.queries.query_metadata_for_key

    there = KeyQueryMetadata(HostInfo("b", 2), frozenset({HostInfo("a", 1)}), A)
    assert of_key("counts", "a") == there
    assert of_key("counts", "b", lambda _store, _key, _value, _count: A) == there
    assert of_key("counts", OTHER).active_host == HostInfo("a", 1)
    assert of_key("rates", "eur") == KeyQueryMetadata(HostInfo("a", 1), frozenset(), -1)
    unknown = KeyQueryMetadata.not_available()
    assert of_key("counts", "b", lambda *_: None) == unknown
    assert FakeInstance(_table()).queries.query_metadata_for_key("table", "a") == unknown


def test_an_instance_without_a_server_has_no_address() -> None:
    assert HostInfo.of_name("") == HostInfo.unavailable() == HostInfo("unavailable", -1)
    assert HostInfo.of_name("[::1]:80") == HostInfo("::1", 80)


def test_lags_are_by_store_and_partition() -> None:
    ends = asked().queries.store_partition_ends()

    assert ends["counts"] == {0: (7, 10), 1: (7, 10)}
    assert ends["rates"] == {0: (7, 10)}
