"""Values that fastavro would quietly change are refused."""

from __future__ import annotations

from typing import Any

import fastavro
import pytest

from headrace.serdes.avro_checks import avro_check

NODE: dict[str, Any] = {
    "type": "record",
    "name": "Node",
    "fields": [
        {"name": "size", "type": "int"},
        {"name": "big", "type": "boolean", "default": False},
        {"name": "text", "type": "string", "default": ""},
        {"name": "inner", "type": {"type": "array", "items": "Node"}, "default": []},
        {"name": "byName", "type": {"type": "map", "values": "long"}, "default": {}},
        {"name": "names", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "either", "type": ["null", "int"], "default": None},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 0},
    ],
}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"size": 1.0}, "`size` must be int, but is float"),
        ({"size": True}, "`size` must be int, but is bool"),
        ({"size": 2**31}, "`size` is 2147483648, which does not fit in 32 bits"),
        ({"size": 1, "big": 1}, "`big` must be bool, but is int"),
        ({"size": 1, "inner": [{"size": 1.5}]}, "`size` must be int, but is float"),
        ({"size": 1, "byName": {"a": 1.5}}, "a value of `byName` must be int, but is float"),
        ({"size": 1, "day": 1.5}, "`day` must be int, but is float"),
    ],
)
def test_a_value_that_would_be_changed_is_refused(value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        avro_check(fastavro.parse_schema(NODE))(value)


@pytest.mark.parametrize(
    "value",
    [
        {"size": -(2**31), "big": True, "inner": [{"size": 1}], "byName": {"a": 2**40}},
        {"size": "text, which fastavro refuses itself"},
        "no record, which fastavro refuses itself",
    ],
)
def test_other_values_pass(value: object) -> None:
    avro_check(fastavro.parse_schema(NODE))(value)


@pytest.mark.parametrize("schema", ["string", ["null", "int"], {"type": "array", "items": "bytes"}])
def test_most_schemas_need_no_check(schema: Any) -> None:
    avro_check(fastavro.parse_schema(schema))(1.5)
