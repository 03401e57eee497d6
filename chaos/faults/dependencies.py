"""The schema registry is away and comes back: nothing is dropped, and the application resumes."""

from __future__ import annotations

import time
from collections.abc import Callable

from chaos.registry import Registry
from chaos.scene import Fault, NothingHappenedError, Scene, await_that

_NOTICE_SECONDS = 30.0
_LONGEST_AWAY = 5.0
_RESTARTS = "STATE REBALANCING"


def _away(
    begin: Callable[[Registry], None], end: Callable[[Registry], None]
) -> Callable[[Scene], str]:
    """Return a fault that counts if the application noticed it."""

    def inflict(scene: Scene) -> str:
        registry = scene.registry
        assert registry is not None, "the workload has one"
        before, began = _restarts(scene), time.monotonic()
        begin(registry)
        try:
            is_noticed = await_that(lambda: _restarts(scene) > before, _NOTICE_SECONDS)
            time.sleep(scene.chance.uniform(0.0, _LONGEST_AWAY))
        finally:
            end(registry)
        away = f"{time.monotonic() - began:.1f} s"
        if not is_noticed:
            msg = f"The application did not need the registry for {away}."
            raise NothingHappenedError(msg)
        return away

    return inflict


def _answer(status: int | None) -> Callable[[Registry], None]:
    def answer(registry: Registry) -> None:
        registry.failure = status

    return answer


def _restarts(scene: Scene) -> int:
    """Return how often the query of the application has failed."""
    return scene.supervisor.log.read_text(errors="replace").count(_RESTARTS)


FAULTS = tuple(
    Fault(kind, _away(begin, end), workload="framed_aggregate")
    for kind, begin, end in (
        ("registry-unavailable", _answer(503), _answer(None)),
        ("registry-unauthorized", _answer(401), _answer(None)),
        ("registry-refuses", Registry.refuse, Registry.accept),
    )
)
