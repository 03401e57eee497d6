"""The running aggregate with the cache it has by default: a batch shows the last total of a key."""

from __future__ import annotations

from dataclasses import replace

from chaos import oracle
from chaos.workloads.running_aggregate import WORKLOAD as RUNNING_AGGREGATE

WORKLOAD = replace(
    RUNNING_AGGREGATE,
    name="cached_aggregate",
    settings={},
    expected=oracle.cached_aggregate,
    observed=oracle.cached_aggregate_seen,
    twins=None,
)
