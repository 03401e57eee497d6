"""Send each record down one branch, and let streams run together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.processors.operation import NodeContext, Operation, Process
from headrace.records import Headers


@dataclass(frozen=True)
class Branch(Operation):
    """Forward each record to the child of the first predicate that accepts it."""

    predicates: tuple[Callable[[Any, Any], bool], ...]
    branches: tuple[str, ...]
    """The children, one per predicate, then the one of the default branch if there is one."""

    def bind(self, node: NodeContext) -> Process:
        children, fail = node.children(), node.fail
        routes = [
            (predicate, children[branch])
            for predicate, branch in zip(self.predicates, self.branches, strict=False)
        ]
        has_default = len(self.branches) > len(self.predicates)
        default = children[self.branches[-1]] if has_default else _ignore

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            target = default
            try:
                for predicate, child in routes:
                    if predicate(key, value):
                        target = child
                        break
            except Exception as error:
                return fail(error, key, value, timestamp, headers)
            return target(key, value, timestamp, headers)

        return process


def _ignore(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
    """Leave out a record no branch wants; Kafka does not count these."""


@dataclass(frozen=True)
class PassThrough(Operation):
    """Forward every record as it is: merged streams and the branches of a split."""

    def bind(self, node: NodeContext) -> Process:
        return node.forward
