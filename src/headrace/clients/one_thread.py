"""Refuses a second thread that calls an object while a first one is inside it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from headrace.errors import StreamsError

P = ParamSpec("P")
T = TypeVar("T")


class OneThread:
    """The thread that is inside an object; it may call the object from within its own call."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._inside = ""

    def run(self, what: str, call: Callable[[], T]) -> T:
        """Return the result of ``call``.

        Raises:
            StreamsError: Another thread is inside; the message has the names of both.
        """
        if not self._lock.acquire(blocking=False):
            msg = (
                f"Thread {threading.current_thread().name!r} calls `{what}` while {self._inside}. "
                "Give each thread a consumer of its own; only `wakeup` may come from another."
            )
            raise StreamsError(msg)
        before = self._inside
        self._inside = f"thread {threading.current_thread().name!r} is inside `{what}`"
        try:
            return call()
        finally:
            self._inside = before
            self._lock.release()


def by_one_thread(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], T]:
    """Return a method that refuses a second thread; its object has a `OneThread`."""

    @wraps(method)
    def guarded(self: Any, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        one_thread: OneThread = vars(self)["_one_thread"]
        return one_thread.run(method.__name__, lambda: method(self, *arguments, **keywords))

    return guarded
