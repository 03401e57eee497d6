"""Refuse functions whose call does nothing by itself: asynchronous ones, and generators."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from headrace.errors import TopologyError


def check_plain(function: Callable[..., Any] | None, what: str, *, may_yield: bool = True) -> None:
    """Check that a call of a function does its work before it returns.

    Args:
        function: A function or another callable.
        what: Its name in the error, at the beginning of a sentence.
        may_yield: Whether the caller iterates over the result, so that it may be a generator.

    Raises:
        TopologyError: It does not.
    """
    if isinstance(function, type):
        return
    calls = (function, getattr(function, "__call__", None))  # noqa: B004  # also of its class
    if any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in calls):
        msg = (
            f"{what} is asynchronous, so a call of it does nothing. Make it with `def`; if it must "
            "wait for a coroutine, call `asyncio.run` in it."
        )
        raise TopologyError(msg)
    if not may_yield and any(map(inspect.isgeneratorfunction, calls)):
        msg = f"{what} is a generator, so a call of it does nothing. Use `return` for `yield`."
        raise TopologyError(msg)
