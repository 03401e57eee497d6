"""Processes of the application die at once, or stand still for some seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

from chaos.scene import Fault, NothingHappenedError, Scene, await_that

_START_SECONDS = 60.0
_LONGEST_STOP = 4.0

Choice = Callable[[Scene], list[int]]


def _jvm(scene: Scene) -> list[int]:
    return scene.supervisor.session.jvm()


def _worker(scene: Scene) -> list[int]:
    workers = scene.supervisor.session.workers()
    return [scene.chance.choice(workers)] if workers else []


def _driver(scene: Scene) -> list[int]:
    return [scene.supervisor.session.driver] if scene.supervisor.is_up() else []


def _all(scene: Scene) -> list[int]:
    return scene.supervisor.session.pids()


def _found(scene: Scene, choose: Choice) -> list[int]:
    found: list[int] = []

    def is_there() -> bool:
        found[:] = choose(scene)
        return bool(found)

    await_that(is_there, _START_SECONDS)
    return found


def _kill(choose: Choice) -> Callable[[Scene], str]:
    def inflict(scene: Scene) -> str:
        killed = scene.supervisor.session.kill(_found(scene, choose))
        if not killed:
            raise _nobody()
        return f"{len(killed)} killed"

    return inflict


def _stop(choose: Choice) -> Callable[[Scene], str]:
    def inflict(scene: Scene) -> str:
        session, found = scene.supervisor.session, _found(scene, choose)
        seconds = scene.chance.uniform(0.1, _LONGEST_STOP)
        stopped = session.stop(found)
        try:
            time.sleep(seconds)
        finally:
            woken = session.resume(stopped)
        if not woken:
            raise _nobody()
        return f"{seconds:.1f} s"

    return inflict


def _nobody() -> NothingHappenedError:
    return NothingHappenedError("No such process lived.")


FAULTS = (
    Fault("kill-jvm", _kill(_jvm)),
    Fault("kill-worker", _kill(_worker)),
    Fault("kill-driver", _kill(_driver)),
    Fault("kill-all", _kill(_all)),
    Fault("stop-jvm", _stop(_jvm)),
    Fault("stop-worker", _stop(_worker)),
    Fault("stop-driver", _stop(_driver)),
)
