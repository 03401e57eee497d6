"""The number of random examples of a property test: all in `make nightly`, else a quarter."""

from __future__ import annotations

_SHARE = 4

is_thorough = False
"""Whether all examples are tried; set before test modules are imported."""


def examples(count: int) -> int:
    """Return how many of ``count`` examples this run tries."""
    return count if is_thorough else max(5, count // _SHARE)
