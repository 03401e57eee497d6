"""Behaviour of source tables, `to_table`, and tables computed entry by entry."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from headrace import (
    KeyValueStore,
    Materialized,
    ProcessingError,
    PunctuationType,
    Record,
    Stores,
    StreamsBuilder,
    ValueTransformerWithKey,
)
from headrace.processors.api import CommonContext
from headrace.state.specs import StoreBuilder
from headrace.testing import DriverFactory, TopologyTestDriver


def piped(driver: TopologyTestDriver, *pairs: tuple[str | None, int | None]) -> list[Any]:
    driver.create_input_topic("in").pipe_key_value_list(pairs)
    return driver.create_output_topic("out").read_key_values_to_list()


def table_driver(
    driver_of: DriverFactory, program: Any, materialized: str | None = None, **settings: Any
) -> TopologyTestDriver:
    builder = StreamsBuilder()
    table = builder.table("in", key=str, value=int, materialized=materialized)
    program(table).to_stream().to("out")
    return driver_of(builder.build(), **settings)


@pytest.mark.parametrize("store", [None, "numbers"])
def test_a_table_forwards_every_change_and_deletion(
    topology_driver: DriverFactory, store: str | None
) -> None:
    driver = table_driver(topology_driver, lambda table: table, store)

    read = piped(driver, ("a", 1), ("a", 2), ("a", None))

    assert read == [("a", 1), ("a", 2), ("a", None)]


@pytest.mark.parametrize("store", [None, "numbers"])
def test_a_record_without_a_key_is_dropped_and_counted(
    topology_driver: DriverFactory, store: str | None
) -> None:
    driver = table_driver(topology_driver, lambda table: table, store)

    read = piped(driver, (None, 1), ("a", 2))

    counts = {str(name): count for name, count in driver.metrics().items() if count}
    assert read == [("a", 2)]
    assert counts["dropped-by-reason-total"] == 1


def test_a_named_table_has_a_store_with_values_and_times(topology_driver: DriverFactory) -> None:
    driver = table_driver(topology_driver, lambda table: table, "numbers")

    topic = driver.create_input_topic("in")
    topic.pipe_input("a", 1, timestamp=9)
    topic.pipe_input("a", 2, timestamp=4)

    assert driver.get_key_value_store("numbers").get("a") == 2
    assert driver.get_timestamped_key_value_store("numbers").get("a") == (2, 4)


def test_a_table_without_a_name_has_no_store(topology_driver: DriverFactory) -> None:
    driver = table_driver(topology_driver, lambda table: table)

    assert driver.get_all_state_stores() == {}


def test_a_stream_read_as_a_table_repartitions_if_its_key_changed(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    table = stream.select_key(lambda key, _: key.upper(), key=str).to_table(materialized="t")
    table.to_stream().to("out")
    driver = topology_driver(builder.build(), application_id="app")

    read = piped(driver, ("a", 1))

    assert read == [("A", 1)]
    assert "app-KSTREAM-TOTABLE-0000000002-repartition" in driver.produced_topic_names()
    assert table.queryable_store_name == "t"


def test_to_stream_may_choose_another_key(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=str, value=int)
    table.to_stream(lambda key, value: value, key=int).to("out")
    driver = topology_driver(builder.build())

    assert piped(driver, ("a", 4)) == [(4, 4)]


# -- filter ----------------------------------------------------------------------------------


def is_large(_key: str, value: int) -> bool:
    return value > 5


def test_without_a_store_upstream_every_refused_entry_is_a_deletion(
    topology_driver: DriverFactory,
) -> None:
    driver = table_driver(topology_driver, lambda table: table.filter(is_large))

    assert piped(driver, ("a", 1), ("a", 9), ("a", 2)) == [("a", None), ("a", 9), ("a", None)]


@pytest.mark.parametrize("store", [None, "large"])
def test_with_a_store_upstream_a_deletion_of_nothing_is_swallowed(
    topology_driver: DriverFactory, store: str | None
) -> None:
    driver = table_driver(
        topology_driver,
        lambda table: table.filter(is_large, materialized=store),
        "numbers",
        statestore_cache_max_bytes=0,
    )

    read = piped(driver, ("a", 1), ("a", 9), ("a", 2), ("a", 3))

    assert read == [("a", 9), ("a", None)]


def test_a_filter_of_a_filter_without_a_store_passes_every_deletion_on(
    topology_driver: DriverFactory,
) -> None:
    driver = table_driver(
        topology_driver, lambda table: table.filter(is_large).filter(lambda *_: True)
    )

    assert piped(driver, ("a", 1), ("a", 9)) == [("a", None), ("a", 9)]


def test_filter_not_keeps_what_the_predicate_refuses(topology_driver: DriverFactory) -> None:
    driver = table_driver(topology_driver, lambda table: table.filter_not(is_large))

    assert piped(driver, ("a", 1), ("a", 9)) == [("a", 1), ("a", None)]


def test_a_predicate_is_not_asked_about_a_deletion(topology_driver: DriverFactory) -> None:
    asked: list[int] = []

    def ask(_key: str, value: int) -> bool:
        asked.append(value)
        return True

    driver = table_driver(topology_driver, lambda table: table.filter(ask))

    assert piped(driver, ("a", 1), ("a", None)) == [("a", 1), ("a", None)]
    assert asked == [1]


# -- map_values ------------------------------------------------------------------------------


@pytest.mark.parametrize("store", [None, "doubled"])
def test_map_values_maps_values_and_passes_deletions_on(
    topology_driver: DriverFactory, store: str | None
) -> None:
    driver = table_driver(
        topology_driver,
        lambda table: table.map_values(lambda v: v * 2, value=int, materialized=store),
    )

    assert piped(driver, ("a", 1), ("a", None)) == [("a", 2), ("a", None)]


def test_map_values_may_ask_for_the_key_and_keep_its_own_store(
    topology_driver: DriverFactory,
) -> None:
    driver = table_driver(
        topology_driver,
        lambda table: table.map_values(
            lambda key, value: f"{key}{value}", value=str, materialized="texts"
        ),
    )

    piped(driver, ("a", 1), ("b", 2), ("a", None))

    assert list(driver.get_key_value_store("texts").all()) == [("b", "b2")]


# -- transform_values ------------------------------------------------------------------------

CALLS = Stores.key_value("calls", str, int)


class CountsCalls(ValueTransformerWithKey[str, int, int]):
    """Adds to each value how often its key was transformed."""

    def init(self, context: CommonContext) -> None:
        super().init(context)
        self.calls: KeyValueStore[str, int] = context.get_state_store(CALLS)

    def transform(self, key: str, value: int | None) -> int | None:
        calls = (self.calls.get(key) or 0) + 1
        self.calls.put(key, calls)
        return None if value is None else value + calls


def test_a_transformer_has_stores_and_sees_deletions(topology_driver: DriverFactory) -> None:
    driver = table_driver(
        topology_driver,
        lambda table: table.transform_values(CountsCalls, stores=[CALLS], value=int),
    )

    read = piped(driver, ("a", 10), ("a", None), ("a", 10))

    assert read == [("a", 11), ("a", None), ("a", 13)]


def test_a_transformer_may_bring_its_stores(topology_driver: DriverFactory) -> None:
    class Brings(CountsCalls):
        def stores(self) -> Iterable[StoreBuilder[Any]]:
            return [CALLS]

    driver = table_driver(
        topology_driver,
        lambda table: table.transform_values(Brings, value=int, materialized="result"),
    )

    piped(driver, ("a", 10))

    assert driver.get_key_value_store("result").get("a") == 11


def test_a_transformer_is_renewed_at_each_commit_and_closed(
    topology_driver: DriverFactory,
) -> None:
    seen: list[str] = []

    class Lives(ValueTransformerWithKey[str, int, int]):
        def init(self, context: CommonContext) -> None:
            super().init(context)
            seen.append("init")

        def transform(self, key: str, value: int | None) -> int | None:
            seen.append("transform")
            return value

        def close(self) -> None:
            seen.append("close")

    driver = table_driver(topology_driver, lambda t: t.transform_values(Lives, value=int))

    piped(driver, ("a", 1))
    driver.close()

    assert seen == ["init", "transform", "close", "init", "close"]


def test_a_transformer_may_schedule(topology_driver: DriverFactory) -> None:
    ticks: list[int] = []

    class Schedules(ValueTransformerWithKey[str, int, int]):
        def init(self, context: CommonContext) -> None:
            super().init(context)
            context.schedule(10, PunctuationType.STREAM_TIME, ticks.append)

        def transform(self, key: str, value: int | None) -> int | None:
            return value

    driver = table_driver(topology_driver, lambda t: t.transform_values(Schedules, value=int))

    driver.create_input_topic("in").pipe_key_value_list([("a", 1)] * 4, start=1, advance=5)

    assert ticks == [1, 11]


def test_a_transformer_cannot_forward(topology_driver: DriverFactory) -> None:
    class Forwards(ValueTransformerWithKey[str, int, int]):
        def transform(self, key: str, value: int | None) -> int | None:
            context: Any = self.context
            context.forward(Record(key, value, 0))
            return value

    driver = table_driver(topology_driver, lambda t: t.transform_values(Forwards, value=int))

    with pytest.raises(ProcessingError, match=r"The transformer at .* forwarded a record"):
        piped(driver, ("a", 1))


def test_a_transformer_that_fails_is_decided_about(topology_driver: DriverFactory) -> None:
    class Fails(ValueTransformerWithKey[str, int, int]):
        def transform(self, key: str, value: int | None) -> int | None:
            return 1 // (value or 0)

    driver = table_driver(
        topology_driver,
        lambda t: t.transform_values(Fails, value=int),
        processing_exception_handler="continue",
    )

    assert piped(driver, ("a", 0), ("a", 1)) == [("a", 1)]


# -- look-ups ----------------------------------------------------------------------------------


class Negates(ValueTransformerWithKey[str, int, int]):
    """Negates values; what is not there is zero."""

    def transform(self, key: str, value: int | None) -> int | None:
        assert self.context.record_metadata is None or value is not None
        return -(value or 0)


@pytest.mark.parametrize("store", [None, "computed"])
@pytest.mark.parametrize(
    ("compute", "found"),
    [
        pytest.param(lambda t, s: t.filter(is_large, materialized=s), [9], id="filter"),
        pytest.param(
            lambda t, s: t.map_values(lambda v: v + 1, value=int, materialized=s),
            [10, 3],
            id="map_values",
        ),
        pytest.param(
            lambda t, s: t.transform_values(Negates, value=int, materialized=s),
            [-9, -2],
            id="transform_values",
        ),
    ],
)
def test_a_computed_table_is_looked_up_through_its_function_or_in_its_store(
    topology_driver: DriverFactory, compute: Any, found: list[int], store: str | None
) -> None:
    builder = StreamsBuilder()
    table = compute(builder.table("in", key=str, value=int), store)
    stream = builder.stream("asked", key=str, value=int)
    stream.join(table, lambda _, value: value, value=int).to("out")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_key_value_list([("a", 9), ("b", 2)])
    driver.create_input_topic("asked").pipe_key_value_list([("a", 0), ("b", 0)])

    assert driver.create_output_topic("out").read_values_to_list() == found


def test_a_look_up_of_nothing_runs_the_transformer_without_a_record(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=str, value=int).transform_values(Negates, value=int)
    stream = builder.stream("asked", key=str, value=int)
    stream.join(table, lambda _, value: value, value=int).to("out")
    driver = topology_driver(builder.build())

    driver.create_input_topic("asked").pipe_input("a", 1)

    assert driver.create_output_topic("out").read_value() == 0


# -- the record cache ------------------------------------------------------------------------


def cached_driver(driver_of: DriverFactory, **settings: Any) -> TopologyTestDriver:
    builder = StreamsBuilder()
    table = builder.table("in", key=str, value=int, materialized="numbers")
    table.to_stream().to("out")
    return driver_of(builder.build(), commit_each_record=False, **settings)


def test_with_the_cache_a_commit_shows_the_last_update_of_each_key(
    topology_driver: DriverFactory,
) -> None:
    driver = cached_driver(topology_driver)

    before = piped(driver, ("a", 1), ("b", 2), ("a", 3))
    driver.commit()

    assert before == []
    assert piped(driver) == [("b", 2), ("a", 3)]


def test_without_the_cache_every_update_shows(topology_driver: DriverFactory) -> None:
    driver = cached_driver(topology_driver, statestore_cache_max_bytes=0)

    assert piped(driver, ("a", 1), ("b", 2), ("a", 3)) == [("a", 1), ("b", 2), ("a", 3)]


def test_a_table_that_is_not_to_be_cached_is_not(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    table = builder.table(
        "in", key=str, value=int, materialized=Materialized("numbers", caching=False)
    )
    table.to_stream().to("out")
    driver = topology_driver(builder.build(), commit_each_record=False)

    assert piped(driver, ("a", 1), ("a", 2)) == [("a", 1), ("a", 2)]


def test_a_key_that_came_and_went_between_two_commits_is_not_shown(
    topology_driver: DriverFactory,
) -> None:
    driver = cached_driver(topology_driver)

    piped(driver, ("a", 1), ("a", None))
    driver.commit()

    assert piped(driver) == []


def test_a_store_shows_what_the_cache_holds(topology_driver: DriverFactory) -> None:
    driver = cached_driver(topology_driver)

    piped(driver, ("b", 2), ("a", 1))

    assert list(driver.get_key_value_store("numbers").all()) == [("a", 1), ("b", 2)]


def test_a_small_cache_makes_room_before_the_commit(topology_driver: DriverFactory) -> None:
    driver = cached_driver(topology_driver, statestore_cache_max_bytes=150)

    read = piped(driver, ("a", 1), ("b", 2), ("c", 3), ("d", 4))

    assert read[0] == ("a", 1)
    assert len(read) < 4


def test_an_update_from_the_cache_has_time_and_headers_of_the_last_one(
    topology_driver: DriverFactory,
) -> None:
    driver = cached_driver(topology_driver)

    topic = driver.create_input_topic("in")
    topic.pipe_input("a", 1, timestamp=9, headers=[("h", b"1")])
    topic.pipe_input("a", 2, timestamp=4, headers=[("h", b"2")])
    driver.commit()

    expected = Record("a", 2, 4, [("h", b"2")])
    assert driver.create_output_topic("out").read_record() == expected
