from __future__ import annotations

import pytest
from headrace_conformance.values import (
    WrongTypeError,
    as_number,
    compare,
    double_text,
    json_of,
    same,
    text_of,
    wrapped,
)

from headrace import Window, Windowed


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (1.5, "1.5"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-1.25e16, "-1.25E16"),
        (0.1 + 0.2, "0.30000000000000004"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_a_double_prints_as_in_java(number: float, text: str) -> None:
    assert double_text(number) == text


def test_a_long_is_not_a_double_nor_a_boolean() -> None:
    assert same(1, 1)
    assert not same(1, 1.0)
    assert not same(True, 1)
    assert not same([1, {"a": 1}], [1, {"a": 1.0}])
    assert same({"a": [1, None]}, {"a": [1, None]})
    assert not same({"a": 1}, {"b": 1})


def test_integers_wrap_as_longs_do() -> None:
    assert wrapped(2**63) == -(2**63)
    assert wrapped(-(2**63) - 1) == 2**63 - 1
    assert wrapped(1.5) == 1.5


def test_a_boolean_is_no_number() -> None:
    with pytest.raises(WrongTypeError, match="True is a bool, not a number"):
        as_number(True)


def test_text_compares_by_utf16_units() -> None:
    assert compare("\U0001f600", "￿") < 0
    assert compare("a", "b") < 0
    assert compare(2, 1.5) > 0


def test_everything_but_text_prints_as_compact_json() -> None:
    assert text_of("a b") == "a b"
    assert text_of(None) == "null"
    assert text_of(True) == "true"
    assert text_of({"b": [1, 1e16], "a": "é"}) == '{"a":"é","b":[1,1.0E16]}'


def test_a_windowed_key_shows_as_an_object() -> None:
    windowed = Windowed("a", Window(5, 15))

    assert json_of(windowed) == {"key": "a", "start": 5, "end": 15}
    assert text_of(windowed) == '{"key":"a","start":5,"end":15}'
