"""Behaviour of aggregations in sliding windows."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from headrace import (
    EmitStrategy,
    Materialized,
    ProcessingError,
    Record,
    SlidingWindows,
    StreamsBuilder,
    TopologyError,
)
from headrace.testing import DriverFactory, TopologyTestDriver

Row = tuple[str | None, str | None, int]
UNCACHED: Any = {"statestore_cache_max_bytes": 0}
SIZE = 10


def pipe(driver: TopologyTestDriver, *rows: Row) -> None:
    topic = driver.create_input_topic("in")
    for key, value, timestamp in rows:
        topic.pipe_input(key, value, timestamp=timestamp)


def read(driver: TopologyTestDriver) -> list[tuple[int, Any]]:
    """Return start and value of what was emitted."""
    records: list[Record[Any, Any]] = driver.create_output_topic("out").read_records_to_list()
    return [(record.key.window.start, record.value) for record in records]


def dropped(driver: TopologyTestDriver) -> float:
    metrics = driver.metrics().items()
    return sum(count for name, count in metrics if name.name == "dropped-records-total")


def joined(_key: str, value: str, aggregate: str) -> str:
    return aggregate + value


def sliding(*, grace: int = 50, on_close: bool = False, **options: Any) -> StreamsBuilder:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=str, value=str).group_by_key()
    windows = grouped.windowed_by(SlidingWindows(SIZE, grace=grace))
    if on_close:
        windows = windows.emit_strategy(EmitStrategy.on_window_close())
    windows.aggregate(str, joined, **options).to_stream().to("out")
    return builder


def final(driver: TopologyTestDriver) -> dict[int, str]:
    """Return the last value of each window."""
    return dict(read(driver))


def test_a_record_is_in_the_window_that_ends_with_it_and_in_those_around_it(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(sliding().build(), **UNCACHED)

    pipe(driver, ("a", "1", 20), ("a", "2", 25), ("a", "3", 40))

    assert read(driver) == [
        (10, "1"),  # ends with the first record
        (21, "2"),  # right of the first record
        (15, "12"),  # ends with the second record
        (30, "3"),
    ]


def test_a_window_shows_its_bounds_and_its_latest_timestamp(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(sliding().build(), **UNCACHED)

    pipe(driver, ("a", "1", 25), ("a", "2", 20))

    records = driver.create_output_topic("out").read_records_to_list()
    assert [(r.key.window.start, r.key.window.end, r.value, r.timestamp) for r in records] == [
        (15, 25, "1", 25),
        (15, 25, "12", 25),
        (10, 20, "2", 20),
        (21, 31, "1", 25),
    ]


@pytest.mark.parametrize("order", [(10, 20, 22, 15), (22, 20, 15, 10), (15, 22, 10, 20)], ids=str)
def test_the_windows_do_not_depend_on_the_order_of_the_records(
    topology_driver: DriverFactory, order: tuple[int, ...]
) -> None:
    driver = topology_driver(sliding().build(), **UNCACHED)
    names = {10: "1", 20: "2", 22: "3", 15: "4"}

    pipe(driver, *(("a", names[timestamp], timestamp) for timestamp in order))

    assert {start: "".join(sorted(value)) for start, value in final(driver).items()} == {
        0: "1",
        5: "14",
        10: "124",
        11: "24",
        12: "234",
        16: "23",
        21: "3",
    }


def test_early_records_share_the_window_that_starts_at_zero(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(sliding().build(), **UNCACHED)

    pipe(driver, ("a", "1", 2), ("a", "2", 6), ("a", "3", 4), ("a", "4", 0))

    assert final(driver) == {0: "1234", 3: "23", 5: "2", 1: "123"}


def test_an_early_record_at_the_time_of_another_makes_no_window_twice(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(sliding().build(), **UNCACHED)

    pipe(driver, ("a", "1", 2), ("a", "2", 6), ("a", "3", 2))

    assert read(driver) == [(0, "1"), (3, "2"), (0, "12"), (0, "123")]


def test_records_of_one_time_share_all_their_windows(topology_driver: DriverFactory) -> None:
    driver = topology_driver(sliding().build(), **UNCACHED)

    pipe(driver, ("a", "1", 20), ("a", "2", 20), ("a", "3", 25), ("a", "4", 25))

    assert final(driver) == {10: "12", 15: "1234", 21: "34"}


def test_as_in_kafka_records_just_too_far_apart_emit_their_shared_window_twice(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(sliding().build(), **UNCACHED)

    pipe(driver, ("a", "1", 18), ("a", "2", 20))
    before = read(driver)
    pipe(driver, ("a", "3", 31))

    assert before == [(8, "1"), (19, "2"), (10, "12")]
    assert read(driver) == [(21, "3"), (21, "3")]


def test_keys_have_windows_of_their_own(topology_driver: DriverFactory) -> None:
    driver = topology_driver(sliding().build(), **UNCACHED)

    pipe(driver, ("a", "1", 20), ("b", "2", 22))

    assert read(driver) == [(10, "1"), (12, "2")]


def test_records_without_key_or_value_are_dropped_and_do_not_move_time(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(sliding(grace=0).build(), **UNCACHED)

    pipe(driver, (None, "x", 100), ("a", None, 100), ("a", "1", 20))

    assert read(driver) == [(10, "1")]
    reasons = [dict(name.tags).get("reason") for name in driver.metrics()]
    assert [reason for reason in reasons if reason] == ["null-key", "null-value"]


def test_a_record_too_late_for_every_window_is_dropped(topology_driver: DriverFactory) -> None:
    driver = topology_driver(sliding(grace=5).build(), **UNCACHED)

    pipe(driver, ("a", "1", 100), ("b", "2", 84), ("c", "3", 85))

    # The window of `c` that ends at 85 is closed; the record counts for later ones only.
    assert read(driver) == [(90, "1")]
    assert dropped(driver) == 2


def test_a_late_record_still_counts_in_the_windows_that_are_open(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(sliding(grace=5).build(), **UNCACHED)

    pipe(driver, ("a", "1", 96), ("a", "2", 110), ("a", "3", 97))

    assert read(driver)[2:] == [(97, "3")]
    assert dropped(driver) == 1


def test_the_aggregates_of_two_windows_are_never_the_same_object(
    topology_driver: DriverFactory,
) -> None:
    def append(_key: str, value: str, items: list[str]) -> list[str]:
        items.append(value)
        return items

    builder = StreamsBuilder()
    grouped = builder.stream("in", key=str, value=str).group_by_key()
    table = grouped.windowed_by(SlidingWindows(SIZE, grace=50)).aggregate(
        list[str], append, materialized="lists"
    )
    table.to_stream().to("out")
    driver = topology_driver(builder.build(), commit_each_record=False)

    pipe(driver, ("a", "1", 20), ("a", "2", 25), ("a", "3", 22), ("a", "4", 24))
    driver.commit()

    store = driver.get_window_store("lists")
    assert dict(store.fetch("a", 0, 100)) == {
        10: ["1"],
        12: ["1", "3"],
        14: ["1", "3", "4"],
        15: ["1", "2", "3", "4"],
        21: ["2", "3", "4"],
        23: ["2", "4"],
        25: ["2"],
    }


def test_regrouping_sees_the_old_value_of_each_window(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=str, value=str).group_by_key()
    table = grouped.windowed_by(SlidingWindows(SIZE, grace=50)).reduce(lambda one, two: one + two)
    table.group_by(lambda window, text: (window.key, text), key=str, value=str).aggregate(
        str,
        lambda _key, text, seen: f"{seen} +{text}",
        lambda _key, text, seen: f"{seen} -{text}",
        materialized="seen",
    )
    driver = topology_driver(builder.build(), **UNCACHED)

    pipe(driver, ("a", "1", 20), ("a", "2", 25), ("a", "3", 22))

    # As in Kafka, what a new window takes over from the one before it counts as its old value.
    assert driver.get_key_value_store("seen").get("a") == (
        " +1 +2 -1 +12 -2 +23 -12 +123 -1 +13 +2"
    )


def test_windows_are_emitted_once_when_they_close(topology_driver: DriverFactory) -> None:
    driver = topology_driver(sliding(grace=5, on_close=True).build(), **UNCACHED)

    pipe(driver, ("a", "1", 20), ("a", "2", 23), ("a", "3", 25))
    before = read(driver)
    pipe(driver, ("b", "x", 31), ("b", "y", 41))

    assert before == []
    assert read(driver) == [
        (10, "1"),
        (13, "12"),
        (15, "123"),
        (21, "23"),
        (21, "x"),
        (24, "3"),
    ]


def test_the_first_window_is_emitted_as_soon_as_it_is_closed(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(sliding(grace=0, on_close=True).build(), **UNCACHED)

    pipe(driver, ("a", "1", 0), ("a", "2", 10))
    assert read(driver) == []
    pipe(driver, ("a", "3", 11))
    assert read(driver) == [(0, "12")]


def test_as_in_kafka_an_early_record_emits_no_closed_windows(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(sliding(grace=0, on_close=True).build(), **UNCACHED)

    pipe(driver, ("a", "1", 0), ("a", "2", 9))

    assert read(driver) == []


def test_an_aggregator_that_returns_none_deletes_the_window_with_one_warning(
    topology_driver: DriverFactory, caplog: pytest.LogCaptureFixture
) -> None:
    builder = StreamsBuilder()
    windows = builder.stream("in", key=str, value=str).group_by_key()
    windows.windowed_by(SlidingWindows(SIZE)).aggregate(
        str, lambda _k, v, a: None if v == "-" else f"{a}{v}", materialized="t"
    ).to_stream().to("out")
    driver = topology_driver(builder.build(), **UNCACHED)

    with caplog.at_level(logging.WARNING, logger="headrace"):
        pipe(driver, ("a", "1", 20))
        assert caplog.text == ""
        pipe(driver, ("a", "-", 20), ("a", "-", 20))

    assert read(driver) == [(10, "1"), (10, None), (10, None)]
    assert caplog.text.count("forgot `return`?") == 1


def test_a_failing_aggregator_leaves_the_record_out(topology_driver: DriverFactory) -> None:
    def careful(_key: str, value: str, text: str) -> str:
        if value == "bad":
            msg = "no"
            raise ValueError(msg)
        return text + value

    builder = StreamsBuilder()
    grouped = builder.stream("in", key=str, value=str).group_by_key()
    windows = grouped.windowed_by(SlidingWindows(SIZE))
    windows.aggregate(str, careful).to_stream().to("out")
    driver = topology_driver(builder.build(), processing_exception_handler="continue")

    pipe(driver, ("a", "1", 20), ("a", "bad", 21), ("a", "bad", 2), ("a", "2", 22))

    assert read(driver) == [(10, "1"), (21, "2"), (12, "12")]


def test_a_difference_of_zero_fails_at_the_first_record_as_in_kafka(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=str, value=str).group_by_key()
    grouped.windowed_by(SlidingWindows(0)).count().to_stream().to("out")
    driver = topology_driver(builder.build())

    with pytest.raises(ProcessingError, match="have a time difference of 0"):
        pipe(driver, ("a", "1", 20))


def test_a_retention_must_reach_back_two_differences_and_the_grace() -> None:
    with pytest.raises(TopologyError, match=r"need 25 ms"):
        sliding(grace=5, materialized=Materialized("s", retention=24))
