"""The time of day jumps."""

from __future__ import annotations

from chaos.scene import Fault, Scene

_FORWARDS_MS = 3_600_000
_BACKWARDS_MS = 10_000  # for so long nothing is due


def _step(scene: Scene, milliseconds: int) -> str:
    scene.supervisor.step_clock(milliseconds)
    return f"{milliseconds / 1000:+.1f} s"


FAULTS = (
    Fault("clock-forwards", lambda scene: _step(scene, scene.chance.randint(1, _FORWARDS_MS))),
    Fault("clock-backwards", lambda scene: _step(scene, -scene.chance.randint(1, _BACKWARDS_MS))),
)
