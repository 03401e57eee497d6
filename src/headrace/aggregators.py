"""Ready-made aggregations for `aggregate`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headrace.serdes.base import Serde

V = TypeVar("V")
A = TypeVar("A")


@dataclass(frozen=True)
class Aggregation(Generic[V, A]):
    """How values become an aggregate, ready to be given to `aggregate`."""

    initializer: Callable[[], A]
    aggregator: Callable[[Any, V, A], A]
    subtractor: Callable[[Any, V, A], A] | None = None
    """Takes a value out again; None where that cannot be done."""
    merger: Callable[[Any, A, A], A] | None = None
    """Joins two aggregates into one, for sessions."""
    serde: Serde[A] | None = None
    """The serde of the aggregate."""
