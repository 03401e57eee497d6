"""Bring the aggregations of cogrouped streams together into one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.processors.operation import NodeContext, Process, TableOperation, ValueGetter


@dataclass(frozen=True, kw_only=True)
class CogroupMerge(TableOperation):
    """Pass the changes of all parents on. They share one store, so any of them can look it up."""

    def getter(self, node: NodeContext, parent: Callable[[], ValueGetter]) -> ValueGetter:
        return parent()

    def bind(self, node: NodeContext) -> Process:
        return node.forward
