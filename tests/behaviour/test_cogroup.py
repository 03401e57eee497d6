"""Behaviour of `KGroupedStream.cogroup`."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import (
    KGroupedStream,
    Materialized,
    Record,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    TopologyError,
)
from headrace.testing import DriverFactory, TopologyTestDriver

UNCACHED: Any = {"statestore_cache_max_bytes": 0}


def left(_key: str, value: str, text: str) -> str:
    return f"{text}<{value}"


def right(_key: str, value: str, text: str) -> str:
    return f"{text}>{value}"


def merged(_key: str, one: str, other: str) -> str:
    return one + other


def grouped(builder: StreamsBuilder, topic: str, **options: Any) -> KGroupedStream[str, str]:
    return builder.stream(topic, key=str, value=str).group_by_key(**options)


def pipe(driver: TopologyTestDriver, *rows: tuple[str, str | None, str | None, int]) -> None:
    for topic, key, value, timestamp in rows:
        driver.create_input_topic(topic).pipe_input(key, value, timestamp=timestamp)


def read(driver: TopologyTestDriver) -> list[tuple[Any, Any, int]]:
    records: list[Record[Any, Any]] = driver.create_output_topic("out").read_records_to_list()
    return [(str(record.key), record.value, record.timestamp) for record in records]


def dropped(driver: TopologyTestDriver) -> float:
    metrics = driver.metrics().items()
    return sum(count for name, count in metrics if name.name == "dropped-records-total")


def cogrouped(builder: StreamsBuilder) -> Any:
    return grouped(builder, "left").cogroup(left).cogroup(grouped(builder, "right"), right)


def test_streams_share_one_aggregate_per_key(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    cogrouped(builder).aggregate(str).to_stream().to("out")
    driver = topology_driver(builder.build(), **UNCACHED)

    pipe(
        driver,
        ("left", "a", "1", 5),
        ("right", "a", "2", 3),
        ("right", "b", "3", 6),
        ("left", "a", None, 7),
        ("right", None, "4", 8),
    )

    assert read(driver) == [("a", "<1", 5), ("a", "<1>2", 5), ("b", ">3", 6)]
    assert dropped(driver) == 2


def test_a_stream_that_is_given_again_gets_the_new_aggregator(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    stream = grouped(builder, "left")
    stream.cogroup(left).cogroup(stream, right).aggregate(str).to_stream().to("out")
    driver = topology_driver(builder.build(), **UNCACHED)

    pipe(driver, ("left", "a", "1", 5))

    assert read(driver) == [("a", ">1", 5)]


@pytest.mark.parametrize("windows", [TimeWindows(10), SlidingWindows(10, grace=20)])
def test_streams_can_be_cogrouped_in_windows(topology_driver: DriverFactory, windows: Any) -> None:
    builder = StreamsBuilder()
    cogrouped(builder).windowed_by(windows).aggregate(str).to_stream().to("out")
    driver = topology_driver(builder.build(), **UNCACHED)

    pipe(driver, ("left", "a", "1", 15), ("right", "a", "2", 15))

    start = 10 if isinstance(windows, TimeWindows) else 5
    key = f"[a@{start}/{start + 10}]"
    assert read(driver) == [(key, "<1", 15), (key, "<1>2", 15)]


def test_streams_can_be_cogrouped_in_sessions(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    windowed = cogrouped(builder).windowed_by(SessionWindows(10))
    windowed.aggregate(str, merged).to_stream().to("out")
    driver = topology_driver(builder.build(), **UNCACHED)

    pipe(driver, ("left", "a", "1", 5), ("right", "a", "2", 9))

    assert read(driver) == [("[a@5/5]", "<1", 5), ("[a@5/5]", None, 5), ("[a@5/9]", "<1>2", 9)]


def test_each_stream_has_its_own_stream_time(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    cogrouped(builder).windowed_by(TimeWindows(10)).aggregate(str).to_stream().to("out")
    driver = topology_driver(builder.build(), **UNCACHED)

    pipe(driver, ("left", "a", "1", 15), ("right", "a", "2", 3), ("left", "a", "3", 3))

    assert [value for _, value, _ in read(driver)] == ["<1", ">2"]
    assert dropped(driver) == 1


def test_old_values_are_asked_of_every_stream(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    table = cogrouped(builder).aggregate(str, materialized="texts")
    lengths = table.group_by(lambda _key, text: (str(len(text)), text), key=str, value=str)
    lengths.count(materialized="lengths")
    driver = topology_driver(builder.build(), **UNCACHED)

    pipe(driver, ("left", "a", "1", 1), ("right", "a", "2", 2), ("left", "b", "3", 3))

    # The first old value is what the initializer gives, as in Kafka.
    assert dict(driver.get_key_value_store("lengths").all()) == {"2": 1, "4": 1}


def test_a_cogrouped_table_can_be_looked_up_and_suppressed(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    table = cogrouped(builder).aggregate(str)
    builder.stream("in", key=str, value=str).join(
        table, lambda value, text: f"{value}{text}", value=str
    ).to("out")
    windows = cogrouped(builder).windowed_by(TimeWindows(10)).aggregate(str)
    windows.suppress(Suppressed.until_window_closes()).to_stream().to("closed")
    driver = topology_driver(builder.build())

    pipe(driver, ("right", "a", "1", 1), ("in", "a", "x", 2), ("right", "a", "2", 12))

    assert read(driver) == [("a", "x>1", 2)]
    assert driver.create_output_topic("closed").read_value() == ">1"


def test_repartitions_are_made_once_for_several_aggregations() -> None:
    builder = StreamsBuilder()
    moved = builder.stream("left", key=str, value=str).group_by(
        lambda _key, value: value, key=str, name="moved"
    )
    together = moved.cogroup(left).cogroup(grouped(builder, "right"), right)

    together.aggregate(str)
    together.windowed_by(TimeWindows(10)).aggregate(str)

    text = str(builder.build().describe())
    assert text.count("Sink: moved-repartition-sink") == 1


def test_the_type_of_the_aggregate_is_deduced_from_any_of_the_functions(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    stream = grouped(builder, "left").cogroup(left)
    stream.aggregate(lambda: "").to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("left", "a", "1", 1))

    assert read(driver) == [("a", "<1", 1)]


def test_two_repartitions_of_one_name_are_refused() -> None:
    builder = StreamsBuilder()
    one, other = (
        builder.stream(topic, key=str, value=str).group_by(lambda _key, value: value, key=str)
        for topic in ("left", "right")
    )

    one.cogroup(left).cogroup(other, right).aggregate(str, materialized="s")

    with pytest.raises(TopologyError, match="s-repartition"):
        TopologyTestDriver(builder.build())


def test_streams_of_two_builders_cannot_be_cogrouped() -> None:
    one, other = grouped(StreamsBuilder(), "left"), grouped(StreamsBuilder(), "right")

    with pytest.raises(TopologyError, match="made by different builders"):
        one.cogroup(left).cogroup(other, right)


def test_functions_that_cannot_be_called_are_refused() -> None:
    builder = StreamsBuilder()
    stream = grouped(builder, "left")

    with pytest.raises(TopologyError, match="called with 3 arguments"):
        stream.cogroup(lambda value, text: text)  # type: ignore[arg-type,misc]
    with pytest.raises(TopologyError, match="called with 3 arguments"):
        stream.cogroup(left).cogroup(grouped(builder, "right"), lambda text: text)  # type: ignore[arg-type,misc]
    with pytest.raises(TopologyError, match="called with 0 arguments"):
        stream.cogroup(left).aggregate(lambda key: key)  # type: ignore[arg-type,misc]
    with pytest.raises(TopologyError, match="has no merger"):
        stream.cogroup(left).windowed_by(SessionWindows(5)).aggregate(str, None)  # type: ignore[arg-type]


def test_a_retention_that_is_too_short_is_refused() -> None:
    windowed = cogrouped(StreamsBuilder()).windowed_by(TimeWindows(10))

    with pytest.raises(TopologyError, match="`retention` of store 's'"):
        windowed.aggregate(str, materialized=Materialized("s", retention=5))
