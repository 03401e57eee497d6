"""The threads in which routes ask the broker, apart from those that read the copy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from headrace.queries.problems import ProblemCode, QueryProblemError

MOST_AT_ONCE = 2
MOST_WAITING = 4
"""How many questions wait for a thread; a broker that is away holds each for up to a minute."""

T = TypeVar("T")


class BrokerWork:
    """Asks the broker in threads of its own. The event loop of the server uses it."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(MOST_AT_ONCE, "headrace-broker")
        self._under_way = 0

    async def run(self, ask: Callable[[], T]) -> T:
        """Return what a function returns.

        Raises:
            QueryProblemError: Too many questions are under way.
        """
        if self._under_way >= MOST_AT_ONCE + MOST_WAITING:
            msg = "Too many requests wait for the broker. Ask again soon."
            raise QueryProblemError(ProblemCode.TOO_MANY_QUERIES, msg, retry_after_ms=1_000)
        self._under_way += 1
        # A caller who goes away stops no thread: the question counts until it ends.
        running = asyncio.get_running_loop().run_in_executor(self._threads, ask)
        running.add_done_callback(self._note_end)
        return await asyncio.shield(running)

    def _note_end(self, _running: asyncio.Future[Any]) -> None:
        self._under_way -= 1
