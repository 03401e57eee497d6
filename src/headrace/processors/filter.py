"""Keep the records a predicate accepts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.processors.operation import NodeContext, Operation, Process
from headrace.records import Headers


@dataclass(frozen=True)
class Filter(Operation):
    """Forward the records for which the predicate is true."""

    predicate: Callable[[Any, Any], bool]

    def bind(self, node: NodeContext) -> Process:
        predicate, forward, fail = self.predicate, node.forward, node.fail

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                accepted = predicate(key, value)
            except Exception as error:
                return fail(error, key, value, timestamp, headers)
            if accepted:
                forward(key, value, timestamp, headers)
            return None

        return process


@dataclass(frozen=True)
class FilterNot(Operation):
    """Forward the records for which the predicate is false."""

    predicate: Callable[[Any, Any], bool]

    def bind(self, node: NodeContext) -> Process:
        predicate, forward, fail = self.predicate, node.forward, node.fail

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                refused = predicate(key, value)
            except Exception as error:
                return fail(error, key, value, timestamp, headers)
            if not refused:
                forward(key, value, timestamp, headers)
            return None

        return process


@dataclass(frozen=True)
class FilterNullKeys(Operation):
    """Leave out records without a key, which have no partition to go to; Kafka counts none."""

    def bind(self, node: NodeContext) -> Process:
        forward = node.forward

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is not None:
                forward(key, value, timestamp, headers)

        return process
