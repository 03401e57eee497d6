"""Keep Python's cycle collector out of batches."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Look for cycles of objects after the block, not in it.

    A batch makes hundreds of thousands of records that are alive until its end: looking through
    them again and again takes a quarter of its time and finds nothing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
