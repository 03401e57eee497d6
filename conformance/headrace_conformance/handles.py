"""The state of a scenario under construction: handles of the DSL, and facts about them."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from headrace import StreamsBuilder
from headrace_conformance.script import Memory
from headrace_conformance.serdes import serde
from headrace_conformance.stores import StoreKind

Operation: TypeAlias = Mapping[str, Any]
"""One entry of ``sources`` or ``operations``."""

Shape: TypeAlias = Literal[
    "stream",
    "table",
    "global_table",
    "grouped_stream",
    "grouped_table",
    "windowed",
    "sessions",
    "cogrouped",
    "windowed_cogrouped",
    "session_cogrouped",
]


@dataclass(frozen=True)
class Handle:
    """Something the DSL returned, and the names of the serdes of its keys and values."""

    shape: Shape
    target: Any
    key: str
    value: str
    window_size: int = 0
    """The size of the windows, of a windowed stream."""

    def becoming(
        self,
        target: Any,
        operation: Operation,
        *,
        shape: Shape | None = None,
        value: str | None = None,
    ) -> Handle:
        """Return a handle on ``target``: the serdes stay unless the operation says otherwise."""
        return replace(
            self,
            shape=shape or self.shape,
            target=target,
            key=operation.get("key", self.key),
            value=operation.get("value", value or self.value),
        )


@dataclass
class Build:
    """A topology in the making."""

    builder: StreamsBuilder = field(default_factory=StreamsBuilder)
    handles: dict[str, Handle] = field(default_factory=dict)
    inputs: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Topics that are read, and the serdes of their records; a pattern means its topics."""
    outputs: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Topics that are written, and the names of the serdes of their keys and values."""
    stores: dict[str, StoreKind] = field(default_factory=dict)
    """The stores that the scenario names."""
    memories: dict[str, Memory] = field(default_factory=dict)
    effects: dict[str, list[Any]] = field(default_factory=dict)
    """The records that `peek` and `foreach` saw, by operation."""
    printed: dict[str, io.StringIO] = field(default_factory=dict)

    def memory(self, operation: str) -> Memory:
        """Return the memory of the processor of the operation with this id."""
        return self.memories.setdefault(operation, Memory())


Builder: TypeAlias = Callable[[Build, Operation, list[Handle]], Handle | None]
"""Adds one operation, given its inputs."""


def named(operation: Operation) -> dict[str, Any]:
    """Return the keyword that names the step, if the scenario does."""
    return {"name": operation["named"]} if "named" in operation else {}


def serdes_of(handle: Handle, operation: Operation) -> dict[str, Any]:
    """Return the keywords for the serdes of what leaves the step."""
    return {
        "key": serde(operation.get("key", handle.key)),
        "value": serde(operation.get("value", handle.value)),
    }


def value_serde_of(handle: Handle, operation: Operation) -> dict[str, Any]:
    """Return the keyword for the serde of the values that leave the step."""
    return {"value": serde(operation.get("value", handle.value))}
