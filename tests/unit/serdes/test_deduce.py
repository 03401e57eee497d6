"""The serde of a type, and the types in the annotations of functions."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NewType,
    NoReturn,
    Optional,
    TypedDict,
    TypeVar,
)
from uuid import UUID

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from msgspec import Meta, Struct
from pydantic import BaseModel
from typing_extensions import TypeAliasType

from headrace.errors import TopologyError
from headrace.processors.api import Processor
from headrace.serdes import (
    BooleanSerde,
    BytesSerde,
    DoubleSerde,
    JsonSerde,
    ListSerde,
    LongSerde,
    ProtobufSerde,
    Serde,
    StringSerde,
    UuidSerde,
    VoidSerde,
)
from headrace.serdes.deduce import (
    argument_serdes,
    deduced_serde,
    item_pair_serdes,
    item_serde,
    pair_serdes,
    return_serde,
    serde_for,
)
from headrace.windows.window import Windowed
from tests.unit.serdes.naming import named

if TYPE_CHECKING:
    from fractions import Fraction as NotThere

T = TypeVar("T")
UserId = NewType("UserId", str)
OrderIds = NewType("OrderIds", list[int])


@dataclass
class Order:
    id: int


class Store(Struct):
    id: str


class Model(BaseModel):
    id: int


class Address(TypedDict):
    street: str


class Point(NamedTuple):
    x: int


class Kind(Enum):
    A = "a"


class Plain:
    pass


class OwnSerde:
    """Follows the protocol without naming it."""

    def serialize(self, value: str, /) -> bytes:
        return value.encode()

    def deserialize(self, data: bytes, /) -> str:
        return data.decode()


SAID: list[tuple[Any, Serde[Any]]] = [
    (str, StringSerde()),
    (bytes, BytesSerde()),
    (int, LongSerde()),
    (float, DoubleSerde()),
    (bool, BooleanSerde()),
    (UUID, UuidSerde()),
    (type(None), VoidSerde()),
    (Timestamp, ProtobufSerde(Timestamp)),
    (Order, JsonSerde(Order)),
    (Store, JsonSerde(Store)),
    (Model, JsonSerde(Model)),
    (Address, JsonSerde(Address)),
    (Point, JsonSerde(Point)),
    (Kind, JsonSerde(Kind)),
    (Decimal, JsonSerde(Decimal)),
    (datetime, JsonSerde(datetime)),
    (list[Order], JsonSerde(list[Order])),
    (dict[str, int], JsonSerde(dict[str, int])),
    (int | str, JsonSerde(int | str)),
    (Literal["a"], JsonSerde(Literal["a"])),
    (int | None, LongSerde()),
    (Optional[Order], JsonSerde(Order)),  # noqa: UP045 - the old spelling is what is tested
    (UserId, StringSerde()),
    (OrderIds, JsonSerde(list[int])),
    (UserId | None, StringSerde()),
    (TypeAliasType("Ids", list[int]), JsonSerde(list[int])),
    (Annotated[int, Meta(gt=0)], LongSerde()),
    (Annotated[list[int], Meta(min_length=1)], JsonSerde(Annotated[list[int], Meta(min_length=1)])),
]

SILENT = [
    list,
    dict,
    set,
    frozenset,
    tuple,
    object,
    Any,
    NoReturn,
    T,
    Windowed[str],
    Windowed,
    Plain,
    StringSerde,
    ListSerde[int],
    Iterator[int],
    5,
    ["unhashable"],
    Annotated[Plain, ["unhashable"]],
]


@pytest.mark.parametrize(("type_", "serde"), SAID)
def test_a_type_means_a_serde(type_: Any, serde: Serde[Any]) -> None:
    assert serde_for(type_) == serde
    assert deduced_serde(type_) == serde


@pytest.mark.parametrize("type_", [dict, list, set, tuple, Any])
def test_a_bare_collection_that_is_given_is_json_of_that_shape(type_: Any) -> None:
    assert serde_for(type_) == JsonSerde(type_)


@pytest.mark.parametrize("annotation", SILENT, ids=named)
def test_an_annotation_may_give_no_type(annotation: Any) -> None:
    assert deduced_serde(annotation) is None


def test_a_serde_that_is_given_is_used() -> None:
    own = OwnSerde()

    assert serde_for(own) is own


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            StringSerde,
            "StringSerde is a serde class, but a serde is needed. Write `StringSerde\\(…",
        ),
        (OwnSerde, "OwnSerde is a serde class"),
        (ListSerde[int], "ListSerde\\[int\\] is a serde class"),
        (print, "is neither a type nor a serde. Give a type such as `str`, or a serde"),
        (lambda: 1, "is neither a type nor a serde"),
        (5, "5 is neither a type nor a serde"),
        ("str", "'str' is neither a type nor a serde"),
        (None, "None is neither a type nor a serde"),
        ({}, "{} is neither a type nor a serde"),
        (T, "~T is neither a type nor a serde"),
        (Plain, "Plain cannot be JSON"),
        (Iterator[int], "cannot be JSON"),
        (Windowed[str], "Windowed alone does not say which windows. Give `Serdes.time_windowed"),
        (Windowed, "Windowed alone does not say"),
    ],
    ids=named,
)
def test_an_object_without_a_serde_is_refused(given: Any, words: str) -> None:
    with pytest.raises(TopologyError, match=words):
        serde_for(given)


def to_text(value: object) -> str:
    return str(value)


def to_order(value: int) -> Order | None:
    return Order(value)


def to_dict(value: int) -> dict:  # type: ignore[type-arg]  # bare on purpose
    return {}


def to_what_is_not_there(value: int) -> NotThere:
    raise NotImplementedError


def silent(value: int):  # type: ignore[no-untyped-def]  # on purpose
    return value


def to_generic(value: T) -> T:
    return value


def to_other(value: NotThere) -> int:
    return 5


class Methods:
    scale: int = 2

    def method(self, value: int) -> Store:
        return Store(str(value))

    @staticmethod
    def static(value: int) -> bytes:
        return b""

    @classmethod
    def of_class(cls, value: int) -> Order:
        return Order(value)

    def __call__(self, value: int) -> float:
        return value * 1.5


@functools.wraps(to_text)
def wrapped(*args: Any) -> Any:
    return to_text(*args)


@functools.cache
def cached(value: int) -> Order:
    return Order(value)


@pytest.mark.parametrize(
    ("function", "serde"),
    [
        (to_text, StringSerde()),
        (to_order, JsonSerde(Order)),
        (to_other, LongSerde()),
        (Order, JsonSerde(Order)),
        (str, StringSerde()),
        (int, LongSerde()),
        (dict[str, int], JsonSerde(dict[str, int])),
        (functools.partial(to_text), StringSerde()),
        (functools.partial(functools.partial(Order, 1)), JsonSerde(Order)),
        (Methods().method, JsonSerde(Store)),
        (Methods.static, BytesSerde()),
        (Methods.of_class, JsonSerde(Order)),
        (Methods(), DoubleSerde()),
        (wrapped, StringSerde()),
        (cached, JsonSerde(Order)),
        (lambda value: value, None),
        (silent, None),
        (to_dict, None),
        (to_generic, None),
        (to_what_is_not_there, None),
        (len, LongSerde()),
        (repr, StringSerde()),
        (str.upper, StringSerde()),
        (", ".join, StringSerde()),
        (str.split, JsonSerde(list[str])),
        (str.isdigit, BooleanSerde()),
        (str.encode, BytesSerde()),
        (bytes.decode, StringSerde()),
        (bytes.strip, BytesSerde()),
        (float.is_integer, BooleanSerde()),
        (functools.partial(int.to_bytes, length=2), BytesSerde()),
        (abs, None),
        ({"a": 1}.get, None),
        (dict.get, None),
        (operator.itemgetter(1), None),
        (dict, None),
        (list, None),
        (Plain, None),
        ("not even a function", None),
    ],
    ids=named,
)
def test_the_serde_follows_from_the_return_type(
    function: Callable[..., Any], serde: Serde[Any] | None
) -> None:
    assert return_serde(function) == serde


def test_the_text_of_an_annotation_may_be_wrong() -> None:
    def wrong() -> None: ...

    wrong.__annotations__["return"] = "1 +"

    assert return_serde(wrong) is None


def test_a_class_of_the_function_around_is_found() -> None:
    @dataclass
    class Local:
        id: int

    def to_local(value: int) -> Local:
        return Local(value)

    assert return_serde(to_local) == JsonSerde(Local)


def test_a_class_of_a_function_around_a_method_is_found() -> None:
    @dataclass
    class Local:
        id: int

    class Maker:
        def make(self, value: int) -> list[Local]:
            return [Local(value)]

    assert return_serde(Maker().make) == JsonSerde(list[Local])


def test_a_name_that_is_assigned_later_gives_no_type() -> None:
    def to_later(value: int) -> Later:
        return Later(value)

    before = return_serde(to_later)

    @dataclass
    class Later:
        id: int

    assert before is None
    assert return_serde(to_later) == JsonSerde(Later)


def to_pair(key: str, value: int) -> tuple[str, Order]:
    return key, Order(value)


def to_half_known(key: str, value: int) -> tuple[str, Any]:
    return key, value


def to_pairs(key: str, value: int) -> list[tuple[str, Order]]:
    return []


def to_orders(value: int) -> Iterable[Order]:
    return []


def to_triple(key: str, value: int) -> tuple[int, int, int]:
    return 1, 2, 3


def to_many(key: str, value: int) -> tuple[int, ...]:
    return (1,)


@pytest.mark.parametrize(
    ("function", "serdes"),
    [
        (to_pair, (StringSerde(), JsonSerde(Order))),
        (to_half_known, (StringSerde(), None)),
        (to_pairs, (None, None)),
        (to_triple, (None, None)),
        (to_many, (None, None)),
        (to_text, (None, None)),
        (lambda key, value: (key, value), (None, None)),
        (tuple[str, int], (StringSerde(), LongSerde())),
    ],
    ids=named,
)
def test_the_serdes_of_a_pair_follow_from_the_return_type(
    function: Any, serdes: tuple[Any, Any]
) -> None:
    assert pair_serdes(function) == serdes


@pytest.mark.parametrize(
    "type_",
    [
        list[Order],
        Iterable[Order],
        Iterator[Order],
        Generator[Order, None, None],
        Sequence[Order],
        set[Order],
        tuple[Order, ...],
        list[Order] | None,
    ],
)
def test_the_serde_of_items_follows_from_the_return_type(type_: Any) -> None:
    def function(value: int) -> Any: ...

    function.__annotations__["return"] = type_

    assert item_serde(function) == JsonSerde(Order)


@pytest.mark.parametrize("type_", [list, dict[str, Order], tuple[Order, Order], Order, Any, str])
def test_items_that_a_function_does_not_name(type_: Any) -> None:
    def function(value: int) -> Any: ...

    function.__annotations__["return"] = type_

    assert item_serde(function) is None


def test_the_serdes_of_pairs_follow_from_the_return_type() -> None:
    assert item_pair_serdes(to_pairs) == (StringSerde(), JsonSerde(Order))
    assert item_pair_serdes(to_orders) == (None, None)
    assert item_pair_serdes(to_pair) == (None, None)
    assert item_pair_serdes(lambda key, value: []) == (None, None)


class Base(Processor[str, T, str, T]):
    """Leaves the type of the values to its subclasses."""


class OfNumbers(Base[int]):
    """Names it."""


class Further(OfNumbers):
    """Inherits it."""


@pytest.mark.parametrize(
    ("class_", "serdes"),
    [
        (OfNumbers, [StringSerde(), LongSerde()] * 2),
        (Further, [StringSerde(), LongSerde()] * 2),
        (Base, [StringSerde(), None] * 2),
    ],
)
def test_what_the_type_arguments_of_a_class_are(
    class_: type, serdes: list[Serde[Any] | None]
) -> None:
    assert argument_serdes(class_, Processor) == serdes


def test_a_class_without_type_arguments_says_nothing() -> None:
    class Bare(Processor):  # type: ignore[type-arg]  # bare on purpose
        """A class without annotations."""

    assert argument_serdes(Bare, Processor) == [None] * 4


SAMPLES: list[Any] = ["abc", b"abc", 5, 1.5]


@pytest.mark.parametrize("sample", SAMPLES)
def test_methods_of_builtins_return_what_their_serde_writes(sample: Any) -> None:
    tried = 0
    for name in dir(type(sample)):
        serde = return_serde(getattr(type(sample), name)) if not name.startswith("_") else None
        if serde is not None:
            with suppress(TypeError):  # it needs arguments
                serde.serialize(getattr(sample, name)())
                tried += 1
    assert tried >= 2
