"""Aggregations of grouped streams and tables, windowed, cogrouped or plain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from headrace import EmitStrategy
from headrace_conformance.handles import Build, Builder, Handle, Operation, Shape, named
from headrace_conformance.options import materialized_of, windows_of
from headrace_conformance.serdes import session_name, value_of, windowed_name
from headrace_conformance.stores import StoreKind
from headrace_conformance.two_arguments import combination

_STORE_KINDS: Mapping[Shape, str] = {
    "windowed": "timestamped_window",
    "windowed_cogrouped": "timestamped_window",
    "sessions": "session",
    "session_cogrouped": "session",
}


def _aggregator(source: Any) -> Callable[[Any, Any, Any], Any]:
    combine = combination(source)
    return lambda key, value, aggregate: combine(key, aggregate, value)


def _reducer(source: Any) -> Callable[[Any, Any], Any]:
    combine = combination(source)
    return lambda aggregate, value: combine(None, aggregate, value)


def _merger(source: Any) -> Callable[[Any, Any, Any], Any]:
    combine = combination(source)
    return lambda key, left, right: combine(key, left, right)


def _initializer(initial: Any, value: str) -> Callable[[], Any]:
    return lambda: value_of(value, initial)


def _aggregate(build: Build, operation: Operation, inputs: list[Handle]) -> Handle:
    (grouped,) = inputs
    value = "long" if operation["op"] == "count" else operation.get("value", grouped.value)
    if "store" in operation:
        kind = _STORE_KINDS.get(grouped.shape, "timestamped_key_value")
        build.stores[operation["store"]] = StoreKind(kind, grouped.key, value)
    aggregate = getattr(grouped.target, operation["op"])
    target = aggregate(
        *_functions(operation, grouped.shape, value),
        materialized=materialized_of(operation, grouped.key, value, always=True),
        **named(operation),
    )
    return Handle("table", target, _result_key(grouped), value)


def _functions(operation: Operation, shape: Shape, value: str) -> list[Any]:
    if operation["op"] == "count":
        return []
    if operation["op"] == "reduce":
        names = ("fn", "subtract") if shape == "grouped_table" else ("fn",)
        return [_reducer(operation[name]) for name in names]
    functions: list[Any] = [_initializer(operation["init"], value)]
    if not shape.endswith("cogrouped"):
        functions.append(_aggregator(operation["fn"]))
    if shape == "grouped_table":
        functions.append(_aggregator(operation["subtract"]))
    if shape in ("sessions", "session_cogrouped"):
        functions.append(_merger(operation["merger"]))
    return functions


def _result_key(grouped: Handle) -> str:
    if grouped.shape in ("windowed", "windowed_cogrouped"):
        return windowed_name(grouped.key, grouped.window_size)
    if grouped.shape in ("sessions", "session_cogrouped"):
        return session_name(grouped.key)
    return grouped.key


def _windowed_by(_build: Build, operation: Operation, inputs: list[Handle]) -> Handle:
    (grouped,) = inputs
    windows, size = windows_of(operation["window"])
    target = grouped.target.windowed_by(windows, **named(operation))
    if operation.get("emit") == "on_window_close":
        target = target.emit_strategy(EmitStrategy.on_window_close())
    shapes: tuple[Shape, Shape] = (
        ("windowed_cogrouped", "session_cogrouped")
        if grouped.shape == "cogrouped"
        else ("windowed", "sessions")
    )
    shape = shapes[operation["window"]["type"] == "session"]
    return replace(grouped, shape=shape, target=target, window_size=size)


def _cogroup(_build: Build, operation: Operation, inputs: list[Handle]) -> Handle:
    first, *others = inputs
    aggregators = [_aggregator(source) for source in operation["fns"]]
    target = first.target.cogroup(aggregators[0])
    for other, aggregator in zip(others, aggregators[1:], strict=True):
        target = target.cogroup(other.target, aggregator)
    return first.becoming(target, operation, shape="cogrouped")


AGGREGATIONS: Mapping[str, Builder] = {
    "count": _aggregate,
    "reduce": _aggregate,
    "aggregate": _aggregate,
    "windowed_by": _windowed_by,
    "cogroup": _cogroup,
}
"""How to add each operation on something grouped."""
