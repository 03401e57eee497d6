"""Every operator of state and time writes on Spark, on either log, what it writes on the driver."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from headrace import (
    EmitStrategy,
    JoinWindows,
    KTable,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
)
from tests.spark.hosts import Given, OnDriver, Seen, await_that, host_on

pytestmark = pytest.mark.timeout(300)

INPUTS = ("op-left", "op-right", "op-orders", "op-customers")


def joined(one: object, other: object) -> str:
    return f"{one}+{other}"


def add(_key: str, value: str, total: str) -> str:
    return total + value


def merge(_key: str, total: str, other: str) -> str:
    return total + other


def topology() -> Topology:
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, key=str, value=str) for topic in INPUTS[:2])
    grouped, others = left.group_by_key(), right.group_by_key()

    def write(table: KTable[Any, Any], topic: str) -> None:
        table.to_stream().map_values(str, value=str).to(topic)

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
    return builder.build()


OUTPUTS = ("op-tumbling", "op-hopping", "op-sliding", "op-sessions", "op-closed",
           "op-suppressed", "op-cogrouped", "op-outer", "op-regrouped", "op-tables", "op-as-of",
           "op-moved")  # fmt: skip


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
    host.create_topics(*INPUTS, *OUTPUTS, "op-foreign")
    for each in (driver, host):
        each.start(topology(), statestore_cache_max_bytes=0)
        each.pipe(*records(3))

    expected = {topic: driver.read(topic, 0) for topic in OUTPUTS}
    foreign = latest(driver.read("op-foreign", 0))
    found = {topic: host.read(topic, len(written)) for topic, written in expected.items()}
    answered: list[Seen] = []

    def is_answered() -> bool:
        answered.extend(host.read("op-foreign", 0))
        return latest(answered) == foreign

    # Answers take their time, as in Kafka: those that come too late for a row are left out.
    await_that(is_answered, "the last results of the foreign-key join")
    host.close()

    assert all(expected.values())
    for topic in OUTPUTS:
        assert found[topic] == expected[topic], topic
