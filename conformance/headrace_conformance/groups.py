"""Groups the scenarios that can run together, and names those that do not end as recorded."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TypeAlias

from headrace_conformance.build import Scenario
from headrace_conformance.compare import Recorded
from headrace_conformance.cuts import depends_on_clock
from headrace_conformance.fuzz import recorded
from headrace_conformance.scenarios import FOLDER, load_golden, load_scenario, scenario_names

Cases: TypeAlias = dict[str, tuple[Scenario, Recorded]]
"""Scenarios and their goldens, by name."""

LARGEST = 150
"""How many scenarios run in one query at most."""

_LONG_NAME = re.compile(r"[\w.-]{200,}")


@cache
def differing() -> dict[str, str]:
    """Return the scenarios that are meant to end otherwise on the runtime, and why in a word."""
    kinds = tomllib.loads((FOLDER / "on-the-runtime.toml").read_text("utf-8"))
    return {name: kind for kind, entry in kinds.items() for name in entry["scenarios"]}


def built(names: list[str] | None = None) -> Cases:
    """Return the scenarios that are not refused."""
    cases = {name: (load_scenario(name), load_golden(name)) for name in scenario_names(names)}
    return {name: case for name, case in cases.items() if "build_error" not in case[1]}


def random_programs() -> Cases:
    """Return the random programs that both libraries build."""
    return {
        f"fuzz/{number}": case
        for number, case in enumerate(recorded())
        if "build_error" not in case[1] and "failed" not in case[1]
    }


def ends_in_error(golden: Recorded) -> bool:
    """Return whether a scenario ends in an error."""
    return any("error" in step for step in golden["steps"])


def groups(
    cases: Mapping[str, tuple[Scenario, Recorded]], *, largest: int = LARGEST
) -> Iterator[Cases]:
    """Yield scenarios that can run together: those of equal settings, and clocks if that matters.

    Errors end a query, all dead letters of a query go to one topic, and a name that is as long as
    can be has no room for a mark: such scenarios run alone.
    """
    together: dict[str, list[str]] = {}
    for name, (scenario, golden) in cases.items():
        key = name if _is_alone(scenario, golden) else _key(scenario)
        together.setdefault(key, []).append(name)
    for names in together.values():
        count = -(-len(names) // largest)
        size = -(-len(names) // count)
        for start in range(0, len(names), size):
            yield {name: cases[name] for name in names[start : start + size]}


def _is_alone(scenario: Scenario, golden: Recorded) -> bool:
    return (
        ends_in_error(golden)
        or "dead_letter_queue" in scenario.get("config", {})
        or _LONG_NAME.search(json.dumps(scenario)) is not None
    )


def _key(scenario: Scenario) -> str:
    config = dict(scenario.get("config", {}))
    clock = config.pop("wall_clock", 0)
    key = json.dumps(config, sort_keys=True)
    if not depends_on_clock(scenario):
        return key
    steps = [step.get("advance_wall_clock", 0) for step in scenario["steps"]]
    return json.dumps([key, clock, steps])
