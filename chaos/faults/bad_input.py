"""Bursts of bad records, an input that is quiet, and a clock that is wrong for some seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

from chaos.faults.clock import clocks_of
from chaos.scene import Fault, NoRecoveryError, NothingHappenedError, Scene, await_that
from chaos.steps import leap
from chaos.workloads.bad_input import KINDS, bad_record
from chaos.workloads.rekeyed_join import BUFFERED_RECORDS, lonely_clicks

_SMALLEST, _LARGEST = 5, 60
_FIRST_NUMBER = 10_000_000
"""Numbers from here on are of injected records."""
_LEAP_MS = 30 * 24 * 3_600_000
_LEAP_SECONDS = 3.0
_TOLERATED_MS = 120_000
_PLAN_SECONDS = 15.0
_QUIET_BURST = 20 * BUFFERED_RECORDS
_QUIET_SECONDS = 3.0


def _burst(kind: str) -> Callable[[Scene], str]:
    def inflict(scene: Scene) -> str:
        count = scene.chance.randint(_SMALLEST, _LARGEST)
        first = _FIRST_NUMBER + scene.feeder.injected
        numbers = range(first, first + count)
        scene.feeder.inject(bad_record(kind, scene.seed, number) for number in numbers)
        return f"{count} records"

    return inflict


def _quiet(scene: Scene) -> str:
    """Write far more to one input of a join than a task buffers, and nothing to the other."""
    first = _FIRST_NUMBER + scene.feeder.injected
    numbers = range(first, first + _QUIET_BURST)
    scene.feeder.inject(lonely_clicks(scene.seed, scene.feeder.sent, numbers))
    with scene.feeder.paused():
        time.sleep(_QUIET_SECONDS)
    return f"{_QUIET_BURST} records"


def _leap(scene: Scene) -> str:
    """Set the system clock 30 days ahead for 3 s; batches must not follow it.

    Raises:
        NoRecoveryError: A batch has that time, or the time of batches stands still after it.
    """
    before = clocks_of(scene)[-1:]

    def has_planned() -> bool:
        return clocks_of(scene)[-1:] > before

    leap(scene.supervisor.folder, _LEAP_MS)
    try:
        time.sleep(_LEAP_SECONDS)
        is_planned = await_that(has_planned, _PLAN_SECONDS)
    finally:
        leap(scene.supervisor.folder, 0)
    if not is_planned:
        msg = "No batch was planned while the clock was wrong."
        raise NothingHappenedError(msg)
    before = clocks_of(scene)[-1:]
    if not await_that(has_planned, _PLAN_SECONDS):
        msg = "The clock of batches stands still."
        raise NoRecoveryError(msg)
    ahead = clocks_of(scene)[-1] - scene.supervisor.clock_ms()
    if ahead > _TOLERATED_MS:
        msg = f"The clock of batches is {ahead / 1000:.0f} s ahead."
        raise NoRecoveryError(msg)
    return f"{_LEAP_MS // 86_400_000} days for {_LEAP_SECONDS:g} s"


FAULTS = (
    *(Fault(kind, _burst(kind), workload="bad_input") for kind in KINDS),
    Fault("clock-leap", _leap, workload="bad_input"),
    Fault("quiet-input", _quiet, workload="rekeyed_join"),
)
