"""A virtual clock, and processes that run only when it says so: a seed decides everything."""

from __future__ import annotations

import threading
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any


class KilledError(BaseException):
    """The process was killed; nothing may catch this, as nothing can."""


class Scheduler:
    """Does what is due, in the order of a virtual time.

    Processes are threads, of which one runs at a time. A thread that must wait runs the due events
    until one wakes a process: most often the same one, without a change of threads.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0
        self.trace: list[str] | None = None
        """The trace of the run, if it is traced."""
        self.woken: Process | None = None
        """Whose turn it is next."""
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        self._steps_left = 0
        self._is_over = False
        self._failure: BaseException | None = None
        self._caller = threading.Lock()
        self._caller.acquire()

    def after(self, delay: int, call: Callable[[], None]) -> None:
        """Call a function after some ticks."""
        heappush(self._due, (self.now + delay, next(self._numbers), call))

    def run(self, most_steps: int) -> bool:
        """Run all due events; return whether they came to an end within the given steps."""
        self._steps_left = most_steps
        self.run_due(self._caller)
        if self._failure is not None:
            raise self._failure
        return not self._due

    def stop(self) -> None:
        """Do nothing more: threads that are still there may end."""
        self._is_over = True

    def run_due(self, turn: threading.Lock | None, process: Process | None = None) -> None:
        """Run the due events until it is a process's turn.

        Args:
            turn: The lock to wait for, if it is the turn of another thread; None ends this one.
            process: Whose thread this is.
        """
        if self._is_over:
            return
        while self._due and self._steps_left:
            self._steps_left -= 1
            self.now, _, call = heappop(self._due)
            try:
                call()
            except BaseException as error:  # raised again by `run`
                self._failure = error
                self._steps_left = 0
            woken, self.woken = self.woken, None
            if woken is not None:
                if woken is process:
                    return
                woken.turn.release()
                break
        else:
            if turn is self._caller:
                return
            self._caller.release()
        if turn is not None:
            turn.acquire()

    def say(self, who: str, what: str) -> None:
        """Add a line to the trace."""
        if self.trace is not None:
            self.trace.append(f"{self.now:7}  {who:<22} {what}")


class Process:
    """A thread that stands still until the scheduler wakes it.

    Args:
        scheduler: Whose clock it lives by.
        name: Its name in the trace.
        body: The function it runs.
        on_death: Called when it is killed.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        name: str,
        body: Callable[[Process], None],
        on_death: Callable[[], None] = lambda: None,
    ) -> None:
        self.scheduler = scheduler
        self.name = name
        self.is_alive = True
        self.error: BaseException | None = None
        """The unexpected error that ended it."""
        self.turn = threading.Lock()
        """Released when this thread may continue."""
        self._body = body
        self._on_death = on_death
        self._frozen_until = 0
        self._awaits = 0
        self._answer: Any = None
        self.turn.acquire()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        scheduler.after(0, lambda: self.wake(0, None))

    @property
    def is_frozen(self) -> bool:
        """Return whether it is stopped for now."""
        return self._frozen_until > self.scheduler.now

    def wait(self, arrange: Callable[[int], None]) -> Any:
        """Stand still until woken up, from within the process.

        Args:
            arrange: Gets the number of this wait, which `wake` must name; a later one is ignored.
        """
        if not self.is_alive:
            raise KilledError
        self._awaits += 1
        arrange(self._awaits)
        self.scheduler.run_due(self.turn, self)
        if not self.is_alive:
            raise KilledError
        return self._answer

    def sleep(self, delay: int) -> None:
        """Stand still for some ticks."""
        self.wait(lambda number: self.scheduler.after(delay, lambda: self.wake(number, None)))

    def wake(self, number: int, answer: Any) -> None:
        """Continue the thread, if it still waits for this; a frozen one does when it thaws."""
        if not self.is_alive or number != self._awaits:
            return
        if self.is_frozen:
            later = self._frozen_until - self.scheduler.now
            self.scheduler.after(later, lambda: self.wake(number, answer))
            return
        self._awaits += 1
        self._answer = answer
        self.scheduler.woken = self

    def freeze(self, delay: int) -> None:
        """Stop it for some ticks, as SIGSTOP and SIGCONT do."""
        self.scheduler.say(self.name, f"is stopped for {delay}")
        self._frozen_until = self.scheduler.now + delay

    def kill(self) -> None:
        """End it where it stands, from outside."""
        if self.is_alive:
            self.scheduler.say(self.name, "is killed")
            self.is_alive = False
            self._on_death()

    def die(self) -> None:
        """End it where it stands, from within."""
        self.kill()
        raise KilledError

    def clear_away(self) -> None:
        """End the thread, when the scheduler has come to its end."""
        self.is_alive = False
        if self._thread.is_alive():
            self.turn.release()
            self._thread.join()

    def _run(self) -> None:
        self.turn.acquire()
        try:
            if self.is_alive:
                self._body(self)
        except KilledError:
            pass
        except BaseException as error:  # the simulation reports it
            self.error = error
        self.is_alive = False
        self.scheduler.run_due(None)
