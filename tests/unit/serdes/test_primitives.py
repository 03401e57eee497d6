"""Java's byte layouts, and clear errors for values that do not fit."""

from __future__ import annotations

import math
import struct
from enum import IntEnum
from fractions import Fraction
from typing import Any
from uuid import UUID

import pytest

from headrace.serdes import (
    BooleanSerde,
    BytesSerde,
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    LongSerde,
    Serde,
    ShortSerde,
    StringSerde,
    UuidSerde,
    VoidSerde,
)

ID = UUID("123e4567-e89b-12d3-a456-426614174000")


@pytest.mark.parametrize(
    ("serde", "value", "data"),
    [
        (StringSerde(), "straße", b"stra\xc3\x9fe"),
        (StringSerde(), "", b""),
        (BytesSerde(), b"\x00\xff", b"\x00\xff"),
        (ShortSerde(), -2, b"\xff\xfe"),
        (IntegerSerde(), 258, b"\x00\x00\x01\x02"),
        (LongSerde(), 258, b"\x00\x00\x00\x00\x00\x00\x01\x02"),
        (LongSerde(), -(2**63), b"\x80" + bytes(7)),
        (FloatSerde(), 1.0, b"\x3f\x80\x00\x00"),
        (DoubleSerde(), -1.5, b"\xbf\xf8" + bytes(6)),
        (DoubleSerde(), math.inf, b"\x7f\xf0" + bytes(6)),
        (BooleanSerde(), True, b"\x01"),
        (BooleanSerde(), False, b"\x00"),
        (UuidSerde(), ID, b"123e4567-e89b-12d3-a456-426614174000"),
    ],
    ids=repr,
)
def test_values_have_the_bytes_that_java_gives_them(
    serde: Serde[Any], value: object, data: bytes
) -> None:
    assert serde.serialize(value) == data
    assert serde.deserialize(data) == value


@pytest.mark.parametrize(
    ("serde", "value", "words"),
    [
        (StringSerde(), 5, "StringSerde writes str, but got int. Convert the value, or use"),
        (StringSerde(), b"a", "StringSerde writes str, but got bytes"),
        (StringSerde(), None, "StringSerde writes str, but got NoneType"),
        (BytesSerde(), "a", "BytesSerde writes bytes, but got str"),
        (ShortSerde(), "5", "ShortSerde writes int, but got str"),
        (IntegerSerde(), 5.0, "IntegerSerde writes int, but got float"),
        (LongSerde(), "5", "LongSerde writes int, but got str"),
        (LongSerde(), True, "LongSerde writes int, but got bool"),
        (FloatSerde(), "1.5", "FloatSerde writes float, but got str"),
        (DoubleSerde(), True, "DoubleSerde writes float, but got bool"),
        (DoubleSerde(), 1j, "DoubleSerde writes float, but got complex"),
        (BooleanSerde(), 1, "BooleanSerde writes bool, but got int"),
        (UuidSerde(), str(ID), "UuidSerde writes UUID, but got str"),
        (VoidSerde(), 5, "VoidSerde writes None, but got int"),
    ],
    ids=repr,
)
def test_a_value_of_the_wrong_type_is_refused_with_both_types(
    serde: Serde[Any], value: object, words: str
) -> None:
    with pytest.raises(TypeError, match=words):
        serde.serialize(value)


@pytest.mark.parametrize(
    ("serde", "value", "words"),
    [
        (ShortSerde(), 32768, "ShortSerde holds -32768 to 32767, but got 32768. Use LongSerde"),
        (IntegerSerde(), -(2**31) - 1, "IntegerSerde holds -2147483648 to 2147483647, but got"),
        (LongSerde(), 2**63, "but got 9223372036854775808. Use text for larger numbers"),
        (FloatSerde(), 1e39, "FloatSerde holds numbers of 32 bits, but got 1e[+]39, which is too"),
        (DoubleSerde(), 10**400, "DoubleSerde holds numbers of 64 bits"),
    ],
    ids=repr,
)
def test_a_number_that_is_too_large_is_refused_with_the_limits(
    serde: Serde[Any], value: object, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        serde.serialize(value)


@pytest.mark.parametrize(
    ("serde", "data", "words"),
    [
        (ShortSerde(), b"", "ShortSerde reads 2 bytes, but got 0. Perhaps another serde wrote"),
        (IntegerSerde(), bytes(8), "but got 8. Perhaps LongSerde or DoubleSerde wrote them"),
        (LongSerde(), bytes(4), "but got 4. Perhaps IntegerSerde or FloatSerde wrote them"),
        (FloatSerde(), bytes(2), "FloatSerde reads 4 bytes, but got 2. Perhaps ShortSerde"),
        (DoubleSerde(), bytes(9), "DoubleSerde reads 8 bytes, but got 9"),
        (BooleanSerde(), b"", "BooleanSerde reads 1 bytes, but got 0"),
        (BooleanSerde(), b"\x02", "BooleanSerde reads 0 or 1, but got the byte 2"),
        (UuidSerde(), ID.bytes, "UuidSerde reads 36 bytes, but got 16"),
        (UuidSerde(), b"x" * 36, "UuidSerde reads the text of a UUID"),
        (UuidSerde(), b"\xff" * 36, "UuidSerde reads the text of a UUID"),
        (StringSerde(), b"abc\xff", "StringSerde reads UTF-8, but byte 3 of 4 is not"),
        (VoidSerde(), b"abc", "VoidSerde reads null, but got 3 bytes"),
    ],
    ids=repr,
)
def test_data_that_another_serde_wrote_is_refused(
    serde: Serde[Any], data: bytes, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        serde.deserialize(data)


def test_text_that_utf8_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no lone surrogates .* Remove character 2 of the text"):
        StringSerde().serialize("ab\ud800")


def test_numbers_that_are_like_ints_are_written_as_ints() -> None:
    class Level(IntEnum):
        HIGH = 3

    assert LongSerde().serialize(Level.HIGH) == LongSerde().serialize(3)


def test_real_numbers_of_other_classes_are_written_as_floats() -> None:
    assert DoubleSerde().serialize(2) == DoubleSerde().serialize(2.0)
    assert DoubleSerde().serialize(Fraction(1, 2)) == DoubleSerde().serialize(0.5)  # type: ignore[arg-type]  # numpy's floats are such


def test_every_nan_has_the_same_bytes() -> None:
    negative: float = struct.unpack(">d", b"\xff\xf8\x00\x00\x00\x00\x00\x01")[0]

    assert DoubleSerde().serialize(negative) == b"\x7f\xf8" + bytes(6)
    assert FloatSerde().serialize(negative) == b"\x7f\xc0\x00\x00"
    assert math.isnan(DoubleSerde().deserialize(b"\x7f\xf8" + bytes(6)))


def test_a_float_keeps_seven_digits() -> None:
    kept = FloatSerde().deserialize(FloatSerde().serialize(0.1))

    assert kept != 0.1
    assert kept == pytest.approx(0.1, rel=1e-7)


@pytest.mark.parametrize(
    "value", [bytearray(b"abc"), memoryview(b"abc"), type("B", (bytes,), {})(b"abc")]
)
def test_anything_that_holds_bytes_is_written_as_bytes(value: Any) -> None:
    data = BytesSerde().serialize(value)

    assert type(data) is bytes
    assert data == b"abc"


def test_a_uuid_of_a_class_of_its_own_is_written_as_any_uuid() -> None:
    class OrderId(UUID):
        pass

    assert UuidSerde().serialize(OrderId(ID.hex)) == UuidSerde().serialize(ID)


def test_a_uuid_may_be_written_in_capitals() -> None:
    assert UuidSerde().deserialize(str(ID).upper().encode()) == ID


def test_none_has_no_bytes() -> None:
    with pytest.raises(TypeError, match="VoidSerde has no bytes to write: None is Kafka's null"):
        VoidSerde().serialize(None)


def test_serdes_of_one_class_are_equal_and_others_are_not() -> None:
    assert LongSerde() == LongSerde()
    assert hash(LongSerde()) == hash(LongSerde())
    other: Serde[int] = IntegerSerde()
    assert other != LongSerde()
    assert repr(LongSerde()) == "LongSerde()"
