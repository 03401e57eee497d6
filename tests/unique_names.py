"""Names for topics, groups and applications on a broker that all tests share."""

from __future__ import annotations

import os
from itertools import count

_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw")
_NUMBERS = count()


def unique(name: str) -> str:
    """Return a name that begins as given and that no other test of the run gets."""
    return f"{name}-{_WORKER}-{next(_NUMBERS)}"
