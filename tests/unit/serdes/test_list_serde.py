"""Lists in the layout of Kafka's ListSerializer."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest

from headrace.serdes import (
    BooleanSerde,
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    ListSerde,
    LongSerde,
    Serde,
    Serdes,
    ShortSerde,
    StringSerde,
    UuidSerde,
)

ID = UUID(int=5)


@pytest.mark.parametrize(
    ("inner", "items", "data"),
    [
        (ShortSerde(), [1, -1], "00 00000000 00000002 0001 ffff"),
        (IntegerSerde(), [], "00 00000000 00000000"),
        (IntegerSerde(), [None, 7, None], "00 00000002 00000000 00000002 00000003 00000007"),
        (IntegerSerde(), [None], "00 00000001 00000000 00000001"),
        (LongSerde(), [5], "00 00000000 00000001 0000000000000005"),
        (FloatSerde(), [1.0], "00 00000000 00000001 3f800000"),
        (DoubleSerde(), [1.0], "00 00000000 00000001 3ff0000000000000"),
        (UuidSerde(), [ID], "00 00000000 00000001" + str(ID).encode().hex()),
        (StringSerde(), [], "01 00000000"),
        (StringSerde(), ["", None, "bc"], "01 00000003 00000000 ffffffff 00000002 6263"),
        (StringSerde(), ["a", ""], "01 00000002 00000001 61 00000000"),
        (BooleanSerde(), [True], "01 00000001 00000001 01"),
        (ListSerde(StringSerde()), [["a"]], "01 00000001 0000000a 01 00000001 00000001 61"),
    ],
)
def test_a_list_has_the_bytes_that_java_gives_it(
    inner: Serde[Any], items: list[Any], data: str
) -> None:
    serde = ListSerde(inner)

    assert serde.serialize(items).hex() == data.replace(" ", "")
    assert serde.deserialize(bytes.fromhex(data)) == items


def test_a_tuple_is_written_as_a_list() -> None:
    serde: ListSerde[Any] = ListSerde(LongSerde())

    assert serde.serialize((1, 2)) == serde.serialize([1, 2])  # type: ignore[arg-type]  # lists are typed


def test_items_of_one_size_may_come_with_their_sizes() -> None:
    written_by_another = bytes.fromhex("01 00000002 00000002 0005 ffffffff")

    assert ListSerde(ShortSerde()).deserialize(written_by_another) == [5, None]


@pytest.mark.parametrize("value", ["ab", {1, 2}, 5])
def test_a_value_that_is_no_list_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="ListSerde writes list, but got"):
        ListSerde(StringSerde()).serialize(value)


def test_an_item_of_the_wrong_type_is_refused_by_the_inner_serde() -> None:
    with pytest.raises(TypeError, match="LongSerde writes int, but got str"):
        ListSerde(LongSerde()).serialize([1, "2"])  # type: ignore[list-item]  # what the test is about


@pytest.mark.parametrize(
    ("inner", "data", "words"),
    [
        (StringSerde(), "", "start with 0 or 1"),
        (StringSerde(), "02 00000000", "start with 0 or 1"),
        (StringSerde(), "01 0000", "got 3 bytes"),
        (StringSerde(), "01 00000001", "got 5 bytes, which is not what a list takes"),
        (StringSerde(), "01 00000001 00000002 61", "which is not what a list takes"),
        (StringSerde(), "01 00000001 fffffffe", "which is not what a list takes"),
        (StringSerde(), "01 00000000 00", "which is not what a list takes"),
        (StringSerde(), "00 00000000 00000000", "items of one size, but StringSerde writes any"),
        (IntegerSerde(), "00 00", "which is not what a list takes"),
        (IntegerSerde(), "00 ffffffff 00000000", "which is not what a list takes"),
        (IntegerSerde(), "00 7fffffff 00000000", "which is not what a list takes"),
        (IntegerSerde(), "00 00000000 00000002 00000001", "which is not what a list takes"),
        (IntegerSerde(), "00 00000000 00000000 01", "which is not what a list takes"),
        (IntegerSerde(), "00 00000001 00000005 00000001", "which is not what a list takes"),
        (IntegerSerde(), "00 00000002 00000000 00000000 00000002", "not what a list takes"),
        (IntegerSerde(), "00 00000000 ffffffff", "which is not what a list takes"),
    ],
)
def test_data_that_holds_no_list_is_refused(inner: Serde[Any], data: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ListSerde(inner).deserialize(bytes.fromhex(data))


def test_the_inner_serde_is_bound_to_the_topic() -> None:
    class Bound(StringSerde):
        topic = ""

        def for_topic(self, topic: str, *, is_key: bool) -> Serde[str]:
            return Serdes.of(lambda value: f"{topic} {is_key} {value}".encode(), bytes.decode)

    serde = ListSerde(Bound()).for_topic("orders", is_key=False)

    assert serde.deserialize(serde.serialize(["a"])) == ["orders False a"]


def test_a_list_of_very_many_nulls_is_read() -> None:
    values = [None] * 300_000 + [7] * 300_000
    serde = ListSerde(LongSerde())

    assert serde.deserialize(serde.serialize(values)) == values  # type: ignore[arg-type]


@pytest.mark.parametrize("nulls", [[1, 0], [0, 0], [-1, 0], [0, 3]])
def test_indexes_of_nulls_rise_and_stay_within_the_list(nulls: list[int]) -> None:
    data = struct.pack(">b4i", 0, len(nulls), *nulls, 3) + LongSerde().serialize(7)

    with pytest.raises(ValueError, match="not what a list takes"):
        ListSerde(LongSerde()).deserialize(data)
