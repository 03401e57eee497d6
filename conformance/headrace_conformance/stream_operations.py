"""Operations on streams that need no table: maps, branches, sinks, processors."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

from headrace_conformance.functions import function, predicate, value_function
from headrace_conformance.handles import (
    Build,
    Builder,
    Handle,
    Operation,
    named,
    serdes_of,
    value_serde_of,
)
from headrace_conformance.options import materialized_of
from headrace_conformance.processors import processor_supplier
from headrace_conformance.serdes import serde
from headrace_conformance.stores import StoreKind
from headrace_conformance.values import json_of


def mapper_of(operation: Operation) -> Callable[..., Any]:
    """Return the ``fn`` of `map_values`: of the value, or of key and value."""
    make = function if operation.get("with_key") else value_function
    return make(operation["fn"])


def pair_mapper_of(operation: Operation) -> Callable[[Any, Any], Any]:
    """Return the function that makes a pair of key and value."""
    if operation.get("fn") == "null_result":
        return lambda _key, _value: None
    key_fn = function(operation.get("key_fn", "key"))
    value_fn = function(operation.get("value_fn", "value"))
    return lambda key, value: (key_fn(key, value), value_fn(key, value))


def _filter(_build: Build, operation: Operation, inputs: list[Handle]) -> Handle:
    (stream,) = inputs
    select = stream.target.filter if operation["op"] == "filter" else stream.target.filter_not
    return stream.becoming(select(predicate(operation["fn"]), **named(operation)), operation)


def _map(_build: Build, operation: Operation, inputs: list[Handle]) -> Handle:
    (stream,) = inputs
    options = serdes_of(stream, operation) | named(operation)
    return stream.becoming(stream.target.map(pair_mapper_of(operation), **options), operation)


def _map_values(_build: Build, operation: Operation, inputs: list[Handle]) -> Handle:
    (stream,) = inputs
    options = value_serde_of(stream, operation) | named(operation)
    map_values = getattr(stream.target, operation["op"])
    return stream.becoming(map_values(mapper_of(operation), **options), operation)


def _flat_map(_build: Build, operation: Operation, inputs: list[Handle]) -> Handle:
    (stream,) = inputs
    items, pair = function(operation["fn"]), pair_mapper_of({**operation, "fn": None})
    flat_map = stream.target.flat_map(
        lambda key, value: [pair(key, item) for item in items(key, value)],
        **serdes_of(stream, operation),
        **named(operation),
    )
    return stream.becoming(flat_map, operation)


def _select_key(_build: Build, operation: Operation, inputs: list[Handle]) -> Handle:
    (stream,) = inputs
    key = {"key": serde(operation.get("key", stream.key))}
    selected = stream.target.select_key(function(operation["key_fn"]), **key, **named(operation))
    return stream.becoming(selected, operation)


def _watch(build: Build, operation: Operation, inputs: list[Handle]) -> Handle | None:
    (stream,) = inputs
    seen = build.effects.setdefault(operation["id"], [])
    watch = getattr(stream.target, operation["op"])
    target = watch(
        lambda key, value: seen.append([json_of(key), json_of(value)]), **named(operation)
    )
    return None if target is None else stream.becoming(target, operation)


def _print(build: Build, operation: Operation, inputs: list[Handle]) -> None:
    (stream,) = inputs
    printed = build.printed.setdefault(operation["id"], io.StringIO())
    stream.target.print(file=printed, label=operation.get("label"), **named(operation))


def _split(build: Build, operation: Operation, inputs: list[Handle]) -> None:
    (stream,) = inputs
    branched = stream.target.split(**named(operation))
    for branch in operation["branches"]:
        options = {"then": _writing(build, branch["to"], stream)} if "to" in branch else {}
        branched = branched.branch(predicate(branch["fn"]), branch.get("as"), **options)
    default = operation.get("default")
    if default is None:
        branches = branched.no_default_branch()
    else:
        branches = branched.default_branch(None if default is True else default)
    for name, branch in branches.items():
        build.handles[f"{operation['id']}/{name}"] = stream.becoming(branch, {})
    build.effects[operation["id"]] = sorted(branches)


def _writing(build: Build, topic: str, stream: Handle) -> Callable[[Any], None]:
    build.outputs[topic] = (stream.key, stream.value)
    serdes = serdes_of(stream, {})

    def write(branch: Any) -> None:
        branch.to(topic, **serdes)

    return write


def _merge(_build: Build, operation: Operation, inputs: list[Handle]) -> Handle:
    first, *others = inputs
    target = first.target
    for other in others:
        target = target.merge(other.target, **named(operation))
    return first.becoming(target, operation)


def _repartition(_build: Build, operation: Operation, inputs: list[Handle]) -> Handle:
    (stream,) = inputs
    options = serdes_of(stream, operation) | named(operation)
    if "partitions" in operation:
        options["partitions"] = operation["partitions"]
    return stream.becoming(stream.target.repartition(**options), operation)


def _to(build: Build, operation: Operation, inputs: list[Handle]) -> None:
    (stream,) = inputs
    options = serdes_of(stream, operation) | named(operation)
    names = (operation.get("key", stream.key), operation.get("value", stream.value))
    if "topic" in operation:
        build.outputs[operation["topic"]] = names
        stream.target.to(operation["topic"], **options)
        return
    build.outputs |= dict.fromkeys(operation["topics"], names)
    choose = function(operation["topic_fn"])
    stream.target.to(lambda key, value, _context: choose(key, value), **options)


def _to_table(build: Build, operation: Operation, inputs: list[Handle]) -> Handle:
    (stream,) = inputs
    table = stream.becoming(None, operation, shape="table")
    add_store(build, operation, table)
    target = stream.target.to_table(
        materialized=materialized_of(operation, table.key, table.value, always=True),
        **serdes_of(stream, operation),
        **named(operation),
    )
    return table.becoming(target, {})


def add_store(build: Build, operation: Operation, table: Handle) -> None:
    """Remember the key-value store that an operation gives a name."""
    if "store" in operation:
        versioned = "versioned" in operation.get("materialized", {})
        kind = "versioned" if versioned else "timestamped_key_value"
        build.stores[operation["store"]] = StoreKind(kind, table.key, table.value)


def _group_by_key(_build: Build, operation: Operation, inputs: list[Handle]) -> Handle:
    (stream,) = inputs
    grouped = stream.target.group_by_key(**serdes_of(stream, operation), **named(operation))
    return stream.becoming(grouped, operation, shape="grouped_stream")


def _group_by(_build: Build, operation: Operation, inputs: list[Handle]) -> Handle:
    (stream,) = inputs
    grouped = stream.target.group_by(
        function(operation["key_fn"]), **serdes_of(stream, operation), **named(operation)
    )
    return stream.becoming(grouped, operation, shape="grouped_stream")


def _process(build: Build, operation: Operation, inputs: list[Handle]) -> Handle:
    (stream,) = inputs
    fixed_key = operation["op"] == "process_values"
    serdes = value_serde_of if fixed_key else serdes_of
    supplier = processor_supplier(
        operation["processor"], build.memory(operation["id"]), build.stores, fixed_key=fixed_key
    )
    process = getattr(stream.target, operation["op"])
    target = process(
        supplier,
        stores=operation.get("stores", ()),
        **serdes(stream, operation),
        **named(operation),
    )
    return stream.becoming(target, operation)


STREAM_OPERATIONS: Mapping[str, Builder] = {
    "filter": _filter,
    "filter_not": _filter,
    "map": _map,
    "map_values": _map_values,
    "flat_map_values": _map_values,
    "flat_map": _flat_map,
    "select_key": _select_key,
    "peek": _watch,
    "foreach": _watch,
    "print": _print,
    "split": _split,
    "merge": _merge,
    "repartition": _repartition,
    "to": _to,
    "to_table": _to_table,
    "group_by_key": _group_by_key,
    "group_by": _group_by,
    "process": _process,
    "process_values": _process,
}
"""How to add each operation on a stream that is not a join."""
