"""The workloads, each with its right answer, computed without any streaming system."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import Struct
from msgspec.json import Decoder

from benchmarks.dataset import Dataset, city_of, customer_key, location_key

WINDOW_MS = 60_000
GRACE_MS = 10_000
TAX = 1.25
SHOWN = 3
"""How many wrong keys a problem names."""


class Answer(NamedTuple):
    """The last output of a key."""

    number: int
    """Rises with each output of the key: orders so far, or the number of the order."""
    amount: float
    city: str = ""


class Expected(NamedTuple):
    """The expected outputs of a workload."""

    final: dict[bytes, Answer]
    least: int
    most: int
    """How many outputs there may be: a cache leaves out updates that others overtake."""


class _Totals(Struct):
    orders: int
    amount: float


class _Receipt(Struct):
    order_id: int
    with_tax: float


class _Delivery(Struct):
    order_id: int
    final_amount: float
    city: str


_totals = Decoder(_Totals).decode
_receipt = Decoder(_Receipt).decode
_delivery = Decoder(_Delivery).decode


def answer_from_totals(value: bytes) -> Answer:
    """Return the final value of an aggregate."""
    totals = _totals(value)
    return Answer(totals.orders, totals.amount)


def answer_from_receipt(value: bytes) -> Answer:
    """Return the final value of a mapped order."""
    receipt = _receipt(value)
    return Answer(receipt.order_id, receipt.with_tax)


def answer_from_delivery(value: bytes) -> Answer:
    """Return the final value of a joined order."""
    delivery = _delivery(value)
    return Answer(delivery.order_id, delivery.final_amount, delivery.city)


def running_totals(dataset: Dataset) -> Expected:
    """Count and sum the orders of each location."""
    return _totals_of((location_key(order.location), order.amount) for order in dataset.orders())


def rekeyed_totals(dataset: Dataset) -> Expected:
    """Count and sum the orders of each customer."""
    return _totals_of((customer_key(order.customer), order.amount) for order in dataset.orders())


def windowed_totals(dataset: Dataset) -> Expected:
    """Count and sum the orders of each location and minute, without those that come too late.

    A window is closed when its end and the grace lie behind the highest timestamp that its
    partition has seen. Its key is the location's, then the start of the window in 8 bytes.
    """
    partitions = dataset.location_partitions()
    stream_time = dict.fromkeys(partitions, 0)

    def in_time() -> Iterator[tuple[bytes, float]]:
        for order in dataset.orders():
            partition, timestamp = partitions[order.location], order.timestamp
            stream_time[partition] = max(stream_time[partition], timestamp)
            start = timestamp - timestamp % WINDOW_MS
            if start + WINDOW_MS > stream_time[partition] - GRACE_MS:
                yield location_key(order.location) + start.to_bytes(8, "big"), order.amount

    return _totals_of(in_time())


def filter_map(dataset: Dataset) -> Expected:
    """Keep the general orders and add the tax."""
    return _each(
        (location_key(order.location), Answer(order.number, order.amount * TAX))
        for order in dataset.orders()
        if order.kind == "GENERAL"
    )


def stream_table_join(dataset: Dataset) -> Expected:
    """Add the city of its location to each order, where the location is known."""
    return _each(
        (location_key(order.location), Answer(order.number, order.amount, city))
        for order in dataset.orders()
        if (city := city_of(order.location)) is not None
    )


def _totals_of(orders: Iterable[tuple[bytes, float]]) -> Expected:
    counts: dict[bytes, int] = {}
    amounts: dict[bytes, float] = {}
    for key, amount in orders:
        counts[key] = counts.get(key, 0) + 1
        amounts[key] = amounts.get(key, 0.0) + amount
    final = {key: Answer(count, amounts[key]) for key, count in counts.items()}
    return Expected(final, len(final), sum(counts.values()))


def _each(outputs: Iterable[tuple[bytes, Answer]]) -> Expected:
    final, count = {}, 0
    for key, answer in outputs:
        final[key] = answer
        count += 1
    return Expected(final, count, count)


class Checker:
    """Compares outputs, as they come, with what they must be.

    The numbers of each key must rise: an output that was written twice, or again in another order,
    shows. Amounts may differ in their last digits, because a re-keyed sum has no one order.
    """

    def __init__(self, expected: Expected) -> None:
        self._expected = expected
        self._last: dict[bytes, Answer] = {}
        self._falling: list[bytes] = []
        self.count = 0

    def add(self, key: bytes, answer: Answer) -> None:
        """Take the next output of a key."""
        self.count += 1
        before = self._last.get(key)
        if before is not None and answer.number <= before.number:
            self._falling.append(key)
        self._last[key] = answer

    def problems(self) -> list[str]:
        """Return the problems in words; none if all is right."""
        final, least, most = self._expected
        found = []
        if not least <= self.count <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            found.append(f"{self.count} outputs instead of {wanted}")
        for what, keys in (
            ("do not rise", self._falling),
            ("are missing", [key for key in final if key not in self._last]),
            ("are not expected", [key for key in self._last if key not in final]),
            ("end with a wrong value", [*self._wrong()]),
        ):
            if keys:
                shown = ", ".join(map(repr, keys[:SHOWN]))
                found.append(f"{len(keys)} keys {what}, such as {shown}")
        return found

    def _wrong(self) -> Iterator[bytes]:
        for key, answer in self._last.items():
            wanted = self._expected.final.get(key)
            if wanted is None:
                continue
            same_amount = math.isclose(answer.amount, wanted.amount, rel_tol=1e-9)
            if (answer.number, answer.city) != (wanted.number, wanted.city) or not same_amount:
                yield key


@dataclass(frozen=True)
class Workload:
    """One program that every system runs."""

    letter: str
    name: str
    """Of its module in `benchmarks/apps` and of its case in the Java rival."""
    title: str
    expected: Callable[[Dataset], Expected]
    answer_from: Callable[[bytes], Answer]
    bar: float
    """The target: how many times as fast as Kafka Streams."""


WORKLOADS = {
    workload.letter: workload
    for workload in (
        Workload("a", "running_totals", "running totals", running_totals, answer_from_totals, 2.5),
        Workload("b", "windowed_totals", "1 min windows", windowed_totals, answer_from_totals, 1.5),
        Workload("c", "filter_map", "filter and map", filter_map, answer_from_receipt, 1.0),
        Workload("d", "rekeyed_totals", "re-keyed totals", rekeyed_totals, answer_from_totals, 1.0),
        Workload(
            "e",
            "stream_table_join",
            "stream-table join",
            stream_table_join,
            answer_from_delivery,
            1.0,
        ),
    )
}
