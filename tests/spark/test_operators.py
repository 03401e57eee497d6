"""Every operator writes on Spark, on either log, what it writes on the driver."""

from __future__ import annotations

import inspect
import random
import re
from pathlib import Path
from typing import Any

import pytest

from headrace import (
    BranchedKStream,
    CogroupedKStream,
    EmitStrategy,
    FixedKeyProcessor,
    FixedKeyRecord,
    JoinWindows,
    KGroupedStream,
    KGroupedTable,
    KStream,
    KTable,
    Materialized,
    Processor,
    Record,
    SessionWindowedKStream,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindowedKStream,
    TimeWindows,
    Topology,
    ValueTransformerWithKey,
)
from tests.spark.hosts import Given, OnDriver, Seen, await_that, host_on

INPUTS = ("op-left", "op-right", "op-orders", "op-customers")


def joined(one: object, other: object) -> str:
    return f"{one}+{other}"


def add(_key: str, value: str, total: str) -> str:
    return total + value


def merge(_key: str, total: str, other: str) -> str:
    return total + other


def longest(one: str, other: str) -> str:
    return max(one, other, key=len)


def first(one: str, _other: str) -> str:
    return one


class Twice(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)
        self.context.forward(record.with_value(record.value[::-1]))


class Loud(FixedKeyProcessor[str, str, str]):
    def process(self, record: FixedKeyRecord[str, str]) -> None:
        self.context.forward(record.with_value(record.value.upper()))


class Quoted(ValueTransformerWithKey[str, str, str]):
    def transform(self, read_only_key: str, value: str | None) -> str:
        return f"{read_only_key}:{value}"


def write(table: KTable[Any, Any], topic: str) -> None:
    table.to_stream().map_values(str, value=str).to(topic)


def add_steps_without_state(left: KStream[str, str], right: KStream[str, str]) -> None:
    even = left.filter(lambda _, value: value[-1] in "02468")
    even.filter_not(lambda _, value: value.endswith("4")).to("op-filtered")
    left.map(lambda key, value: (key + value, value.upper()), key=str, value=str).to("op-mapped")
    left.flat_map(
        lambda key, value: [(f"{key}{value}{n}", value) for n in range(2)], key=str, value=str
    ).to("op-flat-mapped")
    left.flat_map_values(lambda value: [value, value[::-1]], value=str).to("op-flat-values")
    left.merge(right).peek(lambda *_: None).to("op-merged")
    branches = left.split(name="op-").branch(lambda _, value: value > "v5", "late")
    branches.default_branch("early")["op-early"].to("op-early")
    right.split().branch(
        lambda _, value: value > "v5", then=lambda it: it.to("op-late")
    ).no_default_branch()
    left.process(Twice, key=str, value=str).to("op-processed")
    left.process_values(Loud, value=str).to("op-loud")
    left.repartition(name="op-again").to("op-repartitioned")
    left.foreach(lambda *_: None)
    right.print(label="op-right")


def add_more_state(
    left: KStream[str, str],
    right: KStream[str, str],
    orders: KTable[str, str],
    customers: KTable[str, str],
) -> None:
    grouped, others = left.group_by_key(), right.group_by_key()
    write(grouped.reduce(longest), "op-reduced")
    write(grouped.windowed_by(TimeWindows(40, grace=20)).reduce(longest), "op-windows-reduced")
    sessions = grouped.windowed_by(SessionWindows(12, grace=20))
    write(sessions.reduce(longest), "op-sessions-reduced")
    write(sessions.count(), "op-sessions-counted")
    together = grouped.cogroup(add).cogroup(others, add)
    write(together.windowed_by(TimeWindows(40, grace=20)).aggregate(str), "op-windows-together")
    left.join(right, joined, JoinWindows(10, grace=15), value=str).to("op-inner")
    left.left_join(right, joined, JoinWindows(10, grace=15), value=str).to("op-left-outer")
    left.join(customers, joined, value=str).to("op-enriched")
    write(orders.outer_join(customers, joined, value=str), "op-tables-outer")
    write(orders.filter(lambda _, value: value > "v5"), "op-table-filtered")
    write(orders.filter_not(lambda _, value: value > "v5"), "op-table-rest")
    write(orders.map_values(str.upper, value=str), "op-table-mapped")
    write(orders.transform_values(Quoted, value=str), "op-table-transformed")
    by_value = orders.group_by(lambda key, order: (f"{key}{order}", order), key=str, value=str)
    write(by_value.reduce(first, first), "op-table-reduced")
    write(by_value.aggregate(str, add, lambda _key, _value, total: total), "op-table-totals")


def topology() -> Topology:
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, key=str, value=str) for topic in INPUTS[:2])
    grouped, others = left.group_by_key(), right.group_by_key()

    write(grouped.windowed_by(TimeWindows(40, grace=20)).count(), "op-tumbling")
    hopping = grouped.windowed_by(TimeWindows(40, grace=20, advance=15))
    write(hopping.aggregate(str, add), "op-hopping")
    write(grouped.windowed_by(SlidingWindows(25, grace=30)).count(), "op-sliding")
    sessions = grouped.windowed_by(SessionWindows(12, grace=20))
    write(sessions.aggregate(str, add, merge), "op-sessions")
    closing = grouped.windowed_by(TimeWindows(30, grace=10))
    write(closing.emit_strategy(EmitStrategy.on_window_close()).count(), "op-closed")
    counts = grouped.windowed_by(TimeWindows(50, grace=10)).count()
    write(counts.suppress(Suppressed.until_window_closes()), "op-suppressed")
    write(grouped.cogroup(add).cogroup(others, add).aggregate(str), "op-cogrouped")
    left.outer_join(right, joined, JoinWindows(10, grace=15), value=str).to("op-outer")

    customers = builder.table("op-customers", key=str, value=str)
    orders = builder.table("op-orders", key=str, value=str)
    rekeyed = orders.group_by(lambda _, order: (order[-1], order), key=str, value=str)
    write(rekeyed.count(), "op-regrouped")
    write(orders.join(customers, joined, value=str), "op-tables")
    by_customer = orders.left_join(
        customers, joined, foreign_key=lambda order: f"k{order[-1]}", value=str
    )
    write(by_customer, "op-foreign")
    history = Materialized("history", history_retention=100)
    versions = right.to_table(materialized=history)
    left.left_join(versions, joined, value=str).to("op-as-of")
    moved = left.select_key(lambda _, value: f"k{int(value[1:]) % 4}", key=str)
    write(moved.group_by_key().count(materialized=Materialized("op-moved")), "op-moved")
    add_steps_without_state(left, right)
    add_more_state(left, right, orders, customers)
    return builder.build()


FOREIGN = "op-foreign"
OUTPUTS = [
    topic
    for topic in re.findall(r"Sink: .* \(topic: (op-[\w-]+)\)", str(topology().describe()))
    if topic != FOREIGN and not topic.endswith("-repartition")
]
OPERATORS = (
    KStream,
    BranchedKStream,
    KTable,
    KGroupedStream,
    KGroupedTable,
    CogroupedKStream,
    TimeWindowedKStream,
    SessionWindowedKStream,
)
NOT_OPERATORS = {"burn_store_name", "add"}


def test_the_program_has_every_operator() -> None:
    text = inspect.getsource(inspect.getmodule(topology) or topology)
    names = {name for each in OPERATORS for name, _ in inspect.getmembers(each, callable)}

    missing = {name for name in names if name[0] != "_" and f".{name}(" not in text}

    assert missing == NOT_OPERATORS


def records(seed: int) -> list[Given]:
    """Return records of a few keys, and one of each key far behind them: no two at one time."""
    chance = random.Random(seed)
    keys = [f"k{number}".encode() for number in range(6)]
    given = []
    for number in range(240):
        value = None if chance.random() < 0.05 and number % 4 >= 2 else b"v%d" % number
        given.append(Given(INPUTS[number % 4], chance.choice(keys), value, 1_000 + 2 * number))
    last = [(topic, key) for topic in INPUTS for key in keys]
    return [*given, *(Given(*each, b"v9", 5_000 + n) for n, each in enumerate(last))]


def latest(records: list[Seen]) -> dict[bytes | None, Seen]:
    return {record.key: record for record in records}


@pytest.mark.parametrize("where", ["embedded", "kafka"])
def test_every_operator_writes_what_it_writes_on_the_driver(
    where: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    driver, host = OnDriver(), host_on(where, request, tmp_path)
    host.create_topics(*INPUTS, *OUTPUTS, FOREIGN)
    for each in (driver, host):
        each.start(topology(), statestore_cache_max_bytes=0)
        each.pipe(*records(3))

    expected = {topic: driver.read(topic, 0) for topic in OUTPUTS}
    foreign = latest(driver.read(FOREIGN, 0))
    found = {topic: host.read(topic, len(written)) for topic, written in expected.items()}
    answered: list[Seen] = []

    def is_answered() -> bool:
        answered.extend(host.read(FOREIGN, 0))
        return latest(answered) == foreign

    # Answers take their time, as in Kafka: those that come too late for a row are left out.
    await_that(is_answered, "the last results of the foreign-key join")
    host.close()

    assert all(expected.values())
    for topic in OUTPUTS:
        assert found[topic] == expected[topic], topic
