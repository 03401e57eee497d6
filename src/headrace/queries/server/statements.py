"""Runs SQL statements of a server: some at once, some that wait, and the others are refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.sql.engine import SECONDS

MOST_STATEMENTS = 4
"""How many statements run at once; others wait."""
MOST_WAITING = 32
"""How many statements may wait; others are refused."""

T = TypeVar("T")


class Statements:
    """The threads in which statements run, apart from those of the reads that they wait for.

    The event loop of the server uses it.

    Args:
        seconds: How long a statement may take, the time included in which it waits for a thread.
        clock: The time in seconds.
    """

    def __init__(
        self, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds, self._clock = seconds, clock
        self._threads = ThreadPoolExecutor(MOST_STATEMENTS, "headrace-sql")
        self._under_way = 0

    async def run(self, statement: Callable[[float], T]) -> T:
        """Return the result of a statement, which gets the time when it must end.

        Raises:
            QueryProblemError: Too many statements wait, or the statement has waited too long.
        """
        if self._under_way >= MOST_STATEMENTS + MOST_WAITING:
            msg = (
                f"{MOST_WAITING} statements wait already. Ask again soon, or ask another instance."
            )
            raise QueryProblemError(ProblemCode.TOO_MANY_QUERIES, msg, retry_after_ms=1_000)
        deadline = self._clock() + self._seconds

        is_left = False

        def begin() -> T:
            if is_left or self._clock() >= deadline:
                raise _waited_too_long(self._seconds)
            return statement(deadline)

        self._under_way += 1
        # A caller who goes away stops no thread: a statement counts until it ends.
        running = asyncio.get_running_loop().run_in_executor(self._threads, begin)
        running.add_done_callback(self._note_end)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            is_left = True
            raise

    def _note_end(self, running: asyncio.Future[T]) -> None:
        self._under_way -= 1
        if not running.cancelled():
            running.exception()  # a caller who went away does not look at it


def _waited_too_long(seconds: float) -> QueryProblemError:
    msg = f"Others ran for {seconds:g} s, and the statement did not begin. Ask again soon."
    return QueryProblemError(ProblemCode.TIMEOUT, msg, retry_after_ms=1_000)
