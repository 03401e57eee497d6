"""Schemas in which a few bytes can encode any number of items are rejected."""

from __future__ import annotations

from typing import Any

import fastavro
import pytest

from headrace import TopologyError
from headrace.serdes import AvroSerde
from headrace.serdes.avro_bounds import AvroBounds

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
    assert not bounds({"type": "array", "items": items}).may_hold_too_many(1 << 30)


def test_data_may_be_nested_and_long() -> None:
    tree = {**NODE, "fields": [LINK, {"name": "text", "type": "string"}]}
    serde = AvroSerde[Any](tree)
    value: Any = None
    for _ in range(50):
        value = {"next": value, "text": "a" * 500}

    assert serde.deserialize(serde.serialize(value)) == value


@pytest.mark.parametrize("levels", [501, 100_000])
def test_data_that_is_nested_too_deeply_is_refused(levels: int) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        AvroSerde(NODE).deserialize(b"\x02" * levels + b"\x00")


def record(name: str, *types: Any) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": type_} for number, type_ in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields}


def chain(length: int, *more: str) -> dict[str, Any]:
    """Return a schema whose last type holds the one before it, and so on, without nested JSON."""
    types = [record("T0", *more)]
    types += [record(f"T{n}", f"T{n - 1}", f"T{n - 1}") for n in range(1, length)]
    return record("All", *types)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (chain(101, "int"), "nested more than 100 deep"),
        (chain(30, "null"), "more than a million values"),
        (record("Endless", "int", "Endless"), "every Endless contains another one"),
        (record("Wide", *(record(f"R{n}") for n in range(1_001))), "1002 named types"),
        (record("Long", {"type": "enum", "name": "E", "symbols": ["s" * (1 << 20)]}), "its text"),
    ],
)
def test_a_schema_that_could_harm_its_reader_is_refused(schema: Any, reason: str) -> None:
    with pytest.raises(TopologyError, match=reason):
        AvroSerde(schema)


def test_types_that_are_nested_deep_in_json_are_refused() -> None:
    nested = "int"
    for _ in range(400):
        nested = {"type": "array", "items": nested}  # type: ignore[assignment]

    with pytest.raises(TopologyError, match="nested more than 100 deep"):
        AvroSerde(nested)


def test_items_that_hold_very_many_nulls_for_each_byte_are_refused() -> None:
    item = record("Item", "int", *["null"] * 500)
    serde = AvroSerde[Any]({"type": "array", "items": item})
    value = [{"f0": 1} | {f"f{number}": None for number in range(1, 501)}]

    assert serde.deserialize(serde.serialize(value)) == value
    with pytest.raises(ValueError, match="more than a million nulls"):
        serde.deserialize(serde.serialize(value * 2_000))


def test_a_cycle_of_many_types_does_not_get_around_the_bound_of_depth() -> None:
    cycle = record("C0", ["null", "C40"])
    for number in range(1, 41):
        cycle = record(f"C{number}", cycle)

    with pytest.raises(ValueError, match="nested too deeply"):
        AvroSerde(cycle).deserialize(b"\x02" * 499 + b"\x00")
