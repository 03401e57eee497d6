"""The disk is full: no file of a process may grow beyond a size, until there is room again."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from chaos.scene import Fault, NothingHappenedError, Scene, await_that
from chaos.steps import refusals

_NO_LIMIT = resource.RLIM_INFINITY
_MOST_BYTES = 1_000
_SHORTEST, _LONGEST = 1.0, 4.0
_REFUSE_SECONDS = 15.0
_TOO_LARGE = "File too large"

Choice = Callable[[Scene], list[int]]


def _full(choose: Choice, count: Callable[[Scene], int]) -> Callable[[Scene], str]:
    """Return a fault of some processes, which counts if one more of their writes was refused."""

    def inflict(scene: Scene) -> str:
        # A little room leaves files that are written in part.
        limit = scene.chance.choice([0, scene.chance.randint(1, _MOST_BYTES)])
        before, began = count(scene), time.monotonic()

        def is_refused() -> bool:
            return count(scene) > before

        with _limited(choose, scene, limit):
            time.sleep(scene.chance.uniform(_SHORTEST, _LONGEST))
            await_that(is_refused, _REFUSE_SECONDS)
        what = f"{limit} bytes for {time.monotonic() - began:.1f} s"
        if not is_refused():
            msg = f"No write was refused with {what}."
            raise NothingHappenedError(msg)
        return what

    return inflict


@contextmanager
def _limited(choose: Choice, scene: Scene, limit: int) -> Iterator[None]:
    pids = choose(scene)
    _limit(pids, limit)
    try:
        yield
    finally:
        _limit([*pids, *choose(scene)], _NO_LIMIT)  # what began meanwhile has its parent's limit


def _limit(pids: list[int], limit: int) -> None:
    for pid in pids:
        try:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, _NO_LIMIT))
        except ProcessLookupError:
            continue


def _reported_by_spark(scene: Scene) -> int:
    """Return how often the driver said that Spark could not write its checkpoint."""
    return scene.supervisor.log.read_text(errors="replace").count(_TOO_LARGE)


def _refused_by_sqlite(scene: Scene) -> int:
    return refusals(scene.supervisor.folder)


FAULTS = (
    Fault(
        "checkpoint-full", _full(lambda scene: scene.supervisor.session.jvm(), _reported_by_spark)
    ),
    Fault(
        "log-full",
        _full(lambda scene: scene.supervisor.session.workers(), _refused_by_sqlite),
        frozenset({"embedded"}),
    ),
)
