"""A program with every kind of type and function, for tests that run it as ``__main__``."""

# ruff: noqa: UP037  # tests also run it without the next line
from __future__ import annotations

import enum
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache, cached_property
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    NewType,
    NotRequired,
    TypedDict,
    TypeVar,
)

import msgspec
import pydantic
from msgspec import Meta, Struct

from headrace import KafkaStreams, StreamsBuilder, Topology
from headrace.serdes import JsonSerde
from headrace.spark.shipping import bytes_from_object

T = TypeVar("T")
CustomerId = NewType("CustomerId", str)
TAX = Decimal("1.2")


class Level(enum.StrEnum):
    LOW = "low"
    HIGH = "high"

    def raised(self) -> "Level":
        return Level.HIGH


class Line(Struct):
    article: str
    pieces: Annotated[int, Meta(gt=0)] = 1
    price: Decimal = Decimal("0.5")


class Order(Struct, rename="camel", omit_defaults=True):
    order_id: int
    customer: CustomerId
    placed_at: datetime
    lines: list[Line]
    level: Level = Level.LOW
    run_files: dict[str, str] = msgspec.field(
        default_factory=lambda: {"made": "here"}, name="NOTES"
    )

    def total(self) -> Decimal:
        return sum((line.pieces * line.price for line in self.lines), Decimal(0))


class Urgent(Order, kw_only=True, forbid_unknown_fields=True):
    due_in: timedelta

    def total(self) -> Decimal:
        return super().total() * 2


class Circle(Struct, tag="circle", tag_field="kind", frozen=True):
    radius: int


class Square(Struct, tag="square", tag_field="kind", frozen=True, array_like=False):
    side: int
    corners: ClassVar[int] = 4


class Counted:
    def __post_init__(self) -> None:
        Checked.made += 1


class Checked(Counted, Struct, dict=True):
    """A Struct that is more than its fields."""

    n: int
    made: ClassVar[int] = 0

    @cached_property
    def half(self) -> float:
        return self.n / 2

    @classmethod
    def of(cls, n: int) -> "Checked":
        return cls(n)


class Refusing(Struct):
    n: int

    def __post_init__(self) -> None:
        if self.n > 10:
            msg = f"{type(self).__name__} takes no {self.n}"
            raise ValueError(msg)


class Node(Struct, gc=False, eq=False):
    name: str
    below: list["Node"] = []


class Page(Struct, Generic[T], array_like=True):
    items: list[T]
    number: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    city: str
    code: int | None = None


@dataclass
class Customer:
    name: str
    home: Place
    seen: list[datetime] = field(default_factory=list)

    def moved(self, city: str) -> "Customer":
        return Customer(self.name, Place(city), self.seen)


class Reading(TypedDict):
    sensor: str
    at: datetime


class Located(Reading, total=False):
    place: Place
    value: NotRequired[float]


class Point(NamedTuple):
    x: int
    y: Decimal = Decimal(7)

    def swapped(self) -> "Point":
        return Point(int(self.y), Decimal(self.x))


class Item(pydantic.BaseModel):
    name: str
    price: Decimal = pydantic.Field(gt=0)


class Cart(pydantic.BaseModel):
    items: list[Item]
    opened: datetime | None = None


@cache
def doubled(n: int) -> int:
    return n * 2


HOME = Place("Bern", 3000)


def summary(order: Order) -> dict[str, Any]:
    due = order.due_in if isinstance(order, Urgent) else None
    return {"total": order.total() * TAX, "level": order.level.raised(), "due": due}


def grown(shape: Circle | Square) -> Circle | Square:
    match shape:
        case Circle(radius):
            return Circle(doubled(radius))
        case _:
            return Square(shape.side + Square.corners)


def checked(value: Checked) -> list[float]:
    return [value.half, Checked.of(4).half, Checked.made > 1]


PLACED = b'"customer": "ann", "placedAt": "2026-01-02T03:04:05Z"'
LINES = b'"lines": [{"article": "nail", "pieces": 4}]'

KINDS: dict[str, tuple[Any, Callable[[Any], Any], list[bytes]]] = {
    "struct": (
        Order,
        summary,
        [b'{"orderId": 1, %b, %b}' % (PLACED, LINES), b'{"orderId": 1, "lines": []}', b"{}"],
    ),
    "struct passed on": (Order, lambda v: v, [b'{"orderId": 1, %b, %b}' % (PLACED, LINES)]),
    "inherited struct": (
        Urgent,
        summary,
        [
            b'{"orderId": 2, "due_in": "PT5S", "dueIn": "PT5S", %b, %b}' % (PLACED, LINES),
            b'{"orderId": 2, "dueIn": "PT5S", %b, %b}' % (PLACED, LINES),
        ],
    ),
    "constraint": (Line, lambda v: v, [b'{"article": "a", "pieces": 0}', b'{"article": "a"}']),
    "tagged union": (
        Circle | Square,
        grown,
        [b'{"kind": "circle", "radius": 2}', b'{"kind": "square", "side": 1}', b'{"side": 1}'],
    ),
    "struct with methods": (Checked, checked, [b'{"n": 5}']),
    "post init": (Refusing, lambda v: v, [b'{"n": 5}', b'{"n": 11}']),
    "recursive struct": (Node, lambda v: v.below[0], [b'{"name": "a", "below": [{"name": "b"}]}']),
    "generic struct": (Page[Line], lambda v: v.items[0], [b'[[{"article": "a"}], 3]', b"[[1]]"]),
    "dataclass": (
        Customer,
        lambda v: [v, v.moved("Rome"), v.home == HOME],
        [b'{"name": "ann", "home": {"city": "Bern", "code": 3000}}', b'{"name": "ann"}', b"{}"],
    ),
    "typed dict": (
        Located,
        lambda v: {**v, "year": v["at"].year},
        [b'{"sensor": "s", "at": "2026-01-02T03:04:05Z", "place": {"city": "Bern"}}', b"{}"],
    ),
    "named tuple": (Point, lambda v: v.swapped(), [b"[3]", b"[3, 4]", b"[]"]),
    "enum": (Level, lambda v: [v.raised(), v is Level.LOW], [b'"low"', b'"lower"']),
    "pydantic": (
        Cart,
        lambda v: Cart(items=[*v.items, Item(name="bag", price=Decimal(1))]),
        [b'{"items": [{"name": "nail", "price": "2.5"}]}', b'{"items": [{"name": "nail"}]}'],
    ),
}
"""For each kind the type, what is done with its values, and JSON that fits it, or does not."""


def answers() -> dict[str, list[str]]:
    """Return what becomes of the JSON of each kind."""
    return {
        kind: [answer(JsonSerde(type_), function, data) for data in samples]
        for kind, (type_, function, samples) in KINDS.items()
    }


def answer(serde: JsonSerde[Any], function: Callable[[Any], Any], data: bytes) -> str:
    try:
        value = serde.deserialize(data)
    except ValueError as error:
        return str(error)
    again = serde.serialize(value).decode()
    return f"{again} {JsonSerde().serialize(function(value)).decode()}"


def topology() -> Topology:
    """Return a topology that writes what becomes of the JSON that fits."""
    builder = StreamsBuilder()
    for number, (type_, function, _) in enumerate(KINDS.values()):
        stream = builder.stream(f"in-{number}", key=str, value=JsonSerde(type_))
        stream.map_values(function, value=JsonSerde()).to(f"out-{number}")
    return builder.build()


if __name__ == "__main__":
    action, path = sys.argv[1:]
    if action == "ship":
        print(msgspec.json.encode(answers()).decode())
        Path(path).write_bytes(bytes_from_object(answers))
    else:
        KafkaStreams(
            topology(),
            application_id="kinds",
            state_dir=path,
            deserialization_exception_handler="continue",
            trigger="available_now",
        ).run()
