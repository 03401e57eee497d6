"""Replace key, value or both."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headrace.processors.operation import NodeContext, Operation, Process, check_pair
from headrace.records import Headers


@dataclass(frozen=True)
class Map(Operation):
    """Forward the pair a function makes of each record."""

    mapper: Callable[[Any, Any], tuple[Any, Any]]

    def bind(self, node: NodeContext) -> Process:
        mapper, forward, fail = self.mapper, node.forward, node.fail

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                pair = mapper(key, value)
                if type(pair) is not tuple or len(pair) != 2:
                    check_pair(pair)
                new_key, new_value = pair
            except Exception as error:
                return fail(error, key, value, timestamp, headers)
            return forward(new_key, new_value, timestamp, headers)

        return process


@dataclass(frozen=True)
class SelectKey(Operation):
    """Forward each record under the key a function chooses."""

    mapper: Callable[[Any, Any], Any]

    def bind(self, node: NodeContext) -> Process:
        mapper, forward, fail = self.mapper, node.forward, node.fail

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                new_key = mapper(key, value)
            except Exception as error:
                return fail(error, key, value, timestamp, headers)
            return forward(new_key, value, timestamp, headers)

        return process


@dataclass(frozen=True)
class MapValues(Operation):
    """Forward each record with the value ``mapper(value)``."""

    mapper: Callable[[Any], Any]

    def bind(self, node: NodeContext) -> Process:
        mapper, forward, fail = self.mapper, node.forward, node.fail

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                new_value = mapper(value)
            except Exception as error:
                return fail(error, key, value, timestamp, headers)
            return forward(key, new_value, timestamp, headers)

        return process


@dataclass(frozen=True)
class MapValuesWithKey(Operation):
    """Forward each record with the value ``mapper(key, value)``."""

    mapper: Callable[[Any, Any], Any]

    def bind(self, node: NodeContext) -> Process:
        mapper, forward, fail = self.mapper, node.forward, node.fail

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                new_value = mapper(key, value)
            except Exception as error:
                return fail(error, key, value, timestamp, headers)
            return forward(key, new_value, timestamp, headers)

        return process


@dataclass(frozen=True)
class FlatMap(Operation):
    """Forward every pair a function makes of each record."""

    mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]]

    def bind(self, node: NodeContext) -> Process:
        mapper, forward, fail = self.mapper, node.forward, node.fail

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            # The pairs are made before the first is forwarded, so that a function that fails half
            # way through forwards nothing.
            try:
                pairs = list(mapper(key, value))
                for pair in pairs:
                    if type(pair) is not tuple or len(pair) != 2:
                        check_pair(pair)
            except Exception as error:
                return fail(error, key, value, timestamp, headers)
            for new_key, new_value in pairs:
                forward(new_key, new_value, timestamp, headers)
            return None

        return process


@dataclass(frozen=True)
class FlatMapValues(Operation):
    """Forward one record for every value a function makes of each record."""

    mapper: Callable[[Any, Any], Iterable[Any]]

    def bind(self, node: NodeContext) -> Process:
        mapper, forward, fail = self.mapper, node.forward, node.fail

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                values = list(mapper(key, value))
            except Exception as error:
                return fail(error, key, value, timestamp, headers)
            for new_value in values:
                forward(key, new_value, timestamp, headers)
            return None

        return process
