"""Threads of a campaign."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from random import Random

from chaos.queries.asking import Asker
from chaos.queries.judging import Judge
from chaos.queries.processes import Kept


class Worker(threading.Thread, ABC):
    """A thread that works until it is stopped.

    Args:
        name: Its name.
        over: Set when it should stop.
        on_error: Called with an error that nobody expects.
        pause: How many seconds it waits between two steps.
    """

    def __init__(
        self,
        name: str,
        over: threading.Event,
        on_error: Callable[[BaseException], None],
        pause: float,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._over = over
        self._on_error = on_error
        self._pause = pause

    def run(self) -> None:
        try:
            while not self._over.wait(self._pause):
                self.step()
        except BaseException as error:
            self._on_error(error)
        finally:
            self.close()

    def close(self) -> None:
        """Release what it has."""

    @abstractmethod
    def step(self) -> None:
        """Do one thing."""


class AskingWorker(Worker):
    """A worker that asks instances.

    Args:
        name: Its name, which decides what it asks.
        judge: Compares.
        instances: The instances to ask.
        over: Set when it should stop.
        on_error: Called with an error that nobody expects.
        pause: How many seconds it waits between two steps.
    """

    def __init__(
        self,
        name: str,
        judge: Judge,
        instances: Sequence[Kept],
        over: threading.Event,
        on_error: Callable[[BaseException], None],
        pause: float = 0.0,
    ) -> None:
        super().__init__(name, over, on_error, pause)
        self._judge = judge
        self._instances = instances
        self._chance = Random(name)  # repeatable
        self._asker = Asker(judge)

    def close(self) -> None:
        self._asker.close()

    def _awake(self) -> list[Kept]:
        """Return the instances that do not stand still: no answer comes from these."""
        return [each for each in self._instances if not each.stands_still]

    def _any(self) -> Kept:
        return self._chance.choice(self._awake())
