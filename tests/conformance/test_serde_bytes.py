"""Bytes and hashes, as Kafka's Java library gives them (``conformance/goldens/serdes.json``)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headrace.serdes import Serde, Serdes
from headrace.serdes.partitioner import murmur2, partition_for_key
from headrace.windows.window import Window, Windowed

GOLDENS = json.loads(
    (Path(__file__).parents[2] / "conformance" / "goldens" / "serdes.json").read_text()
)

PRIMITIVES: dict[str, Serde[Any]] = {
    "string": Serdes.string(),
    "short": Serdes.short(),
    "integer": Serdes.integer(),
    "long": Serdes.long(),
    "float": Serdes.float(),
    "double": Serdes.double(),
    "boolean": Serdes.boolean(),
    "uuid": Serdes.uuid(),
    "bytes": Serdes.bytes(),
    "byte_array": Serdes.bytes(),
    "byte_buffer": Serdes.bytes(),
}


def _serde(golden: dict[str, Any]) -> Serde[Any]:
    match golden["serde"]:
        case "list":
            return Serdes.list_of(PRIMITIVES[golden["inner"]])
        case "time_windowed":
            return Serdes.time_windowed(PRIMITIVES[golden["inner"]], golden["size"])
        case "session_windowed":
            return Serdes.session_windowed(PRIMITIVES[golden["inner"]])
        case name:
            return PRIMITIVES[name]


def _value(name: str, golden: dict[str, Any], value: Any) -> Any:
    """Return the value that the JSON of a golden means."""
    match name:
        case "list":
            inner = golden["inner"]
            return [None if item is None else _value(inner, golden, item) for item in value]
        case "time_windowed" | "session_windowed":
            key = _value(golden["inner"], golden, value["key"])
            return Windowed(key, Window(value["start"], value["end"]))
        case "float" | "double":
            return float(value)
        case "uuid":
            return UUID(value)
        case "bytes" | "byte_array" | "byte_buffer":
            return bytes.fromhex(value)
        case _:
            return value


# Null has no bytes in Kafka, and never reaches a serde here.
SERDES = [golden for golden in GOLDENS["serdes"] if golden["value"] is not None]


def test_java_gives_null_no_bytes() -> None:
    nulls = [golden for golden in GOLDENS["serdes"] if golden["value"] is None]

    assert {golden["serde"] for golden in nulls} >= PRIMITIVES.keys()
    assert all(golden["hex"] is None for golden in nulls)


@pytest.mark.parametrize("golden", SERDES, ids=lambda golden: f"{golden['serde']}-{golden['hex']}")
def test_a_value_has_the_bytes_that_java_gives_it(golden: dict[str, Any]) -> None:
    serde = _serde(golden)
    value = _value(golden["serde"], golden, golden["value"])

    data = serde.serialize(value)
    read = serde.deserialize(bytes.fromhex(golden["hex"]))

    assert data.hex() == golden["hex"]
    assert serde.serialize(read) == data
    if golden["serde"] == "float":
        assert math.isnan(read) if math.isnan(value) else read == pytest.approx(value)
    elif golden["value"] != "NaN":
        assert read == value


@pytest.mark.parametrize("golden", GOLDENS["murmur2"], ids=lambda golden: golden["hex"] or "empty")
def test_a_key_has_the_hash_and_the_partitions_that_java_gives_it(golden: dict[str, Any]) -> None:
    key = bytes.fromhex(golden["hex"])

    assert murmur2(key) == golden["hash"]
    for partitions, partition in golden.get("partitions", {}).items():
        assert partition_for_key(key, int(partitions)) == partition
