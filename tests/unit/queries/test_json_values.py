from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import StringValue
from pydantic import BaseModel

from headrace import Serdes
from headrace.queries.json_values import (
    json_writer,
    key_from_json,
    key_from_text,
    prefix_from_text,
)
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.serdes.base import Serde
from headrace.serdes.deduce import serde_for
from headrace.windows.window import Window, Windowed

UUID_TEXT = "12345678-1234-5678-1234-567812345678"


@dataclass
class Revenue:
    amount: Decimal
    day: date


class Model(BaseModel):
    name: str


def written(serde: Serde[Any], value: Any) -> Any:
    return msgspec.json.decode(json_writer(serde)(serde.serialize(value)))


@pytest.mark.parametrize(
    ("serde", "value", "expected"),
    [
        (Serdes.string(), 'a "b"', 'a "b"'),
        (Serdes.long(), 2**62, 2**62),
        (Serdes.double(), 0.5, 0.5),
        (Serdes.double(), float("nan"), None),
        (Serdes.boolean(), True, True),
        (Serdes.uuid(), UUID(UUID_TEXT), UUID_TEXT),
        (Serdes.bytes(), b"\xfb\xff", "-_8="),
        (Serdes.list_of(int), [1, None, 3], [1, None, 3]),
        (
            serde_for(Revenue),
            Revenue(Decimal("1.10"), date(2026, 1, 2)),
            {"amount": 1.1, "day": "2026-01-02"},
        ),
        (serde_for(Model), Model(name="a"), {"name": "a"}),
        (serde_for(StringValue), StringValue(value="x"), "x"),
        (
            Serdes.time_windowed(str, "1s"),
            Windowed("a", Window(1000, 2000)),
            {"key": "a", "start": 1000, "end": 2000},
        ),
        (
            Serdes.session_windowed(int),
            Windowed(7, Window(10, 30)),
            {"key": 7, "start": 10, "end": 30},
        ),
    ],
)
def test_values_become_json(serde: Serde[Any], value: Any, expected: Any) -> None:
    assert written(serde, value) == expected


def test_json_passes_through_byte_for_byte() -> None:
    data = b'{ "b" : 1.0, "a": "\xc3\xa9" }'

    assert json_writer(Serdes.json())(data) == data


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (Serdes.json(), b"{"),
        (Serdes.json(), b'"\xff"'),
        (Serdes.string(), b"\xff"),
        (Serdes.long(), b"123"),
        (Serdes.time_windowed(str, "1s"), b"12"),
        (Serdes.of(str.encode, bytes.decode), b"\xff"),
        (Serdes.of(lambda value: b"", lambda data: object()), b"x"),
    ],
)
def test_data_that_cannot_be_json_is_hex_with_the_error(serde: Serde[Any], data: bytes) -> None:
    shown = msgspec.json.decode(json_writer(serde)(data))

    assert shown["$hex"] == data.hex()
    assert "Error: " in shown["$error"]


@pytest.mark.parametrize(
    ("serde", "text", "value"),
    [
        (Serdes.string(), "a/b ü", "a/b ü"),
        (Serdes.short(), "-12", -12),
        (Serdes.integer(), "12", 12),
        (Serdes.long(), "9223372036854775807", 2**63 - 1),
        (Serdes.double(), "1e3", 1000.0),
        (Serdes.boolean(), "false", False),
        (Serdes.uuid(), UUID_TEXT.upper(), UUID(UUID_TEXT)),
        (Serdes.bytes(), "-_8", b"\xfb\xff"),
        (Serdes.bytes(), "+/8=", b"\xfb\xff"),
        (Serdes.bytes(), "", b""),
    ],
)
def test_the_text_of_a_url_is_read_by_the_type_of_keys(
    serde: Serde[Any], text: str, value: Any
) -> None:
    assert key_from_text(serde, text) == serde.serialize(value)


@pytest.mark.parametrize(
    ("serde", "text"),
    [
        (Serdes.long(), "1.5"),
        (Serdes.long(), "9223372036854775808"),
        (Serdes.long(), "1" * 30),
        (Serdes.long(), "\u0661"),
        (Serdes.double(), "one"),
        (Serdes.boolean(), "True"),
        (Serdes.uuid(), "1234"),
        (Serdes.bytes(), "a"),
        (Serdes.bytes(), "a b="),
        (Serdes.string(), "\ud800"),
        (Serdes.json(), "{}"),
        (Serdes.list_of(str), "a"),
    ],
)
def test_text_that_is_no_key_is_refused(serde: Serde[Any], text: str) -> None:
    with pytest.raises(QueryProblemError) as caught:
        key_from_text(serde, text)

    assert caught.value.code is ProblemCode.BAD_KEY


@pytest.mark.parametrize(
    ("serde", "value", "key"),
    [
        (Serdes.string(), "a", "a"),
        (Serdes.long(), 7, 7),
        (Serdes.double(), 7, 7.0),
        (Serdes.boolean(), True, True),
        (Serdes.uuid(), UUID_TEXT, UUID(UUID_TEXT)),
        (Serdes.bytes(), "-_8", b"\xfb\xff"),
        (Serdes.list_of(str), ["a", None], ["a", None]),
        (Serdes.json(), {"b": 1, "a": [2]}, {"a": [2], "b": 1}),
        (
            serde_for(Revenue),
            {"day": "2026-01-02", "amount": "1.10"},
            Revenue(Decimal("1.10"), date(2026, 1, 2)),
        ),
        (serde_for(StringValue), "x", StringValue(value="x")),
        (
            Serdes.time_windowed(str, "1s"),
            {"key": "a", "start": 0},
            Windowed("a", Window(0, 1000)),
        ),
        (
            Serdes.session_windowed(str),
            {"key": "a", "start": 0, "end": 5},
            Windowed("a", Window(0, 5)),
        ),
    ],
)
def test_a_key_of_any_type_is_read_from_json(serde: Serde[Any], value: Any, key: Any) -> None:
    assert key_from_json(serde, value) == serde.serialize(key)


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (Serdes.string(), 1),
        (Serdes.string(), None),
        (Serdes.long(), True),
        (Serdes.long(), "7"),
        (Serdes.double(), False),
        (Serdes.double(), "7"),
        (Serdes.uuid(), "x"),
        (Serdes.bytes(), 5),
        (Serdes.bytes(), "?"),
        (serde_for(Revenue), {"amount": 1}),
        (serde_for(Struct), 5),
        (Serdes.time_windowed(str, "1s"), {"key": "a", "start": -5}),
        (Serdes.time_windowed(str, "1s"), {"key": 1, "start": 0}),
        (Serdes.session_windowed(str), {"key": "a", "start": 5}),
        (Serdes.session_windowed(str), "a"),
    ],
)
def test_json_that_is_no_key_is_refused(serde: Serde[Any], value: Any) -> None:
    with pytest.raises(QueryProblemError) as caught:
        key_from_json(serde, value)

    assert caught.value.code is ProblemCode.BAD_KEY


def test_prefixes_are_for_text_and_bytes() -> None:
    assert prefix_from_text(Serdes.string(), "ab") == b"ab"
    assert prefix_from_text(Serdes.bytes(), "-_8") == b"\xfb\xff"
    with pytest.raises(QueryProblemError) as caught:
        prefix_from_text(Serdes.long(), "1")

    assert caught.value.code is ProblemCode.BAD_RANGE
