"""Run seeds of the model: ``python -m chaos.queries_model --count 5000``, or one with its trace."""

from __future__ import annotations

import argparse
import sys
import time

from chaos.queries_model.simulation import BrokenPromiseError, Simulation, run


def main() -> int:
    """Run the seeds; return 1 if an invariant does not hold."""
    parser = argparse.ArgumentParser(prog="python -m chaos.queries_model", description=__doc__)
    parser.add_argument("--count", type=int, help="how many seeds to run")
    parser.add_argument("--seed", type=int, default=0, help="the first seed, or the only one")
    arguments = parser.parse_args()
    if arguments.count is None:
        return _show(arguments.seed)
    started, failed, shown = time.monotonic(), 0, 0
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        try:
            shown += run(seed)
        except BrokenPromiseError as error:
            failed += 1
            print(error)
    seconds = time.monotonic() - started
    print(
        f"{arguments.count} runs from seed {arguments.seed}: {failed} failed, "
        f"{shown} snapshots followed another ({seconds:.0f} s)."
    )
    return 1 if failed else 0


def _show(seed: int) -> int:
    simulation = Simulation(seed, traced=True)
    try:
        simulation.run()
    except BrokenPromiseError as error:
        outcome, code = str(error), 1
    else:
        outcome, code = f"Seed {seed}: every invariant holds.", 0
    print("\n".join(simulation.trace or ()))
    print(outcome)
    return code


if __name__ == "__main__":
    sys.exit(main())
