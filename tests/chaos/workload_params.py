"""The workloads of each tier: a few in `make test`, all in `make nightly`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

FEW = ("running_aggregate", "outer_join", "windowed_suppress")
"""Of a plain store, of two streams with a repartition, and of windows."""


def by_tier(cases: Iterable[Any]) -> list[Any]:
    """Return the cases of workloads, those of most workloads marked for `make nightly`.

    A case is the name of a workload, or a tuple that begins with it.
    """
    return [
        case
        if (values := case if isinstance(case, tuple) else (case,))[0] in FEW
        else pytest.param(*values, marks=pytest.mark.nightly("faults"))
        for case in cases
    ]
