"""Other programs of an example, each with input of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from headrace.examples.feeding import FeedRecord


@dataclass(frozen=True)
class Variant:
    """The content of a module ``variants.py`` for each name; it is the feed of the variant, too."""

    program: str
    """Its program: a module of the example and a name there, such as ``app:global_app``."""
    TOPICS: Mapping[str, int]
    """The input topics, with their partition counts."""
    feed: Callable[[], Iterator[FeedRecord]]
    PER_SECOND: float = 10
    beside: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Opens what the program needs besides its log, for the time of a run."""
