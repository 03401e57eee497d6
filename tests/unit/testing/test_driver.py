"""TopologyTestDriver: what it offers beyond running a topology."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace import (
    Headers,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    Topology,
)
from headrace.testing import DriverFactory, MetricName, TopologyTestDriver


def copy() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).to("out")
    return builder.build()


def counted() -> Topology:
    builder = StreamsBuilder()
    builder.table("in", key=str, value=int, materialized="numbers")
    return builder.build()


def test_settings_may_be_a_config_a_mapping_or_keywords() -> None:
    config = StreamsConfig(application_id="mine")

    from_config = TopologyTestDriver(copy(), config)
    from_mapping = TopologyTestDriver(copy(), {"application.id": "mine"}, application_id="yours")

    assert (from_config._application_id, from_mapping._application_id) == ("mine", "yours")


def test_a_driver_needs_a_partition() -> None:
    with pytest.raises(ValueError, match=r"`partitions` is 0. Use one or more"):
        TopologyTestDriver(copy(), partitions=0)


def test_an_unknown_input_topic_is_an_error_with_a_suggestion(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    builder.stream("orders", key=str, value=int)
    builder.global_table("rates", key=str, value=int)
    driver = topology_driver(builder.build())

    with pytest.raises(
        StreamsError, match=r"does not read topic 'order'\. Did you mean 'orders'\?"
    ):
        driver.create_input_topic("order")
    with pytest.raises(StreamsError, match=r"topic 'x'. It reads \['orders', 'rates'\]"):
        driver.create_input_topic("x")


def test_bytes_for_an_unknown_topic_are_refused(topology_driver: DriverFactory) -> None:
    driver = topology_driver(copy())

    with pytest.raises(StreamsError, match="does not read topic 'x'"):
        driver.pipe_raw("x", None, None, 0, Headers())


def test_an_unknown_output_topic_lists_those_that_are_written(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(copy())

    with pytest.raises(StreamsError, match=r"writes no topic 'x', only \['out'\]"):
        driver.create_output_topic("x")


def test_the_serdes_of_a_chosen_topic_are_those_of_the_sink(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).to(lambda key, *_: key)
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input("anywhere", 4)

    assert driver.create_output_topic("anywhere").read_value() == 4


def test_internal_topics_can_be_read_and_piped(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).repartition(name="r").to("out")
    driver = topology_driver(builder.build(), application_id="app")

    driver.create_input_topic("app-r-repartition").pipe_input("a", 1)

    assert driver.create_output_topic("out").read_value() == 1
    assert driver.create_output_topic("app-r-repartition").is_empty()


def test_produced_topics_are_those_that_were_written(topology_driver: DriverFactory) -> None:
    driver = topology_driver(copy())
    output = driver.create_output_topic("out")
    before = driver.produced_topic_names()

    driver.create_input_topic("in").pipe_input("a", 1)
    output.read_record()

    assert (before, driver.produced_topic_names()) == (set(), {"out"})


def test_stream_time_is_the_highest_of_all_tasks(topology_driver: DriverFactory) -> None:
    driver = topology_driver(copy(), partitions=3)
    before = driver.stream_time

    topic = driver.create_input_topic("in")
    for key, time in (("ann", 3), ("bob", 9), ("cat", 5)):
        topic.pipe_input(key, 1, timestamp=time)

    assert (before, driver.stream_time) == (-1, 9)


def test_a_topology_of_global_tables_alone_has_no_stream_time(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    builder.global_table("t", key=str, value=int)

    assert topology_driver(builder.build()).stream_time == -1


def test_the_wall_clock_starts_at_the_given_time_and_does_not_go_back(
    topology_driver: DriverFactory,
) -> None:
    start = datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
    driver = topology_driver(copy(), initial_wall_clock_time=start)

    driver.create_input_topic("in").pipe_input("a", 1)

    assert driver.create_output_topic("out").read_record().timestamp == 5000
    with pytest.raises(ValueError, match="cannot go back by 1 ms"):
        driver.advance_wall_clock_time(-1)


def test_a_punctuation_may_ask_for_a_commit(topology_driver: DriverFactory) -> None:
    closed: list[str] = []

    class Commits(Processor[str, int, str, int]):
        def init(self, context: ProcessorContext[str, int]) -> None:
            super().init(context)
            context.schedule(10, PunctuationType.WALL_CLOCK_TIME, lambda _: context.commit())

        def process(self, record: Record[str, int]) -> None: ...

        def close(self) -> None:
            closed.append("renewed")

    topology = Topology().add_source("source", "in", key=str, value=int)
    topology.add_processor("p", Commits, "source")
    driver = topology_driver(topology, commit_each_record=False)

    driver.advance_wall_clock_time(5)
    before = list(closed)
    driver.advance_wall_clock_time(5)

    assert (before, closed) == ([], ["renewed"])


def test_a_closed_driver_raises_and_can_still_be_read() -> None:
    with TopologyTestDriver(copy()) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("a", 1)
    driver.close()

    assert driver.create_output_topic("out").read_value() == 1
    with pytest.raises(StreamsError, match="The test driver is closed"):
        topic.pipe_input("a", 1)
    with pytest.raises(StreamsError, match="The test driver is closed"):
        driver.advance_wall_clock_time(1)
    with pytest.raises(StreamsError, match="The test driver is closed"):
        driver.commit()


def test_metrics_have_kafkas_names(topology_driver: DriverFactory) -> None:
    driver = topology_driver(counted())

    driver.create_input_topic("in").pipe_key_value_list([("a", 1), (None, 2)])

    task = ("task-id", "0_0")
    node = (("processor-node-id", "KTABLE-SOURCE-0000000001"), ("reason", "null-key"))
    counted_for_task = {n: c for n, c in driver.metrics().items() if task in n.tags}
    assert counted_for_task == {
        MetricName("stream-task-metrics", "process-total", (task,)): 2,
        MetricName("stream-task-metrics", "dropped-records-total", (task,)): 1,
        MetricName("stream-processor-node-metrics", "dropped-by-reason-total", (task, *node)): 1,
    }
    assert str(next(iter(counted_for_task))) == "process-total"


# -- stores -------------------------------------------------------------------------------------


def test_stores_are_found_by_name_kind_or_builder(topology_driver: DriverFactory) -> None:
    driver = topology_driver(counted())
    driver.create_input_topic("in").pipe_input("a", 1, timestamp=5)

    assert driver.get_state_store("numbers").get("a") == (1, 5)
    assert driver.get_key_value_store("numbers").get("a") == 1
    assert driver.get_timestamped_key_value_store("numbers").get("a") == (1, 5)
    assert list(driver.get_all_state_stores()) == ["numbers"]


def test_a_store_of_another_kind_or_name_is_none(topology_driver: DriverFactory) -> None:
    driver = topology_driver(counted())

    assert driver.get_window_store("numbers") is None
    assert driver.get_timestamped_window_store("numbers") is None
    assert driver.get_session_store("numbers") is None
    assert driver.get_versioned_key_value_store("numbers") is None
    assert driver.get_key_value_store("unknown") is None
    assert driver.get_state_store("unknown") is None


class Stored(Processor[str, int, str, int]):
    """Puts every record into a store of plain values."""

    plain = Stores.key_value("plain", str, int)

    def process(self, record: Record[str, int]) -> None:
        self.context.get_state_store(self.plain).put(record.key, record.value)

    def stores(self) -> Any:
        return [self.plain]


def plainly_stored() -> Topology:
    topology = Topology().add_source("source", "in", key=str, value=int)
    return topology.add_processor("p", Stored, "source")


def test_a_store_of_plain_values_has_no_timestamps(topology_driver: DriverFactory) -> None:
    driver = topology_driver(plainly_stored())

    driver.create_input_topic("in").pipe_input("a", 1)

    assert driver.get_state_store(Stored.plain).get("a") == 1
    assert driver.get_timestamped_key_value_store("plain") is None


NAMES = ["ann", "bob", "cat", "dan", "eve"]


@pytest.mark.parametrize("topology", [plainly_stored, counted])
def test_a_store_of_several_partitions_shows_all_of_them(
    topology_driver: DriverFactory, topology: Any
) -> None:
    driver = topology_driver(topology(), partitions=3, statestore_cache_max_bytes=0)
    driver.create_input_topic("in").pipe_key_value_list([(name, 1) for name in NAMES])
    [name] = driver.get_all_state_stores()

    store = driver.get_key_value_store(name)
    store.put_all([("fay", 2), ("ann", 3)])
    store.put("gus", 4)

    assert sorted(store.all()) == sorted(
        [("ann", 3), *((name, 1) for name in NAMES[1:]), ("fay", 2), ("gus", 4)]
    )
    assert (store.get("ann"), store.get("nobody"), store.approximate_num_entries()) == (3, None, 7)


def test_a_partitioned_store_has_no_methods_its_partitions_lack(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(plainly_stored(), partitions=2)

    with pytest.raises(AttributeError, match="gett"):
        driver.get_state_store("plain").gett("a")


def test_timestamps_show_across_partitions_too(topology_driver: DriverFactory) -> None:
    driver = topology_driver(counted(), partitions=3)
    driver.create_input_topic("in").pipe_input("ann", 1, timestamp=5)

    assert driver.get_timestamped_key_value_store("numbers").get("ann") == (1, 5)
    assert driver.get_window_store("numbers") is None


def test_each_step_can_be_watched() -> None:
    builder = StreamsBuilder()
    builder.table("in", key=str, value=str).map_values(str.upper, value=str).to_stream().to("out")
    seen: list[tuple[str, Any, Any, int]] = []

    with TopologyTestDriver(builder.build(), on_step=lambda *step: seen.append(step)) as driver:
        driver.create_input_topic("in").pipe_input("k", "v", timestamp=5)

    assert seen == [
        ("KSTREAM-SOURCE-0000000001", "k", "v", 5),
        ("KTABLE-SOURCE-0000000002", "k", "v", 5),
        ("KTABLE-MAPVALUES-0000000003", "k", ("v", None, True), 5),
        ("KTABLE-TOSTREAM-0000000004", "k", ("V", None, True), 5),
        ("KSTREAM-SINK-0000000005", "k", "V", 5),
    ]
