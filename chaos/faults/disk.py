"""The disk is full: no file of a process may grow beyond a size, until there is room again."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from chaos.scene import Fault, Scene

_NO_LIMIT = resource.RLIM_INFINITY
_MOST_BYTES = 1_000


def _full(choose: Callable[[Scene], list[int]]) -> Callable[[Scene], str]:
    def inflict(scene: Scene) -> str:
        # A little room leaves files that are written in part.
        limit = scene.chance.choice([0, scene.chance.randint(1, _MOST_BYTES)])
        seconds = scene.chance.uniform(1.0, 4.0)
        with _limited(choose(scene), limit):
            time.sleep(seconds)
        return f"{limit} bytes for {seconds:.1f} s"

    return inflict


@contextmanager
def _limited(pids: list[int], limit: int) -> Iterator[None]:
    _limit(pids, limit)
    try:
        yield
    finally:
        _limit(pids, _NO_LIMIT)


def _limit(pids: list[int], limit: int) -> None:
    for pid in pids:
        try:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, _NO_LIMIT))
        except ProcessLookupError:
            continue


FAULTS = (
    Fault("checkpoint-full", _full(lambda scene: scene.supervisor.session.jvm())),
    Fault(
        "log-full",
        _full(lambda scene: scene.supervisor.session.workers()),
        frozenset({"embedded"}),
    ),
)
