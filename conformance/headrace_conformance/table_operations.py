"""Operations on tables, and joins of every kind."""

from __future__ import annotations

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
from headrace_conformance.options import join_windows_of, materialized_of, suppressed_of
from headrace_conformance.processors import transformer_supplier
from headrace_conformance.serdes import serde
from headrace_conformance.stream_operations import add_store, mapper_of, pair_mapper_of
from headrace_conformance.two_arguments import combination


def _stored(
    build: Build, operation: Operation, table: Handle, *, always: bool = False
) -> dict[str, Any]:
    add_store(build, operation, table)
    materialized = materialized_of(operation, table.key, table.value, always=always)
    return {"materialized": materialized, **named(operation)}


def _filter(build: Build, operation: Operation, inputs: list[Handle]) -> Handle:
    (table,) = inputs
    select = getattr(table.target, operation["op"])
    target = select(predicate(operation["fn"]), **_stored(build, operation, table))
    return table.becoming(target, operation)


def _map_values(build: Build, operation: Operation, inputs: list[Handle]) -> Handle:
    (table,) = inputs
    mapped = table.becoming(None, operation)
    target = table.target.map_values(
        mapper_of(operation),
        **value_serde_of(table, operation),
        **_stored(build, operation, mapped),
    )
    return mapped.becoming(target, {})


def _transform_values(build: Build, operation: Operation, inputs: list[Handle]) -> Handle:
    (table,) = inputs
    transformed = table.becoming(None, operation)
    supplier = transformer_supplier(
        operation.get("do", ()), operation["fn"], build.memory(operation["id"]), build.stores
    )
    target = table.target.transform_values(
        supplier,
        stores=operation.get("stores", ()),
        **value_serde_of(table, operation),
        **_stored(build, operation, transformed),
    )
    return transformed.becoming(target, {})


def _to_stream(_build: Build, operation: Operation, inputs: list[Handle]) -> Handle:
    (table,) = inputs
    options: dict[str, Any] = named(operation)
    if "key_fn" in operation:
        options |= {
            "mapper": function(operation["key_fn"]),
            "key": serde(operation.get("key", table.key)),
        }
    return table.becoming(table.target.to_stream(**options), operation, shape="stream")


def _group_by(_build: Build, operation: Operation, inputs: list[Handle]) -> Handle:
    (table,) = inputs
    options = serdes_of(table, operation) | named(operation)
    grouped = table.target.group_by(pair_mapper_of(operation), **options)
    return table.becoming(grouped, operation, shape="grouped_table")


def _suppress(_build: Build, operation: Operation, inputs: list[Handle]) -> Handle:
    (table,) = inputs
    return table.becoming(table.target.suppress(suppressed_of(operation)), operation)


def _joiner_of(operation: Operation) -> Callable[..., Any]:
    combine = combination(operation["fn"])
    if operation.get("with_key"):
        return lambda key, left, right: combine(key, left, right)
    return lambda left, right: combine(None, left, right)


def _join(build: Build, operation: Operation, inputs: list[Handle]) -> Handle:
    left, right = inputs
    join = {
        "stream": _join_streams,
        "table": _join_table,
        "global_table": _join_global_table,
    }[right.shape]
    return join(build, operation, left, right)


def _join_streams(_build: Build, operation: Operation, left: Handle, right: Handle) -> Handle:
    options = value_serde_of(left, operation) | named(operation)
    if "store" in operation:
        options["store_name"] = operation["store"]
    if "in_memory" in operation:
        options["store_type"] = "in_memory" if operation["in_memory"] else "rocksdb"
    join = getattr(left.target, operation["op"])
    windows = join_windows_of(operation["window"])
    target = join(right.target, _joiner_of(operation), windows, **options)
    return left.becoming(target, operation)


def _join_table(build: Build, operation: Operation, left: Handle, right: Handle) -> Handle:
    joined = left.becoming(None, operation)
    options = value_serde_of(left, operation)
    if left.shape == "table":
        options |= _stored(build, operation, joined)
    else:
        options |= named(operation)
        if "grace" in operation:
            options["grace"] = operation["grace"]
    join = getattr(left.target, operation["op"])
    return joined.becoming(join(right.target, _joiner_of(operation), **options), {})


def _join_global_table(_build: Build, operation: Operation, left: Handle, right: Handle) -> Handle:
    join = getattr(left.target, operation["op"])
    target = join(
        right.target,
        _joiner_of(operation),
        on=function(operation["key_fn"]),
        **value_serde_of(left, operation),
        **named(operation),
    )
    return left.becoming(target, operation)


def _foreign_key_join(build: Build, operation: Operation, inputs: list[Handle]) -> Handle:
    left, right = inputs
    joined = left.becoming(None, operation)
    join = getattr(left.target, operation["op"].removeprefix("fk_"))
    extract = function if operation.get("with_key") else value_function
    combine = combination(operation["fn"])
    target = join(
        right.target,
        lambda a, b: combine(None, a, b),
        foreign_key=extract(operation["fk_fn"]),
        **value_serde_of(left, operation),
        **_stored(build, operation, joined, always=True),
    )
    return joined.becoming(target, {})


TABLE_OPERATIONS: Mapping[str, Builder] = {
    "filter": _filter,
    "filter_not": _filter,
    "map_values": _map_values,
    "transform_values": _transform_values,
    "to_stream": _to_stream,
    "group_by": _group_by,
    "suppress": _suppress,
    "fk_join": _foreign_key_join,
    "fk_left_join": _foreign_key_join,
}
"""How to add each operation on a table that is not a join by key."""

JOINS: Mapping[str, Builder] = {"join": _join, "left_join": _join, "outer_join": _join}
"""How to add a join; the second input says of which kind."""
