"""Behaviour of aggregations in sessions."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from headrace import (
    EmitStrategy,
    Materialized,
    Record,
    Serdes,
    SessionWindows,
    StreamsBuilder,
    TopologyError,
    Window,
    Windowed,
)
from headrace.aggregators import Aggregation
from headrace.testing import DriverFactory, TopologyTestDriver

Row = tuple[str | None, str | None, int]
UNCACHED: Any = {"statestore_cache_max_bytes": 0}


def pipe(driver: TopologyTestDriver, *rows: Row) -> None:
    topic = driver.create_input_topic("in")
    for key, value, timestamp in rows:
        topic.pipe_input(key, value, timestamp=timestamp)


def read(driver: TopologyTestDriver) -> list[tuple[int, int, Any, int]]:
    """Return start, end, value and timestamp of what was emitted."""
    records: list[Record[Any, Any]] = driver.create_output_topic("out").read_records_to_list()
    return [(r.key.window.start, r.key.window.end, r.value, r.timestamp) for r in records]


def dropped(driver: TopologyTestDriver) -> float:
    metrics = driver.metrics().items()
    return sum(count for name, count in metrics if name.name == "dropped-records-total")


def sessions(builder: StreamsBuilder, gap: int = 5, grace: int = 0) -> Any:
    grouped = builder.stream("in", key=str, value=str).group_by_key()
    return grouped.windowed_by(SessionWindows(gap, grace=grace))


def counted(gap: int = 5, grace: int = 0, **options: Any) -> StreamsBuilder:
    builder = StreamsBuilder()
    sessions(builder, gap, grace).count(**options).to_stream().to("out")
    return builder


def test_a_session_grows_while_records_follow_within_the_gap(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(counted().build(), **UNCACHED)

    pipe(driver, ("a", "x", 0), ("a", "x", 5), ("a", "x", 11))

    assert read(driver) == [
        (0, 0, 1, 0),
        (0, 0, None, 0),
        (0, 5, 2, 5),
        (11, 11, 1, 11),
    ]


def test_a_record_between_two_sessions_merges_them(topology_driver: DriverFactory) -> None:
    driver = topology_driver(counted(grace=20).build(), **UNCACHED)

    pipe(driver, ("a", "x", 0), ("a", "x", 10), ("a", "x", 5))

    assert read(driver)[2:] == [(0, 0, None, 0), (10, 10, None, 10), (0, 10, 3, 10)]


def test_a_record_inside_a_session_deletes_and_inserts_it_again(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(counted().build(), **UNCACHED)

    pipe(driver, ("a", "x", 0), ("a", "x", 5), ("a", "x", 1))

    assert read(driver)[3:] == [(0, 5, None, 5), (0, 5, 3, 5)]


def test_with_a_cache_a_record_inside_a_session_is_one_update(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(counted().build())

    pipe(driver, ("a", "x", 0), ("a", "x", 5), ("a", "x", 1))

    assert read(driver) == [(0, 0, 1, 0), (0, 0, None, 0), (0, 5, 2, 5), (0, 5, 3, 5)]


def test_a_record_at_the_very_time_of_a_session_updates_it(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(counted().build(), **UNCACHED)

    pipe(driver, ("a", "x", 3), ("a", "x", 3))

    assert read(driver) == [(3, 3, 1, 3), (3, 3, 2, 3)]


def test_as_in_kafka_a_session_without_retention_starts_again(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(counted(gap=0).build(), **UNCACHED)

    pipe(driver, ("a", "x", 3), ("a", "x", 3), ("a", "x", 4))

    assert read(driver) == [(3, 3, 1, 3), (3, 3, 1, 3), (4, 4, 1, 4)]


def test_keys_have_sessions_of_their_own(topology_driver: DriverFactory) -> None:
    driver = topology_driver(counted().build(), **UNCACHED)

    pipe(driver, ("a", "x", 0), ("b", "x", 1))

    assert read(driver) == [(0, 0, 1, 0), (1, 1, 1, 1)]


def test_a_record_is_late_when_its_session_ended_gap_and_grace_ago(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(counted(gap=10, grace=1).build(), **UNCACHED)

    pipe(driver, ("a", "x", 11), ("b", "x", 0), ("a", "x", 12), ("c", "x", 0))

    assert [row[:3] for row in read(driver)] == [
        (11, 11, 1),
        (0, 0, 1),
        (11, 11, None),
        (11, 12, 2),
    ]
    assert dropped(driver) == 1


def test_a_record_without_a_key_is_dropped_and_one_without_a_value_counts(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(counted().build(), **UNCACHED)

    pipe(driver, (None, "x", 50), ("a", None, 3))

    assert read(driver) == [(3, 3, 1, 3)]
    assert dropped(driver) == 1


def test_aggregates_are_merged_before_the_record_is_added(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    sessions(builder, grace=50).aggregate(
        lambda: "0",
        lambda _key, value, text: f"{text}+{value}",
        lambda _key, one, other: f"({one}|{other})",
        materialized=Materialized(value=str),
    ).to_stream().to("out")
    driver = topology_driver(builder.build(), **UNCACHED)

    pipe(driver, ("a", "1", 0), ("a", "2", 10), ("a", "3", 5))

    assert read(driver)[-1] == (0, 10, "((0|0+1)|0+2)+3", 10)


def test_the_first_value_starts_a_reduction_and_sessions_are_reduced_too(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    reduced = sessions(builder, grace=50).reduce(lambda one, other: one + other)
    reduced.to_stream().to("out")
    driver = topology_driver(builder.build(), **UNCACHED)

    pipe(driver, ("a", "1", 0), ("a", "2", 10), ("a", "3", 5))

    assert [row[2] for row in read(driver)] == ["1", "2", None, None, "123"]


def test_a_merger_may_change_what_it_is_given_and_old_values_stay(
    topology_driver: DriverFactory,
) -> None:
    def append(_key: str, value: str, items: list[str]) -> list[str]:
        items.append(value)
        return items

    def merge(_key: str, items: list[str], others: list[str]) -> list[str]:
        others.extend(items)
        return others

    builder = StreamsBuilder()
    table = sessions(builder, grace=50).aggregate(list[str], append, merge)
    table.group_by(lambda window, items: (window.key, items), key=str, value=list[str]).aggregate(
        str,
        lambda _key, items, seen: f"{seen} +{len(items)}",
        lambda _key, items, seen: f"{seen} -{len(items)}",
        materialized="lengths",
    )
    driver = topology_driver(builder.build(), **UNCACHED)

    pipe(driver, ("a", "1", 0), ("a", "2", 4))

    assert driver.get_key_value_store("lengths").get("a") == " +1 -1 +2"


def test_a_session_can_be_looked_up_by_a_join(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    names = builder.table("names", key=Serdes.session_windowed(Serdes.string()), value=str)
    sessions(builder).count().join(
        names, lambda count, name: f"{name}:{count}", value=str
    ).to_stream().to("out")
    driver = topology_driver(builder.build(), **UNCACHED)

    topic = driver.create_input_topic("names")
    pipe(driver, ("a", "x", 1))
    topic.pipe_input(Windowed("a", Window(1, 1)), "n", timestamp=2)
    topic.pipe_input(Windowed("a", Window(2, 2)), "none", timestamp=2)

    assert read(driver) == [(1, 1, "n:1", 2)]


def test_a_session_is_emitted_once_when_it_closes(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    closing = sessions(builder, grace=2).emit_strategy(EmitStrategy.on_window_close())
    closing.count().to_stream().to("out")
    driver = topology_driver(builder.build(), commit_each_record=False)

    pipe(driver, ("a", "x", 0), ("a", "x", 3), ("b", "x", 10))
    before = read(driver)
    pipe(driver, ("b", "x", 11), ("b", "x", 12), ("b", "x", 30))

    assert before == []
    assert read(driver) == [(0, 3, 2, 3), (10, 12, 3, 12)]


def test_a_session_that_ended_at_the_last_close_time_is_emitted_at_the_next(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    closing = sessions(builder, grace=2).emit_strategy(EmitStrategy.on_window_close())
    closing.count().to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("a", "x", 0), ("a", "x", 4), ("b", "x", 11))
    before = read(driver)
    pipe(driver, ("b", "x", 12))

    assert before == []
    assert read(driver) == [(0, 4, 2, 4)]


def test_an_aggregator_that_returns_none_deletes_the_session_with_one_warning(
    topology_driver: DriverFactory, caplog: pytest.LogCaptureFixture
) -> None:
    builder = StreamsBuilder()
    sessions(builder).aggregate(
        str,
        lambda _k, v, a: None if v in ("-", None) else a + v,
        lambda _k, one, other: one + other,
        materialized="t",
    ).to_stream().to("out")
    driver = topology_driver(builder.build(), **UNCACHED)

    with caplog.at_level(logging.WARNING, logger="headrace"):
        pipe(driver, ("a", "1", 0), ("b", None, 0))
        assert caplog.text == ""
        pipe(driver, ("a", "-", 1), ("a", "-", 20))

    assert [row[2] for row in read(driver)] == ["1", None, None, None, None]
    assert caplog.text.count("forgot `return`?") == 1


@pytest.mark.parametrize("which", ["aggregator", "merger"])
def test_a_failing_function_leaves_the_record_out(
    topology_driver: DriverFactory, which: str
) -> None:
    def fail(*_arguments: Any) -> str:
        msg = "no"
        raise ValueError(msg)

    def add(_key: str, value: str, text: str) -> str:
        return fail() if value == "bad" and which == "aggregator" else text + value

    builder = StreamsBuilder()
    merge = fail if which == "merger" else lambda _k, one, other: one + other
    sessions(builder).aggregate(str, add, merge).to_stream().to("out")
    driver = topology_driver(builder.build(), processing_exception_handler="continue", **UNCACHED)

    pipe(driver, ("a", "1", 0), ("a", "bad", 3), ("a", "2", 20))

    # As in Kafka, what the record replaced is gone already when the aggregator fails.
    replaced = [(0, 0, None, 0)] if which == "aggregator" else []
    assert read(driver) == [(0, 0, "1", 0), *replaced, (20, 20, "2", 20)]


def test_sessions_need_a_merger() -> None:
    stream = sessions(StreamsBuilder())
    cannot_merge: Aggregation[str, int] = Aggregation(int, lambda _key, _value, count: count + 1)

    with pytest.raises(TopologyError, match="Step 'aggregate' has no merger"):
        stream.aggregate(int, lambda _key, _value, count: count)
    with pytest.raises(TopologyError, match="cannot merge two aggregates"):
        stream.aggregate(cannot_merge)
    with pytest.raises(TopologyError, match="called with 3 arguments"):
        stream.aggregate(int, lambda _key, _value, count: count, lambda one, other: one)


def test_a_retention_must_be_as_long_as_gap_and_grace() -> None:
    with pytest.raises(TopologyError, match="need 7 ms"):
        counted(gap=5, grace=2, materialized=Materialized("s", retention=6))


def test_a_store_of_sessions_is_no_window_store(topology_driver: DriverFactory) -> None:
    driver = topology_driver(counted(materialized="counts").build())

    pipe(driver, ("a", "x", 0))

    assert driver.get_window_store("counts") is None
    assert driver.get_session_store("counts").fetch_session("a", 0, 0) == 1
