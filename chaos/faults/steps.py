"""A process dies exactly at a step of the protocol."""

from __future__ import annotations

from collections.abc import Callable

from chaos.scene import Fault, NothingHappenedError, Scene, await_that
from chaos.steps import SPARK_STEPS, STEPS, VICTIMS, arm, disarm, has_fired

_REACH_SECONDS = 60.0
_MOST_PASSES = 3


def die_at(scene: Scene, step: str, victim: str, times: int = 1) -> str:
    """Kill a process at a step.

    Raises:
        NothingHappenedError: The step was not reached.
    """
    folder = scene.supervisor.folder
    arm(folder, step, victim, times)
    try:
        if not await_that(lambda: has_fired(folder), _REACH_SECONDS):
            msg = f"Step {step!r} was not reached within {_REACH_SECONDS:g} s."
            raise NothingHappenedError(msg)
    finally:
        disarm(folder)
    return victim


def _at(step: str) -> Callable[[Scene], str]:
    def inflict(scene: Scene) -> str:
        victim = scene.chance.choice(["worker", "worker", *VICTIMS])
        return die_at(scene, step, victim, scene.chance.randint(1, _MOST_PASSES))

    return inflict


FAULTS = tuple(Fault(step, _at(step), transactional=step not in SPARK_STEPS) for step in STEPS)


def _in_first_batch(scene: Scene) -> str:
    step, victim = scene.chance.choice(STEPS), scene.chance.choice(["all", *VICTIMS])
    return f"{step}, {die_at(scene, step, victim)}"


IN_FIRST_BATCH = Fault("in-first-batch", _in_first_batch, transactional=True)
"""For the start of a round: Spark does not write down where its first batch begins."""
