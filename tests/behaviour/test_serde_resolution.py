"""The serde of a step: explicit, inherited, deduced, default, or an error when built."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace import (
    FixedKeyProcessor,
    FixedKeyRecord,
    KStream,
    Materialized,
    MissingSerdeError,
    Processor,
    Record,
    Serdes,
    SessionWindows,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    TimeWindows,
    Topology,
    ValueTransformerWithKey,
)
from headrace.testing import DriverFactory, TopologyTestDriver


@dataclass
class Order:
    amount: int


def doubled(order: Order) -> Order:
    return Order(order.amount * 2)


def by_amount(key: str, order: Order) -> tuple[int, str]:
    return order.amount, key


def amounts(key: str, order: Order) -> Iterator[tuple[int, Order]]:
    yield order.amount, order


def amount_of(key: str, order: Order) -> int:
    return order.amount


def digits(order: Order) -> list[int]:
    return [int(digit) for digit in str(order.amount)]


def total(_key: str, order: Order, amount: Any) -> int:
    return int(amount) + order.amount


class Swap(Processor[str, Order, int, str]):
    def process(self, record: Record[str, Order]) -> None:
        self.context.forward(Record(record.value.amount, record.key, record.timestamp))


class Amount(FixedKeyProcessor[str, Order, int]):
    def process(self, record: FixedKeyRecord[str, Order]) -> None:
        self.context.forward(record.with_value(record.value.amount))


class AmountOf(ValueTransformerWithKey[str, Order, int]):
    def transform(self, key: str, value: Order | None) -> int | None:
        return None if value is None else value.amount


def written(topology_driver: DriverFactory, program: Callable[[Any], KStream[Any, Any]]) -> Any:
    """Return the bytes a program writes for one order."""
    builder = StreamsBuilder()
    program(builder.stream("in", key=str, value=Order)).to("out")
    driver = topology_driver(builder.build())
    driver.create_input_topic("in").pipe_input("a", Order(7))
    return driver.create_output_topic("out", key=bytes, value=bytes).read_key_value()


LONG_7 = bytes([0, 0, 0, 0, 0, 0, 0, 7])
INT_7 = LONG_7[4:]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        pytest.param(lambda s: s.filter(lambda *_: True), (b"a", b'{"amount":7}'), id="inherited"),
        pytest.param(
            lambda s: s.map_values(lambda o: o.amount, value=Serdes.integer()),
            (b"a", INT_7),
            id="explicit serde",
        ),
        pytest.param(
            lambda s: s.map_values(lambda o: o.amount, value=int), (b"a", LONG_7), id="type"
        ),
        pytest.param(lambda s: s.map_values(doubled), (b"a", b'{"amount":14}'), id="return type"),
        pytest.param(
            lambda s: s.map_values(lambda o: 7, value=int).map_values(Order),
            (b"a", b'{"amount":7}'),
            id="class as function",
        ),
        pytest.param(lambda s: s.map(by_amount), (LONG_7, b"a"), id="pair"),
        pytest.param(
            lambda s: s.flat_map(amounts), (LONG_7, b'{"amount":7}'), id="iterable of pairs"
        ),
        pytest.param(lambda s: s.flat_map_values(digits), (b"a", LONG_7), id="items"),
        pytest.param(lambda s: s.select_key(amount_of), (LONG_7, b'{"amount":7}'), id="key"),
        pytest.param(
            lambda s: s.map_values(lambda o: "x" * o.amount, value=str).map_values(len),
            (b"a", LONG_7),
            id="builtin",
        ),
        pytest.param(
            lambda s: s.map_values(lambda _: "x", value=str).map_values(str.upper),
            (b"a", b"X"),
            id="method of a builtin",
        ),
        pytest.param(lambda s: s.process(Swap), (LONG_7, b"a"), id="processor"),
        pytest.param(lambda s: s.process(partial(Swap)), (LONG_7, b"a"), id="supplier"),
        pytest.param(lambda s: s.process_values(Amount), (b"a", LONG_7), id="fixed-key processor"),
        pytest.param(
            lambda s: s.to_table().transform_values(AmountOf).to_stream(),
            (b"a", LONG_7),
            id="transformer",
        ),
        pytest.param(
            lambda s: s.group_by_key().aggregate(lambda: 0, total).to_stream(),
            (b"a", LONG_7),
            id="annotated aggregator",
        ),
        pytest.param(
            lambda s: s.group_by_key().cogroup(total).aggregate(lambda: 0).to_stream(),
            (b"a", LONG_7),
            id="annotated aggregator of a cogroup",
        ),
        pytest.param(
            lambda s: s.to_table().to_stream(), (b"a", b'{"amount":7}'), id="through a table"
        ),
        pytest.param(
            lambda s: s.to_table().map_values(doubled).to_stream(),
            (b"a", b'{"amount":14}'),
            id="table return type",
        ),
        pytest.param(
            lambda s: s.to_table().to_stream(amount_of), (LONG_7, b'{"amount":7}'), id="new key"
        ),
    ],
)
def test_the_serde_of_a_step(
    topology_driver: DriverFactory, program: Callable[[Any], Any], expected: tuple[bytes, bytes]
) -> None:
    assert written(topology_driver, program) == expected


def test_a_sink_may_say_the_serde_anew(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).to("out", key=bytes)  # type: ignore[arg-type]
    driver = topology_driver(builder.build())
    stream = driver.create_input_topic("in")

    with pytest.raises(StreamsError, match="could not write the key"):
        stream.pipe_input("a", 7)


def test_merged_streams_that_agree_keep_their_serdes(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    one, other = (builder.stream(topic, key=str, value=int) for topic in ("one", "other"))
    one.merge(other).to("out")
    driver = topology_driver(builder.build())

    driver.create_input_topic("other").pipe_input("a", 7)

    assert driver.create_output_topic("out").read_key_value() == ("a", 7)


def test_the_default_serdes_fill_what_the_program_leaves_open(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    builder.stream("in").map_values(lambda value: value + 1).to("out")
    driver = topology_driver(builder.build(), default_key_serde=str, default_value_serde=int)

    driver.create_input_topic("in").pipe_input("a", 6)

    output = driver.create_output_topic("out", key=bytes, value=bytes)
    assert output.read_key_value() == (b"a", LONG_7)


def test_defaults_do_not_replace_what_the_program_says(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).to("out")
    driver = topology_driver(builder.build(), default_key_serde=bytes, default_value_serde=bytes)

    driver.create_input_topic("in").pipe_input("a", 7)

    assert driver.create_output_topic("out").read_key_value() == ("a", 7)


def this_line() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def missing(program: Callable[[Any], object]) -> list[str]:
    """Return the serdes that a program misses, as the error lists them, without line numbers."""
    builder = StreamsBuilder()
    program(builder.stream("in", key=str, value=Order, name="orders"))
    with pytest.raises(MissingSerdeError) as caught:
        TopologyTestDriver(builder.build())
    return [re.sub(rf" at {Path(__file__).name}:[0-9]+", "", str(m)) for m in caught.value.missing]


def test_a_missing_serde_names_the_calls_their_lines_and_the_keyword() -> None:
    builder = StreamsBuilder()
    lines = builder.stream("in", key=str, value=str)
    mapped, lost = lines.map_values(lambda line: line.split()), this_line()
    mapped.filter(lambda *_: True).to("out", name="sink")
    needed = this_line() - 1

    with pytest.raises(MissingSerdeError) as caught:
        TopologyTestDriver(builder.build())

    file = Path(__file__).name
    assert str(caught.value) == (
        f"to(…) at {file}:{needed} needs a serde for its values, but map_values(…) at "
        f"{file}:{lost} does not state their type. Add `value=` to map_values(…) at "
        f"{file}:{lost}, or set `default_value_serde`."
    )


def test_all_missing_serdes_are_listed_at_once() -> None:
    builder = StreamsBuilder()
    orders = builder.stream("orders")
    customers = builder.table("customers", key=str, value=str)
    mapped = orders.map(lambda key, value: (value, key))
    mapped.join(customers, lambda order, customer: (order, customer)).to("joined")
    orders.to("copy")

    with pytest.raises(MissingSerdeError) as caught:
        builder.build(StreamsConfig(application_id="app"))

    first, *listed = re.sub(r" at [^:]+:[0-9]+", "", str(caught.value)).splitlines()
    assert first == "5 serdes are missing:"
    assert listed == [
        f"  - {needs} a serde for its {part}s, but {lost}. "
        f"Add `{part}=` to {to}, or set `default_{part}_serde`."
        for needs, part, lost, to in [
            ("stream(…) needs", "key", "their type was never given", "stream(…)"),
            ("stream(…) needs", "value", "their type was never given", "stream(…)"),
            ("join(…) needs", "key", "map(…) does not state their type", "map(…)"),
            ("join(…) needs", "value", "map(…) does not state their type", "map(…)"),
            ("to(…) needs", "value", "join(…) does not state their type", "join(…)"),
        ]
    ]


def test_a_table_names_the_call_that_reads_it() -> None:
    builder = StreamsBuilder()
    builder.table("in", key=str).to_stream().to("out")

    with pytest.raises(MissingSerdeError) as caught:
        TopologyTestDriver(builder.build())

    [value] = caught.value.missing
    assert value.needed_by == value.lost_by
    assert value.needed_by.startswith("table(…) at ")


def test_a_step_of_the_processor_api_is_named_by_its_name() -> None:
    topology = Topology().add_source("source", "in", key=str, value=int)
    topology.add_sink("sink", "out", "source", key=str)

    with pytest.raises(MissingSerdeError) as caught:
        TopologyTestDriver(topology)

    assert str(caught.value) == (
        "Step 'sink' needs a serde for its values, but their type was never given. "
        "Add `value=` to step 'sink', or set `default_value_serde`."
    )


def test_a_lambda_that_chooses_keys_says_nothing_of_their_type() -> None:
    assert missing(lambda s: s.select_key(lambda *_: 1).repartition()) == [
        "repartition(…) needs a serde for its keys, but select_key(…) does not state their type. "
        "Add `key=` to select_key(…), or set `default_key_serde`."
    ]


def test_a_store_names_the_call_that_uses_it() -> None:
    assert missing(
        lambda s: s.group_by_key().aggregate(lambda: 0, lambda _key, _order, count: count + 1)
    ) == [
        "aggregate(…) needs a serde for its values, but their type was never given. "
        "Add `value=` to aggregate(…), or set `default_value_serde`."
    ]


def test_a_windowed_key_names_the_call_that_lost_the_key() -> None:
    assert missing(
        lambda s: (
            s.group_by(lambda key, _order: key)
            .windowed_by(TimeWindows("1s"))
            .count()
            .to_stream()
            .to("out")
        )
    ) == [
        "count(…) needs a serde for its keys, but group_by(…) does not state their type. "
        "Add `key=` to group_by(…), or set `default_key_serde`."
    ]


def two(_key: str, _order: Order, count: Any) -> Any:
    return count + 1


AGGREGATES: list[tuple[str, Callable[[Any], Any]]] = [
    ("of a stream", lambda g: g.aggregate(lambda: 0, two, value=int)),
    ("in windows", lambda g: g.windowed_by(TimeWindows("1s")).aggregate(lambda: 0, two, value=int)),
    (
        "in sessions",
        lambda g: g.windowed_by(SessionWindows("1s")).aggregate(
            lambda: 0, two, lambda _key, one, other: one + other, value=int
        ),
    ),
    ("of a cogroup", lambda g: g.cogroup(two).aggregate(lambda: 0, value=int)),
    (
        "of a cogroup in windows",
        lambda g: g.cogroup(two).windowed_by(TimeWindows("1s")).aggregate(lambda: 0, value=int),
    ),
    (
        "of a cogroup in sessions",
        lambda g: (
            g.cogroup(two)
            .windowed_by(SessionWindows("1s"))
            .aggregate(lambda: 0, lambda _key, one, other: one + other, value=int)
        ),
    ),
]


@pytest.mark.parametrize("build", [pytest.param(build, id=name) for name, build in AGGREGATES])
def test_an_aggregate_takes_the_type_of_its_value(
    topology_driver: DriverFactory, build: Callable[[Any], Any]
) -> None:
    builder = StreamsBuilder()
    build(builder.stream("in", key=str, value=Order).group_by_key()).to_stream().to("out")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input("a", Order(1))

    assert driver.create_output_topic("out").read_value() == 1


def test_an_aggregate_of_a_table_takes_the_type_of_its_value(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    grouped = builder.table("in", key=str, value=Order).group_by(
        lambda k, o: (k, o), key=str, value=Order
    )
    grouped.aggregate(lambda: 0, two, two, value=int).to_stream().to("out")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input("a", Order(1))

    assert driver.create_output_topic("out").read_value() == 1


def test_an_aggregate_gets_its_type_from_materialized(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=Order).group_by_key().aggregate(
        lambda: 0, lambda _k, _o, count: count + 1, materialized=Materialized("n", value=int)
    )
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input("a", Order(1))

    assert driver.get_key_value_store("n").get("a") == 1


def test_grouping_by_a_function_that_says_its_type(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=Order).group_by(amount_of).count(materialized="n")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input("a", Order(7))

    assert list(driver.get_key_value_store("n").all()) == [(7, 1)]


def test_a_step_nobody_writes_needs_no_serde(topology_driver: DriverFactory) -> None:
    seen: list[Any] = []
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=Order)
    stream.map(lambda key, order: (object(), order.amount)).foreach(lambda _, n: seen.append(n))
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input("a", Order(3))

    assert seen == [3]


def test_a_topology_built_with_its_config_keeps_the_serdes_of_that_moment(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    config = StreamsConfig(application_id="app", default_key_serde=str, default_value_serde=int)

    driver = topology_driver(builder.build(config))
    driver.create_input_topic("in").pipe_input("a", 1)

    assert driver.create_output_topic("out").read_key_value() == ("a", 1)


class Bound:
    """A serde that writes which topic it was bound to, as a schema registry's subject would be."""

    def __init__(self, topic: str = "nothing", *, is_key: bool = False) -> None:
        self.prefix = f"{topic}/{'key' if is_key else 'value'}:".encode()

    def for_topic(self, topic: str, *, is_key: bool) -> Bound:
        return Bound(topic, is_key=is_key)

    def serialize(self, value: str, /) -> bytes:
        return self.prefix + value.encode()

    def deserialize(self, data: bytes, /) -> str:
        return data.removeprefix(self.prefix).decode()


def test_a_serde_is_bound_to_the_topic_and_to_the_changelog_it_writes(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=str, value=Bound(), materialized="kept")
    table.to_stream().to("out")
    driver = topology_driver(builder.build(), application_id="app")

    driver.create_input_topic("in").pipe_input("a", "x")

    written = driver.create_output_topic("out", key=str, value=bytes).read_value()
    stored = driver.get_state_store("kept")._data.get(b"a")[0]
    assert written == b"out/value:x"
    assert stored == b"app-kept-changelog/value:x"
