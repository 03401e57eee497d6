"""Run seeds of the simulation: ``python -m chaos.model --count 5000``, or one with its trace."""

from __future__ import annotations

import argparse
import sys
import time

from chaos.model.application import Build
from chaos.model.mutants import AT_LEAST_ONCE
from chaos.model.simulation import BrokenPromiseError, Simulation, run

_BUILDS: dict[str, Build | None] = {"exactly_once_v2": None, "at_least_once": AT_LEAST_ONCE}


def main() -> int:
    """Run what was asked for; return 1 if a promise is broken."""
    parser = argparse.ArgumentParser(prog="python -m chaos.model", description=__doc__)
    parser.add_argument("--count", type=int, help="how many seeds to run")
    parser.add_argument("--seed", type=int, default=0, help="the first seed, or the only one")
    parser.add_argument("--guarantee", choices=tuple(_BUILDS), default="exactly_once_v2")
    arguments = parser.parse_args()
    build = _BUILDS[arguments.guarantee]
    if arguments.count is None:
        return _show(arguments.seed, build)
    started, failed, repeated = time.monotonic(), 0, 0
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        try:
            repeated += run(seed, build)
        except BrokenPromiseError as error:
            failed += 1
            print(str(error).partition("\n")[0])
    seconds = time.monotonic() - started
    print(f"{arguments.count} runs from seed {arguments.seed}: {failed} failed ({seconds:.0f} s).")
    if repeated:
        print(f"{repeated} records were there again, all of batches that were retried.")
    return 1 if failed else 0


def _show(seed: int, build: Build | None) -> int:
    simulation = Simulation(seed, build, traced=True)
    try:
        simulation.run()
    except BrokenPromiseError as error:
        outcome, code = str(error), 1
    else:
        outcome, code = f"Seed {seed}: every promise was kept.", 0
    print("\n".join(simulation.scheduler.trace or ()))
    print(outcome)
    return code


if __name__ == "__main__":
    sys.exit(main())
