"""Group the rows of a table by another key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.processors.operation import NodeContext, Operation, Process, check_pair
from headrace.records import Headers


@dataclass(frozen=True, kw_only=True)
class TableGroupBy(Operation):
    """Map the old and the new value of each change to their groups.

    ::

        a: x -> y, grouped by value     x: take a out        (two changes, to two partitions)
                                        y: put a in
        a: x -> x'                      x: a becomes a'      (one change)

    A value without a group (no pair, or None in it) is left out.
    """

    mapper: Callable[[Any, Any], tuple[Any, Any] | None]
    versioned: bool = False
    """Whether the table that enters is versioned: then only the latest value of a key counts."""

    def bind(self, node: NodeContext) -> Process:
        forward, fail, versioned = node.forward, node.fail, self.versioned
        grouped = _groups(self.mapper)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            new, old, latest = value
            if versioned and not latest:
                return None
            try:
                new_group, new_value = grouped(key, new)
                old_group, old_value = grouped(key, old)
            except Exception as error:
                return fail(error, key, new, timestamp, headers)
            if old_value is None:
                if new_value is not None:
                    forward(new_group, (new_value, None, latest), timestamp, headers)
                return None
            if new_value is not None and old_group == new_group:
                return forward(new_group, (new_value, old_value, latest), timestamp, headers)
            forward(old_group, (None, old_value, latest), timestamp, headers)
            if new_value is not None:
                forward(new_group, (new_value, None, latest), timestamp, headers)
            return None

        return process


_NO_GROUP = (None, None)


def _groups(
    mapper: Callable[[Any, Any], tuple[Any, Any] | None],
) -> Callable[[Any, Any], tuple[Any, Any]]:
    def grouped(key: Any, value: Any) -> tuple[Any, Any]:
        if value is None:
            return _NO_GROUP
        pair = mapper(key, value)
        if pair is None:
            return _NO_GROUP
        if type(pair) is not tuple or len(pair) != 2:
            check_pair(pair)
        group, grouped_value = pair
        return _NO_GROUP if group is None else (group, grouped_value)

    return grouped
