"""Schemas in which a few bytes can encode any number of items are rejected."""

from __future__ import annotations

from typing import Any

import fastavro
import pytest

from headrace import TopologyError
from headrace.serdes import AvroSerde
from headrace.serdes.avro_bounds import MOST_NESTED_BYTES, AvroBounds

LINK = {"name": "next", "type": ["null", "Node"]}
NODE: dict[str, Any] = {"type": "record", "name": "Node", "fields": [LINK]}
EMPTY: dict[str, Any] = {"type": "record", "name": "Empty", "fields": []}
PAIR: dict[str, Any] = {
    "type": "record",
    "name": "Pair",
    "fields": [{"name": "a", "type": EMPTY}, {"name": "b", "type": "Empty"}],
}


def bounds(schema: Any) -> AvroBounds:
    return AvroBounds(fastavro.parse_schema(schema), {})


@pytest.mark.parametrize(
    "schema",
    [
        NODE,
        ["null", NODE],
        {"type": "map", "values": NODE},
        {**NODE, "fields": [{"name": "all", "type": {"type": "array", "items": "Node"}}]},
    ],
)
def test_a_schema_that_contains_itself_is_found(schema: Any) -> None:
    assert bounds(schema).contains_itself


def test_a_schema_that_contains_itself_is_found_where_it_is_imported() -> None:
    named = {"Node": NODE}

    assert AvroBounds({"type": "array", "items": "Node"}, named).contains_itself


@pytest.mark.parametrize("schema", ["string", PAIR, {"type": "map", "values": PAIR}])
def test_most_schemas_do_not_contain_themselves(schema: Any) -> None:
    assert not bounds(schema).contains_itself


@pytest.mark.parametrize(
    "items", ["null", EMPTY, PAIR, {"type": "fixed", "name": "Nothing", "size": 0}]
)
def test_items_without_bytes_are_refused(items: Any) -> None:
    with pytest.raises(TopologyError, match="the items of an array take no bytes"):
        AvroSerde({"type": "array", "items": items})


@pytest.mark.parametrize(
    "items",
    ["int", ["null", "int"], {"type": "fixed", "name": "Four", "size": 4}, NODE],
)
def test_other_items_are_not(items: Any) -> None:
    assert not bounds({"type": "array", "items": items}).has_empty_items


def test_data_may_be_nested_and_long() -> None:
    tree = {**NODE, "fields": [LINK, {"name": "text", "type": "string"}]}
    serde = AvroSerde[Any](tree)
    value: Any = None
    for _ in range(50):
        value = {"next": value, "text": "a" * MOST_NESTED_BYTES}

    assert serde.deserialize(serde.serialize(value)) == value


@pytest.mark.parametrize("levels", [MOST_NESTED_BYTES + 1, 100_000])
def test_data_that_is_nested_too_deeply_is_refused(levels: int) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        AvroSerde(NODE).deserialize(b"\x02" * levels + b"\x00")
