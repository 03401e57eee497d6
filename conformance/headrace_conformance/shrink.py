"""Makes a scenario that shows a difference as small as it can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy

from headrace_conformance.grammar import Scenario

_KEEP_THE_KIND = ("filter", "filter_not", "map_values", "peek", "flat_map_values", "repartition")
"""Operations whose input can take the place of their output."""


def shrunk(scenario: Scenario, still_differs: Callable[[Scenario], bool]) -> Scenario:
    """Return the smallest scenario found that still differs, by leaving out one thing at a time."""
    progress = True
    while progress:
        progress = False
        for candidate in _smaller(scenario):
            if still_differs(candidate):
                scenario, progress = candidate, True
                break
    return scenario


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    yield from _with_fewer_steps(scenario)
    yield from _with_fewer_operations(scenario)
    for name in scenario.get("config", {}):
        smaller = deepcopy(scenario)
        del smaller["config"][name]
        yield smaller
    for number, operation in enumerate(scenario["operations"]):
        for name in ("named", "store", "materialized", "emit", "in_memory"):
            if name in operation:
                smaller = deepcopy(scenario)
                del smaller["operations"][number][name]
                yield smaller


def _with_fewer_steps(scenario: Scenario) -> Iterator[Scenario]:
    count = len(scenario["steps"])
    size = count
    while size := size // 2:
        for start in range(0, count, size):
            smaller = deepcopy(scenario)
            del smaller["steps"][start : start + size]
            yield smaller


def _with_fewer_operations(scenario: Scenario) -> Iterator[Scenario]:
    used = {name for operation in scenario["operations"] for name in operation["in"]}
    for number, operation in enumerate(scenario["operations"]):
        smaller = deepcopy(scenario)
        del smaller["operations"][number]
        if operation["id"] not in used:
            yield smaller
        elif operation["op"] in _KEEP_THE_KIND and "value" not in operation:
            for other in smaller["operations"]:
                other["in"] = [
                    operation["in"][0] if name == operation["id"] else name for name in other["in"]
                ]
            yield smaller
    for number, source in enumerate(scenario["sources"]):
        if source["id"] not in used:
            smaller = deepcopy(scenario)
            del smaller["sources"][number]
            smaller["steps"] = [s for s in smaller["steps"] if s.get("pipe") != source["topic"]]
            yield smaller
