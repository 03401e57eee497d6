"""Names the parameters of tests."""

from __future__ import annotations

import re


def named(value: object) -> str:
    """Return what an object is, without its address: that differs in each process."""
    return re.sub(r" at 0x\w+", "", str(value))
