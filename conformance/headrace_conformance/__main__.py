"""Runs scenarios on Headrace and prints how they compare: ``python -m headrace_conformance``."""

from __future__ import annotations

import argparse
import logging
import sys
import traceback
from collections import Counter

from headrace_conformance.compare import behaviour_differences, naming_differences
from headrace_conformance.run import run_scenario
from headrace_conformance.scenarios import load_golden, load_scenario, scenario_names


def main(arguments: list[str] | None = None) -> int:
    """Run the scenarios asked for and return how many differ."""
    parser = argparse.ArgumentParser(prog="headrace_conformance", description=__doc__)
    parser.add_argument("names", nargs="*", help="scenarios or chapters; all if left out")
    parser.add_argument("--quiet", action="store_true", help="print the table only")
    options = parser.parse_args(arguments)
    # Scenarios fail on purpose; what the engine logs about it says nothing here.
    logging.disable()
    total: Counter[str] = Counter()
    passed: Counter[str] = Counter()
    for name in scenario_names(options.names):
        chapter = name.partition("/")[0]
        differences = _differences(name)
        total[chapter] += 1
        passed[chapter] += not differences
        if differences and not options.quiet:
            _print(f"{name}\n" + "\n".join(f"  {line}" for line in differences))
    for chapter in total:
        _print(f"{chapter:22} {passed[chapter]:3} of {total[chapter]:3}")
    _print(f"{'all':22} {passed.total():3} of {total.total():3}")
    return total.total() - passed.total()


def _differences(name: str) -> list[str]:
    golden = load_golden(name)
    try:
        result = run_scenario(load_scenario(name))
    except Exception:
        return [f"stopped: {traceback.format_exc().splitlines()[-1]}"]
    differences = behaviour_differences(result, golden)
    return differences + [d for d in naming_differences(result, golden) if d not in differences]


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(min(main(), 1))
