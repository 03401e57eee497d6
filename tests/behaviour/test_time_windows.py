"""Behaviour of aggregations in tumbling, hopping and unlimited windows."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from headrace import (
    EmitStrategy,
    Headers,
    JoinWindows,
    KTable,
    Materialized,
    ProcessingError,
    Record,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StateStoreError,
    StreamsBuilder,
    TimeWindows,
    TopologyError,
    UnlimitedWindows,
    Window,
    Windowed,
)
from headrace.durations import MAX_MS
from headrace.testing import DriverFactory, TopologyTestDriver

Row = tuple[str | None, str | None, int]


def pipe(driver: TopologyTestDriver, *rows: Row) -> None:
    topic = driver.create_input_topic("in")
    for key, value, timestamp in rows:
        topic.pipe_input(key, value, timestamp=timestamp)


def read(driver: TopologyTestDriver) -> list[tuple[str, int, int, Any, int]]:
    """Return key, start, end, value and timestamp of what was emitted."""
    records: list[Record[Any, Any]] = driver.create_output_topic("out").read_records_to_list()
    return [
        (r.key.key, r.key.window.start, r.key.window.end, r.value, r.timestamp) for r in records
    ]


def dropped(driver: TopologyTestDriver) -> float:
    metrics = driver.metrics().items()
    return sum(count for name, count in metrics if name.name == "dropped-records-total")


def joined(_key: str, value: str | None, aggregate: str) -> str:
    return f"{aggregate}+{value}"


UNCACHED: Any = {"statestore_cache_max_bytes": 0}


def windowed(builder: StreamsBuilder, windows: Any) -> Any:
    return builder.stream("in", key=str, value=str).group_by_key().windowed_by(windows)


def counted(windows: Any, **options: Any) -> StreamsBuilder:
    builder = StreamsBuilder()
    windowed(builder, windows).count(**options).to_stream().to("out")
    return builder


def test_a_record_counts_in_the_tumbling_window_that_contains_it(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(counted(TimeWindows(10)).build())

    pipe(driver, ("a", "x", 3), ("a", "x", 9), ("b", "x", 9), ("a", "x", 10))

    assert read(driver) == [
        ("a", 0, 10, 1, 3),
        ("a", 0, 10, 2, 9),
        ("b", 0, 10, 1, 9),
        ("a", 10, 20, 1, 10),
    ]


def test_a_record_counts_in_each_hopping_window_that_contains_it(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(counted(TimeWindows(10, advance=5)).build())

    pipe(driver, ("a", "x", 3), ("a", "x", 7))

    assert read(driver) == [("a", 0, 10, 1, 3), ("a", 0, 10, 2, 7), ("a", 5, 15, 1, 7)]


def test_an_unlimited_window_has_no_end_and_nothing_before_its_start(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(counted(UnlimitedWindows(5)).build())

    pipe(driver, ("a", "x", 4), ("a", "x", 10**12), ("a", "x", 5))

    assert read(driver) == [("a", 5, MAX_MS, 1, 10**12), ("a", 5, MAX_MS, 2, 10**12)]
    assert dropped(driver) == 0


def test_a_late_record_is_counted_as_dropped_once_for_each_closed_window(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(counted(TimeWindows(10, advance=5, grace=2)).build())

    pipe(driver, ("a", "x", 17), ("b", "x", 7), ("b", "x", 4))

    assert read(driver)[2:] == []
    assert dropped(driver) == 3


def test_a_record_within_the_grace_counts(topology_driver: DriverFactory) -> None:
    driver = topology_driver(counted(TimeWindows(10, grace=5)).build())

    pipe(driver, ("a", "x", 14), ("b", "x", 9), ("a", "x", 15), ("b", "x", 9))

    assert [row[:1] + row[3:] for row in read(driver)] == [("a", 1, 14), ("b", 1, 9), ("a", 2, 15)]
    assert dropped(driver) == 1


def test_a_record_without_a_key_is_dropped_and_does_not_move_time(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(counted(TimeWindows(10)).build())

    pipe(driver, (None, "x", 50), ("a", "x", 3))

    assert read(driver) == [("a", 0, 10, 1, 3)]
    assert dropped(driver) == 1


def test_a_record_without_a_value_counts_and_moves_time(topology_driver: DriverFactory) -> None:
    driver = topology_driver(counted(TimeWindows(10)).build())

    pipe(driver, ("a", None, 12), ("a", "x", 3))

    assert read(driver) == [("a", 10, 20, 1, 12)]


def test_values_are_folded_and_the_timestamp_is_the_latest(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    totals = windowed(builder, TimeWindows(10)).aggregate(
        lambda: "0", joined, materialized=Materialized("totals", value=str)
    )
    totals.to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("a", "1", 7), ("a", "2", 3))

    assert read(driver) == [("a", 0, 10, "0+1", 7), ("a", 0, 10, "0+1+2", 7)]
    assert list(driver.get_window_store("totals").fetch("a", 0, 100)) == [(0, "0+1+2")]


def test_the_first_value_starts_a_reduction(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    windowed(builder, TimeWindows(10)).reduce(lambda left, right: left + right).to_stream().to(
        "out"
    )
    driver = topology_driver(builder.build())

    pipe(driver, ("a", "1", 1), ("a", "2", 2), ("a", "3", 11))

    assert [row[3] for row in read(driver)] == ["1", "12", "3"]


def test_an_aggregator_that_returns_none_deletes_the_window_with_one_warning(
    topology_driver: DriverFactory, caplog: pytest.LogCaptureFixture
) -> None:
    builder = StreamsBuilder()
    table = windowed(builder, TimeWindows(10)).aggregate(
        str, lambda _k, v, a: None if v in ("-", None) else a + v, materialized="t", name="folded"
    )
    table.to_stream().to("out")
    driver = topology_driver(builder.build(), **UNCACHED)

    with caplog.at_level(logging.WARNING, logger="headrace"):
        pipe(driver, ("a", "1", 1), ("b", None, 1))
        assert caplog.text == ""
        pipe(driver, ("a", "-", 2), ("a", "-", 3), ("a", "2", 4))

    assert [row[3] for row in read(driver)] == ["1", None, None, None, "2"]
    assert [r.getMessage() for r in caplog.records if "folded" in r.getMessage()] == [
        "The aggregator of step 'folded' returned None, which deletes the entry: forgot `return`? "
        "Annotate it `-> … | None` if that is meant."
    ]


def test_an_aggregator_may_change_what_it_is_given(topology_driver: DriverFactory) -> None:
    def append(_key: str, value: str, items: list[str]) -> list[str]:
        items.append(value)
        return items

    builder = StreamsBuilder()
    table: KTable[Windowed[str], list[str]] = windowed(builder, TimeWindows(10)).aggregate(
        list, append, materialized=Materialized(value=list[str])
    )
    table.group_by(lambda window, items: (window.key, items), key=str, value=list[str]).aggregate(
        str,
        lambda _key, items, seen: f"{seen} +{len(items)}",
        lambda _key, items, seen: f"{seen} -{len(items)}",
        materialized="lengths",
    )
    driver = topology_driver(builder.build(), **UNCACHED)

    pipe(driver, ("a", "1", 1), ("a", "2", 2), ("a", "3", 3))

    # The first old value is what the initializer gives, as in Kafka.
    assert driver.get_key_value_store("lengths").get("a") == " +1 -1 +2 -2 +3"


def test_the_initializer_is_called_once_without_old_values(
    topology_driver: DriverFactory,
) -> None:
    calls: list[str] = []

    def start() -> str:
        calls.append("called")
        return ""

    builder = StreamsBuilder()
    windowed(builder, TimeWindows(10)).aggregate(start, joined, materialized="t")
    driver = topology_driver(builder.build(), **UNCACHED)

    pipe(driver, ("a", "1", 1), ("a", "2", 2))

    assert calls == ["called"]


def test_a_failing_aggregator_leaves_the_record_out_of_the_remaining_windows(
    topology_driver: DriverFactory,
) -> None:
    def fail_once(_key: str, value: str, count: int) -> int:
        if value == "bad" and count:
            msg = "no"
            raise ValueError(msg)
        return count + 1

    builder = StreamsBuilder()
    windowed(builder, TimeWindows(10, advance=5)).aggregate(int, fail_once).to_stream().to("out")
    driver = topology_driver(builder.build(), processing_exception_handler="continue", **UNCACHED)

    pipe(driver, ("a", "x", 2), ("a", "bad", 7), ("a", "x", 8))

    assert [row[1:4] for row in read(driver)] == [(0, 10, 1), (0, 10, 2), (5, 15, 1)]


def test_a_value_that_the_serde_refuses_stops_the_application(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    windowed(builder, TimeWindows(10)).aggregate(
        str, lambda _k, _v, _a: 7, materialized=Materialized("t", value=str)
    )
    driver = topology_driver(builder.build())

    with pytest.raises(ProcessingError, match="StringSerde writes str, but got int"):
        pipe(driver, ("a", "x", 2))


def test_a_cached_value_that_the_serde_refuses_stops_the_application_at_commit(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    windowed(builder, TimeWindows(10)).aggregate(
        str,
        lambda _k, value, _a: value if value == "ok" else 7,
        materialized=Materialized("t", value=str),
    )
    driver = topology_driver(builder.build(), commit_each_record=False)
    pipe(driver, ("a", "ok", 2), ("a", "bad", 3))

    with pytest.raises(StateStoreError, match="Store 't' cannot write the value of key 'a'"):
        driver.commit()


def test_headers_of_the_record_are_passed_on(topology_driver: DriverFactory) -> None:
    driver = topology_driver(counted(TimeWindows(10)).build())

    topic = driver.create_input_topic("in")
    topic.pipe_input("a", "x", timestamp=1, headers=[("h", b"1")])

    record = driver.create_output_topic("out").read_record()
    assert record.headers == Headers([("h", b"1")])


@pytest.mark.parametrize("windows", [TimeWindows(10), SlidingWindows(10)])
def test_with_a_cache_a_window_is_emitted_once_at_commit(
    topology_driver: DriverFactory, windows: Any
) -> None:
    driver = topology_driver(
        counted(windows).build(),
        commit_each_record=False,
        statestore_cache_max_bytes=10**6,
    )

    pipe(driver, ("a", "x", 3), ("b", "x", 3), ("a", "x", 3))
    before = read(driver)
    driver.commit()

    assert before == []
    assert read(driver) == [("b", 0, 10, 1, 3), ("a", 0, 10, 2, 3)]


@pytest.mark.parametrize("windows", [TimeWindows(10), SlidingWindows(10)])
def test_a_window_can_be_looked_up_by_a_join(topology_driver: DriverFactory, windows: Any) -> None:
    builder = StreamsBuilder()
    key = Serdes.time_windowed(Serdes.string(), 10)
    names = builder.table("names", key=key, value=str)
    windowed(builder, windows).count().join(
        names, lambda count, name: f"{name}:{count}", value=str
    ).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("a", "x", 1))
    driver.create_input_topic("names").pipe_input(Windowed("a", Window(0, 10)), "n", timestamp=2)
    pipe(driver, ("a", "x", 3))

    assert [row[3] for row in read(driver)] == ["n:1", "n:2"]


@pytest.mark.parametrize("windows", [TimeWindows(10), SlidingWindows(10), SessionWindows(0)])
def test_a_step_that_fails_during_an_eviction_is_named_in_the_error(
    topology_driver: DriverFactory, windows: Any
) -> None:
    builder = StreamsBuilder()
    table = windowed(builder, windows).count()
    table.to_stream().map_values(lambda count: 1 // (count - 1), value=int, name="fails").to("out")
    driver = topology_driver(
        builder.build(), commit_each_record=False, statestore_cache_max_bytes=100
    )

    with pytest.raises(ProcessingError) as raised:
        pipe(driver, ("a", "x", 30), ("b", "x", 30))

    assert raised.value.node == "fails"


# -- emit strategy ------------------------------------------------------------------------------


def test_a_window_is_emitted_once_when_it_closes(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    closing = windowed(builder, TimeWindows(10, grace=5)).emit_strategy(
        EmitStrategy.on_window_close()
    )
    closing.count(materialized=Materialized(retention=100)).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("b", "x", 1), ("a", "x", 2), ("a", "x", 14), ("a", "x", 8))
    assert read(driver) == []
    pipe(driver, ("c", "x", 15))
    assert read(driver) == [("a", 0, 10, 2, 8), ("b", 0, 10, 1, 1)]
    pipe(driver, ("c", "x", 40), ("c", "x", 41))
    assert read(driver) == [("a", 10, 20, 1, 14), ("c", 10, 20, 1, 15)]


def test_a_window_is_emitted_the_moment_it_closes_although_others_were_just_before(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    closing = windowed(builder, TimeWindows(10)).emit_strategy(EmitStrategy.on_window_close())
    closing.count().to_stream().to("out")
    driver = topology_driver(builder.build(), **UNCACHED)

    pipe(driver, ("a", "x", 1), ("a", "x", 19))
    assert read(driver) == [("a", 0, 10, 1, 1)]
    pipe(driver, ("b", "x", 20))
    assert read(driver) == [("a", 10, 20, 1, 19)]


def test_as_in_kafka_a_jump_of_time_past_the_retention_loses_closed_windows(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    closing = windowed(builder, TimeWindows(10, grace=5)).emit_strategy(
        EmitStrategy.on_window_close()
    )
    closing.count().to_stream().to("out")
    driver = topology_driver(builder.build(), **UNCACHED)

    pipe(driver, ("a", "x", 15), ("a", "x", 30))

    assert read(driver) == []


def test_a_closed_window_is_emitted_once_even_if_the_store_is_cached(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    closing = windowed(builder, TimeWindows(10)).emit_strategy(EmitStrategy.on_window_close())
    closing.count().to_stream().to("out")
    driver = topology_driver(builder.build(), statestore_cache_max_bytes=10**6)

    pipe(driver, ("a", "x", 1), ("a", "x", 12), ("a", "x", 25))

    assert read(driver) == [("a", 0, 10, 1, 1), ("a", 10, 20, 1, 12)]


def test_emitting_updates_can_be_chosen_again(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    stream = windowed(builder, TimeWindows(10)).emit_strategy(EmitStrategy.on_window_close())
    stream.emit_strategy(EmitStrategy.on_window_update()).count().to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("a", "x", 1))

    assert len(read(driver)) == 1


# -- wrong programs -----------------------------------------------------------------------------


def test_windows_without_a_length_are_refused() -> None:
    with pytest.raises(TopologyError, match="`size` is 0, which is too short"):
        TimeWindows(0)


def test_a_grace_that_overflows_is_refused() -> None:
    with pytest.raises(TopologyError, match="does not fit in 64 bits"):
        TimeWindows(10, grace=MAX_MS)


def test_a_retention_that_is_shorter_than_windows_take_records_is_refused() -> None:
    builder = StreamsBuilder()
    stream = windowed(builder, TimeWindows(10, grace=5))

    with pytest.raises(TopologyError, match=r"`retention` of store 's' is 14 ms, but .* 15 ms"):
        stream.count(materialized=Materialized("s", retention=14))


def test_a_history_is_not_for_windows() -> None:
    stream = windowed(StreamsBuilder(), TimeWindows(10))

    with pytest.raises(TopologyError, match="Use `retention=` for windows"):
        stream.count(materialized=Materialized("s", history_retention=100))


def test_a_retention_is_not_for_tables_without_windows() -> None:
    grouped = StreamsBuilder().stream("in", key=str, value=str).group_by_key()

    with pytest.raises(TopologyError, match="`retention=`, which is for windows"):
        grouped.count(materialized=Materialized("s", retention=100))


def test_unlimited_windows_cannot_wait_for_their_close() -> None:
    stream = windowed(StreamsBuilder(), UnlimitedWindows())

    with pytest.raises(TopologyError, match=r"UnlimitedWindows\(start=0\) never close"):
        stream.emit_strategy(EmitStrategy.on_window_close())


def test_windows_of_a_join_are_not_for_aggregations() -> None:
    grouped = StreamsBuilder().stream("in", key=str, value=str).group_by_key()

    with pytest.raises(TopologyError, match="`windowed_by` was given JoinWindows"):
        grouped.windowed_by(JoinWindows(10))  # type: ignore[call-overload]
    with pytest.raises(TopologyError, match="`windowed_by` was given JoinWindows"):
        grouped.cogroup(joined).windowed_by(JoinWindows(10))  # type: ignore[call-overload]


@pytest.mark.parametrize("windows", [TimeWindows(10), SlidingWindows(10)])
def test_functions_that_cannot_be_called_are_refused(windows: Any) -> None:
    stream = windowed(StreamsBuilder(), windows)

    with pytest.raises(TopologyError, match=r"step 'reduce' .* called with 2 arguments"):
        stream.reduce(lambda value: value)
    with pytest.raises(TopologyError, match=r"step 'sums' .* called with 3 arguments"):
        stream.aggregate(int, lambda value, count: count, name="sums")
    with pytest.raises(TopologyError, match="has no aggregator"):
        stream.aggregate(int)


@pytest.mark.parametrize("windows", [TimeWindows(10), SlidingWindows(10), SessionWindows(10)])
def test_a_store_without_a_name_is_refused_where_names_are_required(windows: Any) -> None:
    unnamed, named = counted(windows).build(), counted(windows, materialized="counts").build()

    with pytest.raises(TopologyError, match="STATE-STORE"):
        TopologyTestDriver(unnamed, ensure_explicit_internal_resource_naming=True)
    assert TopologyTestDriver(named, ensure_explicit_internal_resource_naming=True)


def test_a_negative_timestamp_reaches_no_window(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=str, timestamp_extractor=lambda _record, _time: -1)
    stream.group_by_key().windowed_by(TimeWindows(10)).count().to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("a", "x", 3))

    assert read(driver) == []
    assert dropped(driver) == 1


def test_a_store_of_windows_is_no_session_store(topology_driver: DriverFactory) -> None:
    driver = topology_driver(counted(TimeWindows(10), materialized="counts").build())

    assert driver.get_session_store("counts") is None
    assert driver.get_key_value_store("counts") is None
    assert driver.get_timestamped_window_store("counts") is not None
