"""Runs coroutines on a clock of their own: whoever waits does so in no time, in a fixed order."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """Adds the time that the loop wants to wait to its clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        events = super().select(0)
        if not events and timeout:
            self.now += timeout
        assert events or timeout is not None, "nothing is left that could wake the loop"
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next call."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def loop_time() -> float:
    """Return the clock of the running loop."""
    return asyncio.get_running_loop().time()


async def inline(function: Any, /) -> Any:
    """Call a function here, in place of a thread."""
    return function()
