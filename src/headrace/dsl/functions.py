"""Checks the signatures of user functions, and which of them have the key as an argument."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from headrace.errors import TopologyError
from headrace.processors.plain_functions import check_plain


def wants_key(function: Callable[..., Any], short: int, *, step: str) -> bool:
    """Return whether a function has the key as an argument before its other ones.

    ``short`` is the number of its arguments without the key.

    Raises:
        TopologyError: It accepts neither number of arguments.
    """
    if not callable(function):
        msg = f"Step {step!r} was given {function!r}, which is not a function."
        raise TopologyError(msg)
    check_plain(function, f"The function of step {step!r}")
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return False  # A builtin without a signature has no key.
    if _accepts(signature, short):
        return False
    if _accepts(signature, short + 1):
        return True
    msg = (
        f"The function of step {step!r} takes {signature}, but it is called with {short} "
        f"arguments, or with {short + 1} if it wants the key first."
    )
    raise TopologyError(msg)


def with_key(function: Callable[..., Any], short: int, *, step: str) -> Callable[..., Any]:
    """Return a function that has the key as its first argument and calls ``function``."""
    if wants_key(function, short, step=step):
        return function
    if short == 1:
        return lambda _key, value: function(value)
    return lambda _key, left, right: function(left, right)


def checked_arity(
    function: Callable[..., Any], arguments: int, *, step: str, may_yield: bool = True
) -> None:
    """Check that a function accepts this number of arguments, and works when it is called.

    Raises:
        TopologyError: It does not.
    """
    if not callable(function):
        msg = f"Step {step!r} was given {function!r}, which is not a function."
        raise TopologyError(msg)
    check_plain(function, f"The function of step {step!r}", may_yield=may_yield)
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return
    if not _accepts(signature, arguments):
        msg = (
            f"The function of step {step!r} takes {signature}, "
            f"but it is called with {arguments} arguments."
        )
        raise TopologyError(msg)


def _accepts(signature: inspect.Signature, arguments: int) -> bool:
    try:
        signature.bind(*([None] * arguments))
    except TypeError:
        return False
    return True
