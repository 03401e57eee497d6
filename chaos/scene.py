"""The target of a fault: the application, its topics, and the writer of its input."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from chaos.feeding import Feeder
from chaos.registry import Registry
from chaos.sites import Site
from chaos.supervisor import Supervisor

T = TypeVar("T")
_PAUSE_SECONDS = 0.02


class NothingHappenedError(Exception):
    """A fault that took no effect; it does not count."""


class NoRecoveryError(Exception):
    """The application did not do what it must after a fault."""


@dataclass(frozen=True)
class Scene:
    """One running round."""

    site: Site
    supervisor: Supervisor
    feeder: Feeder
    outputs: tuple[str, ...]
    """The topics that the application writes."""
    chance: Random
    """Makes the random choices of a fault."""
    seed: int = 0
    registry: Registry | None = None
    """The schema registry, if the workload has one."""
    turns: Counter[Any] = field(default_factory=Counter)
    """How often there was a choice among the same."""

    def next_of(self, choices: Sequence[T]) -> T:
        """Return one of some choices: the first by the seed, then all in turn.

        So rounds with consecutive seeds choose each of them.
        """
        turn = self.seed + self.turns[tuple(choices)]
        self.turns[tuple(choices)] += 1
        return choices[turn % len(choices)]


@dataclass(frozen=True)
class Fault:
    """A fault that happens, and passes."""

    kind: str
    inflict: Callable[[Scene], str]
    """Lets it happen and pass; returns what exactly it was, or raises `NothingHappenedError`."""
    brokers: frozenset[str] = field(default=frozenset({"embedded", "kafka", "cluster"}))
    """Where it can happen."""
    workload: str | None = None
    """The only workload that it is for, if there is one."""
    transactional: bool = False
    """Whether it is only for applications that write transactions."""


def await_that(is_so: Callable[[], bool], seconds: float) -> bool:
    """Wait for a condition; return whether it became true."""
    give_up = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > give_up:
            return False
        time.sleep(_PAUSE_SECONDS)
    return True
