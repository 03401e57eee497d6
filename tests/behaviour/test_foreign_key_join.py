"""Behaviour of `join` and `left_join` with `foreign_key=`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from headrace import (
    KTable,
    Materialized,
    ProcessingError,
    Record,
    StreamsBuilder,
    StreamsError,
    Suppressed,
    TopologyError,
)
from headrace.testing import DriverFactory, TopologyTestDriver

Rows = Iterable[tuple[str, str, str | None, int]]


def pair(left: str, right: str | None) -> str:
    return f"{left}+{right}"


def first_letter(value: str) -> str | None:
    return None if value == "none" else value[0]


def tables(builder: StreamsBuilder) -> tuple[KTable[str, str], KTable[str, str]]:
    left = builder.table("left", key=str, value=str)
    return left, builder.table("right", key=str, value=str)


def pipe(driver: TopologyTestDriver, *rows: tuple[str, str, str | None, int]) -> None:
    for topic, key, value, timestamp in rows:
        driver.create_input_topic(topic).pipe_input(key, value, timestamp=timestamp)


def read(driver: TopologyTestDriver) -> list[tuple[Any, Any, int]]:
    records: list[Record[Any, Any]] = driver.create_output_topic("out").read_records_to_list()
    return [(record.key, record.value, record.timestamp) for record in records]


def dropped(driver: TopologyTestDriver) -> float:
    return sum(n for name, n in driver.metrics().items() if "dropped-records-total" in str(name))


def test_a_row_joins_the_value_its_foreign_key_names(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    left, right = tables(builder)
    left.join(right, pair, foreign_key=first_letter).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("left", "k", "x1", 1), ("right", "x", "X", 2), ("left", "l", "x2", 3))

    assert read(driver) == [("k", "x1+X", 2), ("l", "x2+X", 3)]


def test_a_change_of_the_other_table_reaches_every_row_that_names_it(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    left, right = tables(builder)
    left.left_join(right, pair, foreign_key=first_letter).to_stream().to("out")
    driver = topology_driver(builder.build())
    pipe(driver, ("left", "b", "x1", 5), ("left", "a", "x2", 5), ("left", "c", "y", 5))
    read(driver)

    pipe(driver, ("right", "x", "X", 3), ("right", "x", None, 4))

    assert read(driver) == [
        ("a", "x2+X", 3),
        ("b", "x1+X", 3),
        ("a", "x2+None", 4),
        ("b", "x1+None", 4),
    ]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("join", [("k", "x1+X", 2), ("k", None, 3), ("k", "y+Y", 4), ("k", None, 5)]),
        ("left_join", [("k", "x1+X", 2), ("k", "y+None", 3), ("k", "y+Y", 4), ("k", None, 5)]),
    ],
)
def test_a_row_that_names_another_key_leaves_the_old_one(
    topology_driver: DriverFactory, kind: str, expected: list[tuple[Any, Any, int]]
) -> None:
    builder = StreamsBuilder()
    left, right = tables(builder)
    getattr(left, kind)(right, pair, foreign_key=first_letter, value=str).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("right", "x", "X", 1), ("left", "k", "x1", 2), ("left", "k", "y", 3))
    pipe(driver, ("right", "y", "Y", 4), ("left", "k", None, 5), ("right", "x", "X2", 6))
    pipe(driver, ("left", "k", None, 7))

    assert read(driver) == expected


def test_a_row_without_a_foreign_key_has_no_inner_result_and_is_counted(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    left, right = tables(builder)
    left.join(right, pair, foreign_key=first_letter).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("left", "k", "none", 1), ("right", "x", "X", 2), ("left", "k", "x", 3))
    pipe(driver, ("left", "k", "none", 4), ("left", "k", None, 5))

    assert read(driver) == [("k", "x+X", 3), ("k", None, 4)]
    assert dropped(driver) == 2


def test_a_row_without_a_foreign_key_has_a_left_result(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    left, right = tables(builder)
    left.left_join(right, pair, foreign_key=first_letter).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("right", "x", "X", 1), ("left", "k", "x", 2), ("left", "k", "none", 3))

    assert read(driver) == [("k", "x+X", 2), ("k", "none+None", 3)]
    assert dropped(driver) == 0


def test_an_update_that_keeps_its_foreign_key_joins_again_only_if_there_is_a_partner(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    left, right = tables(builder)
    left.join(right, pair, foreign_key=first_letter).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("left", "k", "x1", 1), ("left", "k", "x2", 2))
    pipe(driver, ("right", "x", "X", 3), ("left", "k", "x3", 4))

    assert read(driver) == [("k", "x2+X", 3), ("k", "x3+X", 4)]


def test_the_foreign_key_and_the_joiner_may_want_the_key(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    left, right = tables(builder)
    left.join(
        right,
        lambda key, one, other: f"{key}:{one}+{other}",
        foreign_key=lambda key, _: key[0],
        value=str,
    ).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("right", "k", "K", 1), ("left", "k1", "x", 2))

    assert read(driver) == [("k1", "k1:x+K", 2)]


def test_the_result_can_be_stored(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    left, right = tables(builder)
    joined = left.join(right, pair, foreign_key=first_letter, materialized="joined")
    driver = topology_driver(builder.build())

    pipe(driver, ("right", "x", "X", 9), ("left", "k", "x1", 2))

    assert joined.queryable_store_name == "joined"
    assert driver.get_timestamped_key_value_store("joined").get("k") == ("x1+X", 9)


def test_the_result_can_be_suppressed_unless_it_is_versioned(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    left, right = tables(builder)
    joined = left.join(right, pair, foreign_key=first_letter)
    joined.suppress(Suppressed.until_time_limit(5)).to_stream().to("out")
    versions = Materialized("versions", value=str, history_retention="1h")
    versioned = left.join(right, pair, foreign_key=first_letter, materialized=versions)
    driver = topology_driver(builder.build())

    pipe(driver, ("right", "x", "X", 1), ("left", "k", "x1", 2), ("left", "l", "x2", 7))

    assert read(driver) == [("k", "x1+X", 2)]
    with pytest.raises(TopologyError, match="suppresses a versioned table"):
        versioned.suppress(Suppressed.until_time_limit(5))


def test_computed_tables_are_joined_without_a_store_of_their_own(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    left, right = tables(builder)
    louder = right.map_values(lambda value: value + "!", value=str)
    left.filter(lambda _, value: value != "x9").left_join(
        louder, pair, foreign_key=first_letter
    ).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("right", "x", "X", 1), ("left", "k", "x1", 2), ("left", "k", "x9", 3))
    pipe(driver, ("left", "k", "x2", 4), ("right", "x", "Y", 5))

    assert [value for _, value, _ in read(driver)] == ["x1+X!", None, "x2+X!", "x2+Y!"]


def test_an_answer_to_a_value_that_changed_since_is_left_out_and_counted(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    words = builder.stream("words", key=str, value=str)
    left = words.flat_map_values(lambda text: text.split(), value=str).to_table()
    right = builder.table("right", key=str, value=str)
    left.join(right, pair, foreign_key=first_letter).to_stream().to("out")
    driver = topology_driver(builder.build(), statestore_cache_max_bytes=0)

    # Both words are in the table, one after the other, before the first answer comes.
    pipe(driver, ("right", "x", "X", 0), ("right", "y", "Y", 0), ("words", "k", "x1 y1", 1))

    assert read(driver) == [("k", "y1+Y", 1)]
    assert dropped(driver) == 1


@pytest.mark.parametrize("kind", ["join", "left_join"])
def test_partitions_do_not_change_what_comes_out(topology_driver: DriverFactory, kind: str) -> None:
    rows = [
        *(("right", letter, letter.upper(), 1) for letter in "uvwxyz"),
        *(("left", f"k{n}", f"{'uvwxyz'[n % 6]}{n}", 2) for n in range(12)),
        *(("left", f"k{n}", f"{'zyxwvu'[n % 6]}{n}", 3) for n in range(0, 12, 3)),
        *(("right", letter, None, 4) for letter in "wx"),
        *(("left", f"k{n}", None, 5) for n in range(0, 12, 7)),
    ]
    results = []
    for partitions in (1, 5):
        builder = StreamsBuilder()
        left, right = tables(builder)
        joined = getattr(left, kind)(
            right, pair, foreign_key=first_letter, materialized=Materialized("joined", value=str)
        )
        joined.to_stream().to("out")
        driver = topology_driver(builder.build(), partitions=partitions)
        pipe(driver, *rows)
        results.append(dict(driver.get_key_value_store("joined").all()))

    assert results[0] == results[1]
    assert len(results[0]) > 5


def test_tables_partitioned_by_the_user_are_joined_where_they_are(
    topology_driver: DriverFactory,
) -> None:
    asked: list[tuple[str, Any, Any]] = []

    def left_partition(topic: str, key: str, value: None, partitions: int) -> list[int]:
        asked.append((topic.removeprefix("test-application-"), key, value))
        return [0]

    def right_partition(topic: str, key: str, value: None, _partitions: int) -> int | None:
        asked.append((topic.removeprefix("test-application-"), key, value))
        return 0 if key == "x" else None

    builder = StreamsBuilder()
    left, right = tables(builder)
    left.join(
        right,
        pair,
        foreign_key=first_letter,
        partitioner=left_partition,
        other_partitioner=right_partition,
        name="fk",
    ).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("right", "x", "X", 1), ("left", "k", "x1", 2), ("left", "l", "y1", 3))

    assert read(driver) == [("k", "x1+X", 2)]
    assert asked == [
        ("fk-subscription-registration-topic", "x", None),
        ("fk-subscription-response-topic", "k", None),
        ("fk-subscription-registration-topic", "y", None),
    ]


def test_a_partitioner_that_chooses_several_partitions_stops(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    left, right = tables(builder)
    left.join(right, pair, foreign_key=first_letter, other_partitioner=lambda *_: [0, 1])
    driver = topology_driver(builder.build())

    with pytest.raises(StreamsError, match=r"`other_partitioner` .* \[0, 1\] .* exactly one"):
        pipe(driver, ("left", "k", "x1", 1))


def test_out_of_order_updates_of_versioned_tables_are_dropped(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    left, right = (
        builder.table(
            topic, key=str, value=str, materialized=Materialized(topic, history_retention="1h")
        )
        for topic in ("left", "right")
    )
    left.join(right, pair, foreign_key=first_letter).to_stream().to("out")
    driver = topology_driver(builder.build())

    pipe(driver, ("right", "x", "X", 10), ("left", "k", "x1", 11))
    pipe(driver, ("right", "x", "old", 5), ("left", "k", "x0", 6))

    assert read(driver) == [("k", "x1+X", 11)]
    assert dropped(driver) == 2


@pytest.mark.parametrize("failing", ["foreign_key", "joiner", "other table"])
def test_a_function_that_fails_goes_to_the_processing_handler(
    topology_driver: DriverFactory, failing: str
) -> None:
    def refuse(value: str, *_: Any) -> str:
        if value.endswith("bad"):
            raise ValueError(value)
        return value

    builder = StreamsBuilder()
    left, right = tables(builder)
    if failing == "other table":
        right = right.map_values(lambda value: refuse(value), value=str)
    joiner = (lambda one, _: refuse(one)) if failing == "joiner" else pair
    foreign_key = (lambda value: refuse(value)[0]) if failing == "foreign_key" else first_letter
    left.join(right, joiner, foreign_key=foreign_key, value=str).to_stream().to("out")
    driver = topology_driver(builder.build(), processing_exception_handler="continue")

    pipe(driver, ("right", "x", "X", 1), ("right", "y", "bad", 1))
    pipe(driver, ("left", "k", "y", 2), ("left", "l", "x bad", 3), ("left", "m", "x", 4))

    joined = {"foreign_key": ["k", "m"], "joiner": ["k", "m"], "other table": ["l", "m"]}
    assert [key for key, _, _ in read(driver)] == joined[failing]
    assert dropped(driver) >= 1


def test_a_foreign_key_that_fails_stops_and_names_the_step(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    left, right = tables(builder)
    left.join(right, pair, foreign_key=lambda value: value[9], name="fk")
    driver = topology_driver(builder.build())

    with pytest.raises(ProcessingError, match="'fk-subscription-registration-processor' failed"):
        pipe(driver, ("left", "k", "x", 1))


def test_default_serdes_fill_in_what_the_program_does_not_say(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    left, right = builder.table("left"), builder.table("right")
    left.join(right, pair, foreign_key=lambda value: str(value)[0]).to_stream().to("out")
    driver = topology_driver(builder.build(), default_key_serde=str, default_value_serde=str)

    pipe(driver, ("right", "x", "X", 1), ("left", "k", "x", 2))

    assert read(driver) == [("k", "x+X", 2)]


def test_a_wrong_foreign_key_join_is_refused_while_building() -> None:
    builder = StreamsBuilder()
    left: Any
    left, right = tables(builder)

    with pytest.raises(TopologyError, match="called with 1 arguments, or with 2"):
        left.join(right, pair, foreign_key=lambda: "x")
    with pytest.raises(TopologyError, match="called with 4 arguments"):
        left.join(right, pair, foreign_key=first_letter, partitioner=lambda: 0)
