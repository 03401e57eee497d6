"""Behaviour of the Processor API: forwarding, stores, context and renewal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest

from headrace import (
    KeyValueStore,
    ProcessingError,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    RecordMetadata,
    Stores,
    StreamsBuilder,
    Topology,
    TopologyError,
    UnknownStoreError,
)
from headrace.state.specs import StoreBuilder
from headrace.testing import DriverFactory, TopologyTestDriver

NUMBERS = Stores.key_value("numbers", str, int)


class Run(Processor[Any, Any, Any, Any]):
    """Calls a function for each record: `f(context, record)`."""

    def __init__(self, function: Callable[[Any, Any], object]) -> None:
        self.function = function

    def process(self, record: Record[Any, Any]) -> None:
        self.function(self.context, record)


def one_processor(function: Callable[[Any, Any], object], *stores: StoreBuilder[Any]) -> Topology:
    topology = Topology()
    topology.add_source("source", "in", key=str, value=int)
    topology.add_processor("processor", partial(Run, function), "source")
    for store in stores:
        topology.add_state_store(store, "processor")
    return topology.add_sink("sink", "out", "processor", key=str, value=int)


# -- forwarding ------------------------------------------------------------------------------


def two_children(function: Callable[[Any, Any], object]) -> Topology:
    topology = one_processor(function)
    return topology.add_sink("another", "other", "processor", key=str, value=int)


def test_forward_hands_a_record_to_every_child(topology_driver: DriverFactory) -> None:
    driver = topology_driver(two_children(lambda context, record: context.forward(record)))

    driver.create_input_topic("in").pipe_input("a", 1)

    assert driver.create_output_topic("out").read_key_value() == ("a", 1)
    assert driver.create_output_topic("other").read_key_value() == ("a", 1)


def test_children_run_in_the_order_they_were_added(topology_driver: DriverFactory) -> None:
    seen: list[str] = []
    topology = one_processor(lambda context, record: context.forward(record))
    for name in ("b", "a", "c"):
        topology.add_processor(
            name, partial(Run, lambda *_, name=name: seen.append(name)), "processor"
        )
    driver = topology_driver(topology)

    driver.create_input_topic("in").pipe_input("k", 1)

    assert seen == ["b", "a", "c"]


def test_forward_may_name_one_child(topology_driver: DriverFactory) -> None:
    driver = topology_driver(
        two_children(lambda context, record: context.forward(record, "another"))
    )

    driver.create_input_topic("in").pipe_input("a", 1)

    assert driver.produced_topic_names() == {"other"}


def test_forward_to_an_unknown_child_lists_the_children(topology_driver: DriverFactory) -> None:
    driver = topology_driver(two_children(lambda context, record: context.forward(record, "x")))

    with pytest.raises(ProcessingError) as caught:
        driver.create_input_topic("in").pipe_input("a", 1)

    assert isinstance(caught.value.__cause__, TopologyError)
    assert "'x', which is not its child. Its children are ['sink', 'another']" in str(caught.value)


def test_forward_may_change_key_value_timestamp_and_headers(
    topology_driver: DriverFactory,
) -> None:
    made = Record("b", 2, 9, [("h", b"1")])
    driver = topology_driver(one_processor(lambda context, _: context.forward(made)))

    driver.create_input_topic("in").pipe_input("a", 1, timestamp=1)

    assert driver.create_output_topic("out").read_record() == made


def test_a_child_runs_to_its_end_before_forward_returns(topology_driver: DriverFactory) -> None:
    seen: list[str] = []

    def around(context: Any, record: Any) -> None:
        seen.append("before")
        context.forward(record)
        seen.append("after")

    topology = one_processor(around)
    topology.add_processor("child", partial(Run, lambda *_: seen.append("child")), "processor")
    driver = topology_driver(topology)

    driver.create_input_topic("in").pipe_input("a", 1)

    assert seen == ["before", "child", "after"]


# -- context ---------------------------------------------------------------------------------


def test_a_processor_reads_where_its_record_came_from(topology_driver: DriverFactory) -> None:
    seen: list[Any] = []
    topology = one_processor(lambda context, _: seen.append(context.record_metadata))
    driver = topology_driver(topology)

    driver.create_input_topic("in").pipe_value_list([1, 2])

    assert seen == [RecordMetadata("in", 0, 0), RecordMetadata("in", 0, 1)]


def test_a_context_has_its_application_task_times_and_settings(
    topology_driver: DriverFactory,
) -> None:
    seen: list[Any] = []

    def look(context: Any, _record: Any) -> None:
        seen.append((context.application_id, context.task_id))
        seen.append((context.current_stream_time_ms(), context.current_system_time_ms()))
        configs = context.app_configs()
        seen.append((configs["application.id"], configs["input.topic.name"]))

    driver = topology_driver(
        one_processor(look),
        application_id="shop",
        app_configs={"input.topic.name": "in"},
        initial_wall_clock_time=99,
    )

    driver.create_input_topic("in").pipe_input("a", 1, timestamp=7)

    assert seen == [("shop", "0_0"), (7, 99), ("shop", "in")]


def test_a_commit_is_made_after_the_record_that_asked_for_it(
    topology_driver: DriverFactory,
) -> None:
    seen: list[str] = []

    class Closing(Run):
        def close(self) -> None:
            seen.append("renewed")

    def ask(context: Any, record: Any) -> None:
        seen.append(f"record {record.value}")
        if record.value == 2:
            context.commit()

    topology = Topology().add_source("source", "in", key=str, value=int)
    topology.add_processor("p", partial(Closing, ask), "source")
    driver = topology_driver(topology, commit_each_record=False)

    driver.create_input_topic("in").pipe_value_list([1, 2, 3])

    assert seen == ["record 1", "record 2", "renewed", "record 3"]


# -- renewal ---------------------------------------------------------------------------------


class KeepsInAField(Processor[str, int, str, int]):
    """Counts in a field, which is gone after a commit, and in a store, which stays."""

    def __init__(self) -> None:
        self.in_field = 0

    def init(self, context: ProcessorContext[str, int]) -> None:
        super().init(context)
        self.numbers: KeyValueStore[str, int] = context.get_state_store(NUMBERS)

    def process(self, record: Record[str, int]) -> None:
        self.in_field += 1
        in_store = (self.numbers.get("count") or 0) + 1
        self.numbers.put("count", in_store)
        self.context.forward(Record("field", self.in_field, record.timestamp))
        self.context.forward(Record("store", in_store, record.timestamp))


def kept() -> Topology:
    topology = Topology().add_source("source", "in", key=str, value=int)
    topology.add_processor("p", KeepsInAField, "source").add_state_store(NUMBERS, "p")
    return topology.add_sink("sink", "out", "p", key=str, value=int)


def test_a_field_of_a_processor_is_lost_after_a_commit(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(kept())

    driver.create_input_topic("in").pipe_value_list([1, 1, 1])

    expected = [("field", 1), ("store", 1), ("field", 1), ("store", 2), ("field", 1), ("store", 3)]
    assert driver.create_output_topic("out").read_key_values_to_list() == expected


def test_a_processor_lives_until_the_commit(topology_driver: DriverFactory) -> None:
    driver = topology_driver(kept(), commit_each_record=False)

    topic = driver.create_input_topic("in")
    topic.pipe_value_list([1, 1])
    driver.commit()
    topic.pipe_value_list([1])

    expected = [("field", 1), ("store", 1), ("field", 2), ("store", 2), ("field", 1), ("store", 3)]
    assert driver.create_output_topic("out").read_key_values_to_list() == expected


def test_processors_are_started_and_closed_parents_first() -> None:
    seen: list[str] = []

    class Named(Processor[Any, Any, Any, Any]):
        def __init__(self, name: str) -> None:
            self.name = name

        def init(self, context: ProcessorContext[Any, Any]) -> None:
            seen.append(f"init {self.name}")

        def process(self, record: Record[Any, Any]) -> None:
            self.context.forward(record)

        def close(self) -> None:
            seen.append(f"close {self.name}")

    topology = Topology().add_source("source", "in", key=str, value=int)
    topology.add_processor("parent", partial(Named, "parent"), "source")
    topology.add_processor("child", partial(Named, "child"), "parent")

    TopologyTestDriver(topology).close()

    assert seen == ["init parent", "init child", "close parent", "close child"]


def test_a_failing_init_names_the_step_and_the_line_that_made_it() -> None:
    class Broken(Processor[Any, Any, Any, Any]):
        def init(self, context: ProcessorContext[Any, Any]) -> None:
            raise KeyError("url")

        def process(self, record: Record[Any, Any]) -> None: ...

    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).process(Broken, name="p")

    with pytest.raises(ProcessingError) as caught:
        TopologyTestDriver(builder.build())

    assert str(caught.value) == "The processor at 'p' failed in `init`: KeyError: 'url'."
    assert caught.value.node == "p"
    assert caught.value.__notes__[0].startswith("The step was made at test_processor.py:")


def test_a_failing_close_names_the_step(topology_driver: DriverFactory) -> None:
    class Broken(Processor[Any, Any, Any, Any]):
        def process(self, record: Record[Any, Any]) -> None: ...

        def close(self) -> None:
            raise OSError("gone")

    topology = Topology().add_source("source", "in", key=str, value=int)
    topology.add_processor("p", Broken, "source")
    driver = TopologyTestDriver(topology)

    with pytest.raises(ProcessingError, match="at 'p' failed in `close`: OSError: gone"):
        driver.create_input_topic("in").pipe_input("a", 1)


def test_an_error_of_ours_in_close_passes_as_it_is(topology_driver: DriverFactory) -> None:
    class AsksTooLate(Processor[Any, Any, Any, Any]):
        def process(self, record: Record[Any, Any]) -> None: ...

        def close(self) -> None:
            self.context.get_state_store("numbers")

    topology = Topology().add_source("source", "in", key=str, value=int)
    driver = TopologyTestDriver(topology.add_processor("p", AsksTooLate, "source"))

    with pytest.raises(UnknownStoreError):
        driver.close()


# -- stores ----------------------------------------------------------------------------------


def test_a_store_that_is_not_connected_cannot_be_had(topology_driver: DriverFactory) -> None:
    topology = one_processor(lambda context, _: context.get_state_store("numbers"))
    topology.add_processor("other", partial(Run, lambda *_: None), "source")
    topology.add_state_store(NUMBERS, "other")
    driver = topology_driver(topology)

    with pytest.raises(ProcessingError) as caught:
        driver.create_input_topic("in").pipe_input("a", 1)

    assert isinstance(caught.value.__cause__, UnknownStoreError)
    assert "'processor' asked for store 'numbers', but it is connected to no store" in str(
        caught.value
    )


def test_a_store_that_is_not_connected_shows_when_init_asks_for_it() -> None:
    topology = Topology().add_source("source", "in", key=str, value=int)
    topology.add_processor("p", KeepsInAField, "source")

    with pytest.raises(UnknownStoreError, match=r"Add 'numbers' to its `stores=`"):
        TopologyTestDriver(topology)


def test_the_stores_a_processor_brings_are_added_and_connected(
    topology_driver: DriverFactory,
) -> None:
    class Brings(KeepsInAField):
        def stores(self) -> Iterable[StoreBuilder[Any]]:
            return [NUMBERS]

    topology = Topology().add_source("source", "in", key=str, value=int)
    topology.add_processor("p", Brings, "source")
    driver = topology_driver(topology)

    driver.create_input_topic("in").pipe_value_list([1, 1])

    assert driver.get_key_value_store("numbers").get("count") == 2


def test_stores_may_be_given_as_builders_or_names(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    builder.add_state_store(NUMBERS)
    stream = builder.stream("in", key=str, value=int)
    stream.process(KeepsInAField, stores=["numbers"], key=str, value=int).to("one")
    stream.process(KeepsInAField, stores=[NUMBERS], key=str, value=int).to("two")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input("a", 1)

    assert driver.create_output_topic("one").read_key_values_to_map()["store"] == 1
    assert driver.create_output_topic("two").read_key_values_to_map()["store"] == 2


def test_processors_that_share_a_store_run_in_one_sub_topology() -> None:
    topology = Topology()
    for name in ("one", "two"):
        topology.add_source(f"source-{name}", name, key=str, value=int)
        topology.add_processor(name, KeepsInAField, f"source-{name}")
    topology.add_state_store(NUMBERS, "one")

    apart = len(topology.describe().subtopologies)
    topology.connect_processor_and_state_stores("two", "numbers")

    assert (apart, len(topology.describe().subtopologies)) == (2, 1)


def store_of(topology_driver: DriverFactory, function: Callable[[Any], object]) -> list[Any]:
    """Return what a processor got from its store, with entries of a, b, ba and c."""
    seen: list[Any] = []

    def use(context: Any, _record: Any) -> None:
        store = context.get_state_store(NUMBERS)
        store.put_all([("c", 3), ("a", 1), ("ba", 21), ("b", 2)])
        result: Any = function(store)
        seen.append(list(result) if hasattr(result, "__next__") else result)
        seen.append(list(store.all()))

    driver = topology_driver(one_processor(use, NUMBERS))
    driver.create_input_topic("in").pipe_input("k", 1)
    return seen


ALL = [("a", 1), ("b", 2), ("ba", 21), ("c", 3)]


@pytest.mark.parametrize(
    ("function", "result"),
    [
        pytest.param(lambda s: s.get("b"), 2, id="get"),
        pytest.param(lambda s: s.get("x"), None, id="get nothing"),
        pytest.param(lambda s: s.all(), ALL, id="all"),
        pytest.param(lambda s: s.reverse_all(), ALL[::-1], id="reverse_all"),
        pytest.param(lambda s: s.range("b", "c"), ALL[1:], id="range"),
        pytest.param(lambda s: s.range("aa"), ALL[1:], id="range without end"),
        pytest.param(lambda s: s.range(None, "b"), ALL[:2], id="range without start"),
        pytest.param(lambda s: s.range("c", "a"), [], id="range backwards"),
        pytest.param(lambda s: s.reverse_range("a", "b"), ALL[1::-1], id="reverse_range"),
        pytest.param(lambda s: s.prefix_scan("b"), ALL[1:3], id="prefix_scan"),
        pytest.param(lambda s: s.put_if_absent("a", 9), 1, id="put_if_absent of one there"),
        pytest.param(lambda s: s.approximate_num_entries(), 4, id="approximate_num_entries"),
    ],
)
def test_a_store_is_read_in_the_order_of_its_keys(
    topology_driver: DriverFactory, function: Callable[[Any], object], result: object
) -> None:
    assert store_of(topology_driver, function) == [result, ALL]


@pytest.mark.parametrize(
    ("function", "result", "left"),
    [
        pytest.param(lambda s: s.delete("b"), 2, [ALL[0], *ALL[2:]], id="delete"),
        pytest.param(lambda s: s.put("b", None), None, [ALL[0], *ALL[2:]], id="put None"),
        pytest.param(lambda s: s.delete("x"), None, ALL, id="delete nothing"),
        pytest.param(lambda s: s.put_if_absent("d", 4), None, [*ALL, ("d", 4)], id="put_if_absent"),
        pytest.param(lambda s: s.put("a", 9), None, [("a", 9), *ALL[1:]], id="put"),
    ],
)
def test_a_store_is_changed(
    topology_driver: DriverFactory,
    function: Callable[[Any], object],
    result: object,
    left: list[tuple[str, int]],
) -> None:
    assert store_of(topology_driver, function) == [result, left]


def test_an_iterator_reads_what_was_there_when_it_was_made(
    topology_driver: DriverFactory,
) -> None:
    def read_while_writing(store: Any) -> list[Any]:
        entries = store.all()
        store.put("b", None)
        return list(entries)

    assert store_of(topology_driver, read_while_writing)[0] == ALL


def test_integer_keys_are_ordered_by_their_bytes(topology_driver: DriverFactory) -> None:
    numbers = Stores.key_value("by-number", int, str)
    seen: list[int] = []

    def use(context: Any, _record: Any) -> None:
        store = context.get_state_store(numbers)
        store.put_all([(1, "x"), (-1, "x"), (0, "x")])
        seen.extend(key for key, _ in store.all())

    driver = topology_driver(one_processor(use, numbers))

    driver.create_input_topic("in").pipe_input("k", 1)

    assert seen == [0, 1, -1]


# -- methods whose call does nothing ---------------------------------------------------------


class AsynchronousProcess(Processor[Any, Any, Any, Any]):
    async def process(self, record: Record[Any, Any]) -> None:  # type: ignore[override]
        self.context.forward(record)


class GeneratingProcess(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> Any:
        yield record


class AsynchronousInit(Processor[Any, Any, Any, Any]):
    async def init(self, context: ProcessorContext[Any, Any]) -> None:  # type: ignore[override]
        self.context = context

    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)


class AsynchronousPunctuator(Processor[Any, Any, Any, Any]):
    def init(self, context: ProcessorContext[Any, Any]) -> None:
        super().init(context)
        context.schedule("1s", PunctuationType.STREAM_TIME, self.punctuate)

    async def punctuate(self, _timestamp: int) -> None:
        pass

    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)


@pytest.mark.parametrize(
    ("supplier", "problem"),
    [
        (AsynchronousProcess, "`process` of the processor at 'processor' is asynchronous"),
        (GeneratingProcess, "`process` of the processor at 'processor' is a generator"),
        (AsynchronousInit, "`init` of the processor at 'processor' is asynchronous"),
        (AsynchronousPunctuator, "The punctuator of the processor at 'processor' is asynchronous"),
    ],
)
def test_a_processor_whose_calls_do_nothing_is_refused(
    topology_driver: DriverFactory, supplier: Callable[[], Any], problem: str
) -> None:
    topology = Topology().add_source("source", "in", key=str, value=int)
    topology.add_processor("processor", supplier, "source")

    with pytest.raises(TopologyError, match=problem):
        topology_driver(topology).create_input_topic("in").pipe_input("a", 1)
