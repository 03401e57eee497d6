"""Behaviour of `join`, `left_join` and `outer_join` of two streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace import (
    JoinWindows,
    MissingSerdeError,
    ProcessingError,
    StreamsBuilder,
    Topology,
    TopologyError,
)
from headrace.testing import DriverFactory, TopologyTestDriver

Row = tuple[str, str | None, str | None, int]
"""Topic, key, value, timestamp."""


def pair(left: str | None, right: str | None) -> str:
    return f"{left}-{right}"


def joined(
    kind: str, windows: JoinWindows, joiner: Callable[..., Any] = pair, **options: Any
) -> Topology:
    builder = StreamsBuilder()
    left = builder.stream("left", key=str, value=str)
    right = builder.stream("right", key=str, value=str)
    getattr(left, kind)(right, joiner, windows, value=str, **options).to("out")
    return builder.build()


def pipe(driver: TopologyTestDriver, *rows: Row) -> None:
    for topic, key, value, timestamp in rows:
        driver.create_input_topic(topic).pipe_input(key, value, timestamp=timestamp)


def read(driver: TopologyTestDriver) -> list[tuple[str | None, str, int]]:
    records = driver.create_output_topic("out").read_records_to_list()
    return [(record.key, record.value, record.timestamp) for record in records]


def dropped(driver: TopologyTestDriver) -> float:
    return sum(n for name, n in driver.metrics().items() if "dropped-records-total" in str(name))


def test_records_of_one_key_are_joined_if_their_times_are_close(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(joined("join", JoinWindows(10)))

    pipe(driver, ("left", "a", "A", 0), ("left", "b", "B", 5), ("right", "a", "x", 10))
    pipe(driver, ("right", "a", "y", 11), ("right", "b", "z", 3))

    assert read(driver) == [("a", "A-x", 10), ("b", "B-z", 5)]


def test_every_pair_is_joined_in_the_order_of_the_other_sides_times(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(joined("join", JoinWindows(10, grace=100)))

    pipe(driver, ("left", "a", "B", 7), ("left", "a", "A", 3), ("left", "a", "B", 7))
    pipe(driver, ("right", "a", "x", 5))

    assert read(driver) == [("a", "A-x", 5), ("a", "B-x", 7), ("a", "B-x", 7)]


def test_the_window_may_be_uneven(topology_driver: DriverFactory) -> None:
    driver = topology_driver(joined("join", JoinWindows(before=2, after=5, grace=100)))

    pipe(driver, ("left", "a", "A", 10))
    pipe(driver, *[("right", "a", str(time), time) for time in (7, 8, 15, 16)])
    pipe(driver, ("left", "a", "B", 9))

    values = [value for _, value, _ in read(driver)]
    assert values == ["A-8", "A-15", "B-7", "B-8"]


def test_a_joiner_may_want_the_key_first(topology_driver: DriverFactory) -> None:
    def named(key: str, left: str, right: str) -> str:
        return f"{key}:{left}-{right}"

    driver = topology_driver(joined("join", JoinWindows(5), named))

    pipe(driver, ("right", "a", "x", 1), ("left", "a", "A", 2))

    assert read(driver) == [("a", "a:A-x", 2)]


def test_a_left_record_without_a_partner_comes_out_when_its_window_has_closed(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(joined("left_join", JoinWindows(10, grace=2)))

    pipe(driver, ("left", "a", "A", 0), ("right", "b", "x", 5), ("left", "b", "B", 12))
    before = read(driver)
    pipe(driver, ("right", "c", "z", 13))

    assert before == [("b", "B-x", 12)]
    assert read(driver) == [("a", "A-None", 0)]


def test_an_outer_join_emits_both_sides_by_time_right_before_left_and_key(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(joined("outer_join", JoinWindows(5)))

    pipe(driver, ("left", "b", "B", 2), ("left", "a", "A", 2), ("right", "c", "x", 2))
    pipe(driver, ("right", "d", "y", 1), ("left", "e", "E", 20))

    assert read(driver) == [
        ("d", "None-y", 1),
        ("c", "None-x", 2),
        ("a", "A-None", 2),
        ("b", "B-None", 2),
    ]


def test_a_record_that_found_a_partner_does_not_come_out_alone(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(joined("outer_join", JoinWindows(5)))

    pipe(driver, ("left", "a", "A", 1), ("right", "a", "x", 2), ("left", "b", "B", 50))

    assert read(driver) == [("a", "A-x", 2)]


def test_an_unmatched_result_has_the_headers_of_the_record_that_closed_its_window(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(joined("left_join", JoinWindows(5)))

    left = driver.create_input_topic("left")
    left.pipe_input("a", "A", timestamp=1, headers=[("h", b"1")])
    left.pipe_input("b", "B", timestamp=9, headers=[("h", b"2")])

    assert driver.create_output_topic("out").read_record().headers == [("h", b"2")]


def test_a_record_whose_window_has_ended_comes_out_at_once(topology_driver: DriverFactory) -> None:
    driver = topology_driver(joined("left_join", JoinWindows(5, grace=100)))

    pipe(driver, ("right", "b", "x", 50), ("left", "a", "A", 44))

    assert read(driver) == [("a", "A-None", 44)]


def test_a_record_whose_window_is_just_open_waits(topology_driver: DriverFactory) -> None:
    driver = topology_driver(joined("left_join", JoinWindows(5)))

    pipe(driver, ("right", "b", "x", 50), ("left", "a", "A", 45))

    assert read(driver) == []


def test_the_first_moment_at_which_a_window_has_closed(topology_driver: DriverFactory) -> None:
    driver = topology_driver(joined("left_join", JoinWindows(10)))

    pipe(driver, ("left", "a", "A", 0), ("left", "b", "B", 5), ("left", "c", "C", 10))
    before = read(driver)
    pipe(driver, ("right", "d", "x", 11))

    assert before == []
    assert read(driver) == [("a", "A-None", 0)]


def test_each_side_of_an_uneven_window_waits_its_own_time(topology_driver: DriverFactory) -> None:
    driver = topology_driver(joined("outer_join", JoinWindows(before=5, after=20)))

    pipe(driver, ("left", "a", "A0", 29), ("left", "b", "A1", 30), ("right", "c", "12", 31))
    pipe(driver, ("right", "d", "13", 36), ("right", "e", "14", 37))
    first = read(driver)
    pipe(driver, ("right", "f", "15", 50))

    assert first == [("c", "None-12", 31)]
    assert read(driver) == [("a", "A0-None", 29), ("d", "None-13", 36), ("e", "None-14", 37)]


def test_only_a_record_at_the_joins_time_lets_others_out(topology_driver: DriverFactory) -> None:
    driver = topology_driver(joined("left_join", JoinWindows(5)))

    pipe(driver, ("left", "a", "A", 1), ("right", "b", None, 50), ("right", "b", "x", 49))
    before = read(driver)
    pipe(driver, ("right", "b", "y", 50))

    assert before == []
    assert read(driver) == [("a", "A-None", 1)]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("join", []),
        ("left_join", [(None, "A-None", 1)]),
        ("outer_join", [(None, "A-None", 1), (None, "None-x", 2)]),
    ],
)
def test_records_without_a_key_find_no_partner(
    topology_driver: DriverFactory, kind: str, expected: list[Any]
) -> None:
    driver = topology_driver(joined(kind, JoinWindows(5)))

    pipe(driver, ("left", None, "A", 1), ("right", None, "x", 2))

    assert read(driver) == expected
    assert dropped(driver) == 2 - len(expected)


@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join"])
def test_records_without_a_value_are_dropped(topology_driver: DriverFactory, kind: str) -> None:
    driver = topology_driver(joined(kind, JoinWindows(5)))

    pipe(driver, ("left", "a", None, 1), ("right", "a", None, 2), ("left", None, None, 2))

    assert read(driver) == []
    assert dropped(driver) == 3


def test_records_older_than_the_retention_are_not_found(topology_driver: DriverFactory) -> None:
    driver = topology_driver(joined("join", JoinWindows(5)))

    pipe(driver, ("left", "a", "A", 0), ("left", "b", "B", 100), ("right", "a", "x", 0))

    assert read(driver) == []


def test_the_stores_of_a_long_stream_stay_small(topology_driver: DriverFactory) -> None:
    driver = topology_driver(
        joined("outer_join", JoinWindows("1s"), store_name="s", store_type="in_memory")
    )
    left = driver.create_input_topic("left")

    for number in range(100):
        left.pipe_input(f"k{number}", "A", timestamp=number * 1000)

    assert len(list(driver.get_window_store("s-outer-this-join-store").all())) <= 3
    assert len(driver.create_output_topic("out").read_values_to_list()) == 98


@pytest.mark.parametrize("kind", ["join", "left_join"])
def test_a_stream_may_be_joined_with_itself(topology_driver: DriverFactory, kind: str) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("left", key=str, value=str)
    getattr(stream, kind)(stream, pair, JoinWindows(10), value=str).to("out")
    driver = topology_driver(builder.build(), topology_optimization="all")

    pipe(driver, ("left", "a", "A", 1), ("left", "a", "B", 3), ("left", "a", "C", 2))
    pipe(driver, ("left", None, "D", 3), ("left", "a", None, 3))

    values = [value for _, value, _ in read(driver)]
    assert values[:4] == ["A-A", "B-A", "A-B", "B-B"]
    assert values[4:] == ["C-A", "C-B", "A-C", "C-C", "B-C"]
    assert dropped(driver) == 2
    assert len(driver.get_all_state_stores()) == 1


def test_a_record_older_than_the_retention_does_not_meet_itself(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("left", key=str, value=str)
    stream.join(stream, pair, JoinWindows(5), value=str).to("out")
    driver = topology_driver(builder.build(), topology_optimization="all")

    pipe(driver, ("left", "a", "A", 100), ("left", "b", "B", 91), ("left", "c", "C", 92))

    assert [value for _, value, _ in read(driver)] == ["A-A", "C-C"]


@pytest.mark.parametrize(
    ("optimization", "expected", "drops"),
    [("none", ["A-None", "None-A"], 0), ("all", [], 1)],
)
def test_an_outer_join_gets_records_without_a_key_from_a_repartition(
    topology_driver: DriverFactory, optimization: str, expected: list[str], drops: int
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("left", key=str, value=str).repartition(name="again")
    stream.outer_join(stream, pair, JoinWindows(5), value=str).to("out")
    driver = topology_driver(builder.build(), topology_optimization=optimization)

    pipe(driver, ("left", None, "A", 1))

    assert [value for _, value, _ in read(driver)] == expected
    assert dropped(driver) == drops  # one store for both sides has no place for them


def test_without_any_retention_a_store_in_memory_keeps_nothing(
    topology_driver: DriverFactory,
) -> None:
    windows = JoinWindows(before=3, after=-3)
    driver = topology_driver(joined("join", windows, store_type="in_memory"))

    pipe(driver, ("right", "a", "x", 1), ("left", "a", "A", 4))

    assert (read(driver), dropped(driver)) == ([], 2)


def test_sides_that_ask_for_different_partitions_are_refused() -> None:
    builder = StreamsBuilder()
    left = builder.stream("left", key=str, value=str).repartition(partitions=2)
    right = builder.stream("right", key=str, value=str).repartition(partitions=3)
    left.join(right, pair, JoinWindows(5), value=str).to("out")

    with pytest.raises(TopologyError, match="must have the same number of partitions"):
        builder.build().describe()


def test_both_sides_are_repartitioned_if_their_keys_changed(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    left = builder.stream("left", key=str, value=str).select_key(lambda _, v: v[0], key=str)
    right = builder.stream("right", key=str, value=str).select_key(lambda _, v: v[0], key=str)
    left.join(right, pair, JoinWindows(5), value=str, name="j").to("out")
    driver = topology_driver(builder.build(), partitions=3)

    pipe(driver, ("left", "x", "a1", 1), ("right", "y", "a2", 2), ("right", "y", "b2", 2))

    assert read(driver) == [("a", "a1-a2", 2)]
    text = str(builder.build().describe())
    assert "j-left-repartition" in text
    assert "j-right-repartition" in text


def failing(left: str | None, right: str | None) -> str:
    if "bad" in (left, right):
        raise ValueError("bad")
    return pair(left, right)


@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join"])
def test_a_joiner_that_raises_stops_the_application(
    topology_driver: DriverFactory, kind: str
) -> None:
    driver = topology_driver(joined(kind, JoinWindows(5), failing))
    pipe(driver, ("left", "a", "bad", 1))

    with pytest.raises(ProcessingError, match="bad"):
        pipe(driver, ("right", "a", "x", 2))


def test_a_joiner_that_raises_may_be_left_out(topology_driver: DriverFactory) -> None:
    topology = joined("outer_join", JoinWindows(5), failing)
    driver = topology_driver(topology, processing_exception_handler="continue")

    pipe(driver, ("left", "a", "bad", 1), ("right", "a", "x", 2), ("right", "a", "y", 2))
    pipe(driver, ("left", "a", "ok", 3))

    assert read(driver) == [("a", "ok-x", 3), ("a", "ok-y", 3)]
    assert dropped(driver) == 2


def test_a_failure_among_the_unmatched_comes_again(topology_driver: DriverFactory) -> None:
    topology = joined("outer_join", JoinWindows(5), failing)
    driver = topology_driver(topology, processing_exception_handler="continue")

    pipe(driver, ("left", "a", "A", 1), ("left", "a", "A", 1), ("left", "b", "B", 2))
    pipe(driver, ("right", "c", "bad", 3), ("right", "d", "x", 50))
    first = read(driver)
    pipe(driver, ("right", "d", "y", 51))

    assert first == [("a", "A-None", 1), ("a", "A-None", 1), ("b", "B-None", 2)]
    assert read(driver) == [("b", "B-None", 2)]  # as in Kafka, the last one was not forgotten
    assert dropped(driver) == 2


def test_records_of_one_key_and_time_are_forgotten_together(topology_driver: DriverFactory) -> None:
    topology = joined("outer_join", JoinWindows(5), failing)
    driver = topology_driver(topology, processing_exception_handler="continue")

    pipe(driver, ("left", "a", "A", 1), ("left", "a", "B", 1), ("right", "c", "bad", 3))
    pipe(driver, ("right", "d", "x", 50), ("right", "d", "y", 51))

    assert [value for _, value, _ in read(driver)] == ["A-None", "B-None"] * 2


def test_a_failure_of_a_record_that_comes_out_at_once_is_counted(
    topology_driver: DriverFactory,
) -> None:
    topology = joined("left_join", JoinWindows(5), failing)
    driver = topology_driver(topology, processing_exception_handler="continue")

    pipe(driver, ("left", None, "bad", 1), ("left", None, "A", 1))

    assert read(driver) == [(None, "A-None", 1)]
    assert dropped(driver) == 1


class Refuses:
    """A serde of text that refuses some."""

    def serialize(self, value: str) -> bytes:
        if value == "refused":
            raise ValueError("refused")
        return value.encode()

    def deserialize(self, data: bytes) -> str:
        return data.decode()


@pytest.mark.parametrize("refused", ["key", "value"])
@pytest.mark.parametrize(("kind", "optimization"), [("join", "all"), ("outer_join", "none")])
def test_a_record_that_a_serde_refuses_is_left_out(
    topology_driver: DriverFactory, kind: str, optimization: str, refused: str
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("left", key=Refuses(), value=Refuses())
    getattr(stream, kind)(stream, failing, JoinWindows(5), value=str).to("out")
    driver = topology_driver(
        builder.build(),
        processing_exception_handler="continue",
        production_exception_handler="continue",
        topology_optimization=optimization,
    )

    topic = driver.create_input_topic("left", key=str, value=str)
    key, value = ("refused", "A") if refused == "key" else ("a", "refused")
    topic.pipe_input(key, value, timestamp=1)
    topic.pipe_input("b", "B", timestamp=2)

    assert ("b", "B-B", 2) in read(driver)
    assert dropped(driver) >= 1


def test_a_record_that_cannot_meet_itself_does_not_move_the_time(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("left", key=str, value=str)
    stream.join(stream, failing, JoinWindows(5), value=str).to("out")
    driver = topology_driver(
        builder.build(),
        topology_optimization="all",
        processing_exception_handler="continue",
    )

    pipe(driver, ("left", "a", "bad", 100), ("left", "b", "B", 1))

    assert read(driver) == [("b", "B-B", 1)]


def test_a_failure_in_a_self_join_is_left_out(topology_driver: DriverFactory) -> None:
    def unlike(left: str, right: str) -> str:
        if (left, right) == ("B", "A"):
            raise ValueError("B and A")
        return pair(left, right)

    builder = StreamsBuilder()
    stream = builder.stream("left", key=str, value=str)
    stream.join(stream, unlike, JoinWindows(10), value=str).to("out")
    driver = topology_driver(
        builder.build(),
        topology_optimization="all",
        processing_exception_handler="continue",
    )

    pipe(driver, ("left", "a", "A", 1), ("left", "a", "B", 2), ("left", "a", "C", 3))

    values = [value for _, value, _ in read(driver)]
    assert values == ["A-A", "C-A", "C-B", "A-C", "B-C", "C-C"]
    assert dropped(driver) == 1


WRONG: list[tuple[Callable[[Any, Any, Any, Any], Any], str]] = [
    (lambda left, right, _t, _g: left.join(right, pair), "joins two streams, which needs a JoinW"),
    (lambda left, right, _t, _g: left.join(right, pair, "5s"), "needs a JoinWindows, not '5s'"),
    (
        lambda left, right, _t, _g: left.join(right, pair, JoinWindows(5), grace=1),
        "joins two streams, so `grace` has no meaning. Leave it out.",
    ),
    (
        lambda left, right, _t, _g: left.join(right, pair, JoinWindows(5), store_type="disk"),
        "`store_type` of step 'join' is 'disk'",
    ),
    (
        lambda left, right, _t, _g: left.join(right, lambda one: one, JoinWindows(5)),
        "it is called with 2 arguments, or with 3 if it wants the key first",
    ),
    (lambda left, _r, _t, _g: left.join("right", pair, name="j"), "Step 'j' cannot join a stream"),
    (
        lambda left, _r, table, _g: left.join(table, pair, JoinWindows(5)),
        "joins a stream and a table, so `windows` has no meaning",
    ),
    (
        lambda left, _r, table, _g: left.outer_join(table, pair, None),
        "Step 'outer_join' is an outer join with a table",
    ),
    (
        lambda left, _r, _t, table: left.join(table, pair),
        "needs a function for the key to look up. Give it `on=f",
    ),
    (
        lambda left, _r, _t, table: left.join(table, pair, on=lambda key: key),
        "but it is called with 2 arguments",
    ),
    (
        lambda left, _r, _t, table: left.outer_join(table, pair, None),
        "is an outer join with a table",
    ),
    (
        lambda left, _r, _t, table: left.join(table, pair, on=pair, grace=1),
        "joins a stream and a global table, so `grace`",
    ),
]


@pytest.mark.parametrize(("join", "message"), WRONG)
def test_a_wrong_join_is_refused_when_it_is_added(
    join: Callable[[Any, Any, Any, Any], Any], message: str
) -> None:
    builder = StreamsBuilder()
    left = builder.stream("left", key=str, value=str)
    right = builder.stream("right", key=str, value=str)
    table = builder.table("table", key=str, value=str)
    everywhere = builder.global_table("global", key=str, value=str)

    with pytest.raises(TopologyError) as caught:
        join(left, right, table, everywhere)

    assert message in str(caught.value)


def test_the_key_type_may_be_known_from_either_side(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    left = builder.stream("left", value=str)
    right = builder.stream("right", key=str, value=str)
    left.join(right, pair, JoinWindows(5), value=str).to("out")

    with pytest.raises(MissingSerdeError, match=r"^stream\(…\) at"):
        topology_driver(builder.build())  # only the source of the left side lacks a serde
