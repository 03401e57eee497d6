"""Ready-made aggregations for `aggregate`.

Each function gives an `Aggregation`, for streams, windows and sessions, and for tables where values
can be taken out again. Values that are None, and values of which ``of`` gives None, are left out.

The aggregate's serde follows from what ``of`` returns, if it is a class or has an annotation; else
say it with ``materialized=Materialized(value=…)``.
"""

from __future__ import annotations

import builtins
import hashlib
import math
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast, overload

import msgspec

from headrace.errors import TopologyError
from headrace.serdes.base import Serde, wrong_type
from headrace.serdes.deduce import return_serde, serde_for
from headrace.serdes.list_serde import ListSerde

__all__ = [
    "Aggregation",
    "Distinct",
    "DistinctSerde",
    "Mean",
    "approx_distinct",
    "collect",
    "max",
    "mean",
    "min",
    "sum",
    "top_k",
]

V = TypeVar("V")
A = TypeVar("A")
T = TypeVar("T")
N = TypeVar("N", int, float)


@dataclass(frozen=True)
class Aggregation(Generic[V, A]):
    """An aggregation of values, ready to be given to `aggregate`."""

    initializer: Callable[[], A]
    aggregator: Callable[[Any, V, A], A]
    subtractor: Callable[[Any, V, A], A] | None = None
    """Takes a value out again; None where that cannot be done."""
    merger: Callable[[Any, A, A], A] | None = None
    """Joins two aggregates into one, for sessions."""
    serde: Serde[A] | None = None
    """The serde of the aggregate."""
    serde_from: Callable[[Serde[V]], Serde[A]] | None = None
    """Makes the serde of the aggregate from that of the values, where it is made of them."""


@overload
def sum() -> Aggregation[N, N]: ...  # noqa: A001
@overload
def sum(of: Callable[[V], N]) -> Aggregation[V, N]: ...  # noqa: A001
def sum(of: Callable[[Any], Any] | None = None) -> Aggregation[Any, Any]:  # noqa: A001
    """Return the sum of ``of(value)``, or of the values themselves.

    Example:
        >>> from headrace import StreamsBuilder, aggregators
        >>> from headrace.testing import TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> payments = builder.stream("payments", key=str, value=int)
        >>> totals = payments.group_by_key().aggregate(aggregators.sum())
        >>> totals.to_stream().to("totals")
        >>> driver = TopologyTestDriver(builder.build())
        >>> driver.create_input_topic("payments").pipe_key_value_list([("ada", 3), ("ada", 4)])
        >>> driver.create_output_topic("totals").read_values_to_list()
        [3, 7]
    """
    number = _itself if of is None else of

    def add(_key: Any, value: Any, total: Any) -> Any:
        amount = None if value is None else number(value)
        return total if amount is None else total + amount

    def subtract(_key: Any, value: Any, total: Any) -> Any:
        amount = number(value)
        return total if amount is None else total - amount

    return Aggregation(
        lambda: 0,
        add,
        subtract,
        lambda _key, total, other: total + other,
        None if of is None else return_serde(of),
        _itself if of is None else None,
    )


def min(of: Callable[[V], T]) -> Aggregation[V, T]:  # noqa: A001
    """Return the least ``of(value)``.

    Example:
        >>> from headrace import aggregators
        >>> coldest = aggregators.min(float)
        >>> coldest.aggregator("roof", "-3.5", 2.0)
        -3.5
    """
    return _best(of, builtins.min)


def max(of: Callable[[V], T]) -> Aggregation[V, T]:  # noqa: A001
    """Return the greatest ``of(value)``.

    Example:
        >>> from headrace import aggregators
        >>> warmest = aggregators.max(float)
        >>> warmest.aggregator("roof", "21.5", 19.0)
        21.5
    """
    return _best(of, builtins.max)


class Mean(msgspec.Struct, frozen=True):
    """The count and the sum of numbers, from which `mean` is computed."""

    count: int = 0
    total: int | float = 0

    @property
    def value(self) -> float:
        """The mean; not a number if there was none."""
        return self.total / self.count if self.count else math.nan


def mean(of: Callable[[V], float]) -> Aggregation[V, Mean]:
    """Return the mean of ``of(value)``, as a `Mean`: read its ``value``.

    Example:
        >>> from headrace import StreamsBuilder, TimeWindows, aggregators
        >>> from headrace.testing import TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> temperatures = builder.stream("temperatures", key=str, value=float)
        >>> windows = temperatures.group_by_key().windowed_by(TimeWindows("1m"))
        >>> means = windows.aggregate(aggregators.mean(float))
        >>> means.to_stream().map_values(lambda mean: mean.value, value=float).to("means")
        >>> driver = TopologyTestDriver(builder.build())
        >>> driver.create_input_topic("temperatures").pipe_key_value_list(
        ...     [("roof", 19.0), ("roof", 20.0)])
        >>> driver.create_output_topic("means").read_values_to_list()
        [19.0, 19.5]
    """

    def add(_key: Any, value: V, mean: Mean) -> Mean:
        number = None if value is None else of(value)
        return mean if number is None else Mean(mean.count + 1, mean.total + number)

    def subtract(_key: Any, value: V, mean: Mean) -> Mean:
        number = of(value)
        return mean if number is None else Mean(mean.count - 1, mean.total - number)

    def merge(_key: Any, mean: Mean, other: Mean) -> Mean:
        return Mean(mean.count + other.count, mean.total + other.total)

    return Aggregation(Mean, add, subtract, merge, serde_for(Mean))


def collect(of: Callable[[V], T], limit: int | None = None) -> Aggregation[V, list[T]]:
    """Return the list of all ``of(value)``, in the order of the records.

    Args:
        of: Extracts the part of a value to keep.
        limit: How many items to keep: the last ones. None keeps them all.

    Example:
        >>> from headrace import aggregators
        >>> last = aggregators.collect(str.upper, limit=2)
        >>> items: list[str] = []
        >>> for word in ("one", "two", "three"):
        ...     items = last.aggregator("key", word, items)
        >>> items
        ['TWO', 'THREE']
    """
    if limit is not None:
        _check_size(limit, "collect", "limit")

    def add(_key: Any, value: V, items: list[T]) -> list[T]:
        item = None if value is None else of(value)
        if item is not None:
            items.append(item)
        return _last(items, limit)

    def subtract(_key: Any, value: V, items: list[T]) -> list[T]:
        item = of(value)
        if item in items:
            items.remove(item)
        return items

    def merge(_key: Any, items: list[T], others: list[T]) -> list[T]:
        return _last([*items, *others], limit)

    item_serde = return_serde(of)
    # Items beyond the limit are lost, so none can be removed either.
    subtractor = subtract if limit is None else None
    serde: Serde[list[T]] | None = None if item_serde is None else ListSerde(item_serde)
    return Aggregation(list, add, subtractor, merge, serde)


def top_k(k: int, by: Callable[[V], Any] | None = None) -> Aggregation[V, list[V]]:
    """Return the ``k`` greatest values, greatest first; of equal ones the earlier is first.

    Args:
        k: How many to keep.
        by: Extracts the part to compare; by default the values themselves.

    Example:
        >>> from headrace import aggregators
        >>> longest = aggregators.top_k(2, by=len)
        >>> words: list[str] = []
        >>> for word in ("a", "long", "story", "is", "short"):
        ...     words = longest.aggregator("key", word, words)
        >>> words
        ['story', 'short']
    """
    _check_size(k, "top_k", "k")

    def rank(value: Any) -> Any:
        return value if by is None else by(value)

    def add(_key: Any, value: V, best: list[V]) -> list[V]:
        if value is None:
            return best
        own, position = rank(value), len(best)
        while position and rank(best[position - 1]) < own:
            position -= 1
        best.insert(position, value)
        del best[k:]
        return best

    def merge(key: Any, best: list[V], other: list[V]) -> list[V]:
        for value in other:
            best = add(key, value, best)
        return best

    return Aggregation(list, add, merger=merge, serde_from=ListSerde)


def approx_distinct(of: Callable[[V], object]) -> Aggregation[V, Distinct]:
    """Return about how many different ``of(value)`` there were, as a `Distinct`.

    Read its ``value``. The error is about 2 %; up to some hundred the number is nearly always
    exact. The aggregate takes at most 4 kB, however many there are.

    Args:
        of: The values to distinguish: text, numbers, bytes, or anything else that JSON can write.

    Example:
        >>> from headrace import aggregators
        >>> visitors = aggregators.approx_distinct(str.lower)
        >>> seen = visitors.initializer()
        >>> for name in ("Ada", "Bob", "ada"):
        ...     seen = visitors.aggregator("page", name, seen)
        >>> seen.value
        2
    """

    def add(_key: Any, value: V, seen: Distinct) -> Distinct:
        item = None if value is None else of(value)
        if item is not None:
            seen.add(item)
        return seen

    def merge(_key: Any, seen: Distinct, other: Distinct) -> Distinct:
        seen.merge(other)
        return seen

    return Aggregation(Distinct, add, merger=merge, serde=DistinctSerde())


class Distinct:
    """A sketch of which items were seen: a HyperLogLog of 4096 registers.

    An item's hash chooses a register; the register keeps the longest run of zeros seen there. The
    hash is the same on every machine and in every run.
    """

    __slots__ = ("registers",)

    def __init__(self, registers: bytearray | None = None) -> None:
        self.registers = bytearray(_REGISTERS) if registers is None else registers
        """The longest run of zeros of each register, and one more; 0 if it saw nothing."""

    def add(self, item: object) -> None:
        """Count an item."""
        text = msgspec.json.encode(item, order="deterministic")
        digest = hashlib.blake2b(text, digest_size=8).digest()
        hashed = int.from_bytes(digest)
        index = hashed >> _REST_BITS
        run = _REST_BITS - (hashed & _REST).bit_length() + 1
        if run > self.registers[index]:
            self.registers[index] = run

    def merge(self, other: Distinct) -> None:
        """Count all items of ``other``."""
        self.registers = bytearray(map(builtins.max, self.registers, other.registers))

    @property
    def value(self) -> int:
        """About how many different items there were."""
        runs = Counter(self.registers)
        estimate = _CORRECTION / math.fsum(count * 2.0**-run for run, count in runs.items())
        if estimate <= 2.5 * _REGISTERS and runs[0]:
            # With this many registers untouched, their number says more than the runs do.
            estimate = _REGISTERS * math.log(_REGISTERS / runs[0])
        return round(estimate)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Distinct) and self.registers == other.registers

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"<Distinct of about {self.value} items>"


_REGISTERS = 4096
_REST_BITS = 52
_REST = (1 << _REST_BITS) - 1
_CORRECTION = 0.7213 / (1 + 1.079 / _REGISTERS) * _REGISTERS * _REGISTERS
_REGISTER = struct.Struct(">HB")


@dataclass(frozen=True)
class DistinctSerde(Serde[Distinct]):
    """A `Distinct` as its registers: all 4096, or while few are in use, those with their indexes.

    ::

        few    01 │ index (2 bytes) │ run │ index │ run …
        many   00 │ run │ run …
    """

    def serialize(self, value: Distinct, /) -> bytes:
        if not isinstance(value, Distinct):
            raise wrong_type(self, "Distinct", value)
        registers = value.registers
        used = _REGISTERS - registers.count(0)
        if used * _REGISTER.size >= _REGISTERS:
            return b"\0" + registers
        pack = _REGISTER.pack
        return b"\1" + b"".join(pack(index, run) for index, run in enumerate(registers) if run)

    def deserialize(self, data: bytes, /) -> Distinct:
        if data[:1] == b"\0" and len(data) == _REGISTERS + 1:
            return Distinct(bytearray(data[1:]))
        if data[:1] != b"\1" or (len(data) - 1) % _REGISTER.size:
            msg = f"DistinctSerde cannot read {len(data)} bytes that another serde wrote."
            raise ValueError(msg)
        registers = bytearray(_REGISTERS)
        for index, run in _REGISTER.iter_unpack(data[1:]):
            registers[index] = run
        return Distinct(registers)


def _best(of: Callable[[V], T], choose: Callable[[Any, Any], Any]) -> Aggregation[V, T]:
    def add(_key: Any, value: Any, best: Any) -> Any:
        item = None if value is None else of(value)
        return best if item is None else merge(_key, best, item)

    def merge(_key: Any, best: Any, other: Any) -> Any:
        return other if best is None else choose(best, other)

    return Aggregation(cast("Callable[[], T]", _none), add, merger=merge, serde=return_serde(of))


def _none() -> None:
    """Return what comparing starts with."""


def _itself(value: T) -> T:
    return value


def _last(items: list[T], limit: int | None) -> list[T]:
    return items if limit is None else items[-limit:]


def _check_size(size: int, function: str, parameter: str) -> None:
    if size < 1:
        msg = f"`{parameter}` of `aggregators.{function}` is {size}. Use one or more."
        raise TopologyError(msg)
