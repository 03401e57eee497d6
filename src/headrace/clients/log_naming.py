"""Names the log of a client in the commands of its errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from headrace.brokers.opening import log_flags
from headrace.config import StreamsConfig
from headrace.errors import StreamsError

P = ParamSpec("P")
T = TypeVar("T")


def name_log(config: StreamsConfig, error: StreamsError) -> None:
    """Make the commands in an error use the log of a config."""
    error.command_flags = log_flags(config)


def naming_log(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return a method whose errors name the log; its object has a ``_config``."""

    @wraps(method)
    def named(self: Any, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        try:
            return method(self, *arguments, **keywords)
        except StreamsError as error:
            name_log(vars(self)["_config"], error)
            raise

    return named
