"""The time of day jumps."""

from __future__ import annotations

import json

from chaos.faults.checkpoint import newest
from chaos.scene import Fault, NothingHappenedError, Scene, await_that

_FORWARDS_MS = 3_600_000
_BACKWARDS_MS = 10_000  # for so long nothing is due
_SMALLEST_MS = 3_000
_SHOW_SECONDS = 15.0


def _step(scene: Scene, milliseconds: int) -> str:
    """Move the clock, and check that a batch is planned with the new time.

    A clock that was put back stands still in the batches, until it has caught up.
    """
    before = clocks_of(scene)[-1:]
    shown = scene.supervisor.step_clock(milliseconds)

    def is_seen() -> bool:
        clocks = clocks_of(scene)
        stands_still = clocks[-1:] == clocks[-2:-1]
        return stands_still if before > [shown] else clocks[-1:] >= [shown]

    if not await_that(is_seen, _SHOW_SECONDS):
        msg = f"No batch was planned with a clock of {milliseconds / 1000:+.1f} s."
        raise NothingHappenedError(msg)
    return f"{milliseconds / 1000:+.1f} s"


def clocks_of(scene: Scene) -> list[int]:
    """Return the time of day of the last two batches, if there are that many."""
    folder = scene.supervisor.checkpoint / "offsets"
    last = newest(folder)
    numbers = [] if last is None else [int(last.name) - 1, int(last.name)]
    found = []
    for number in numbers:
        try:
            lines = (folder / str(number)).read_text().splitlines()
            found.append(int(json.loads(lines[-1])["clock"]))
        except (FileNotFoundError, IndexError, KeyError, ValueError):
            continue  # not there any more, or not yet whole
    return found


def _between(scene: Scene, most: int) -> int:
    return scene.chance.randint(_SMALLEST_MS, most)


FAULTS = (
    Fault("clock-forwards", lambda scene: _step(scene, _between(scene, _FORWARDS_MS))),
    Fault("clock-backwards", lambda scene: _step(scene, -_between(scene, _BACKWARDS_MS))),
)
