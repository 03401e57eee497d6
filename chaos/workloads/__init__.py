"""The workloads, by name."""

from __future__ import annotations

from chaos.contract import Workload
from chaos.workloads import (
    bad_input,
    cached_aggregate,
    foreign_key_join,
    framed_aggregate,
    outer_join,
    punctuation,
    read_back,
    rekeyed_aggregate,
    rekeyed_join,
    running_aggregate,
    windowed_suppress,
)

WORKLOADS: dict[str, Workload] = {
    module.WORKLOAD.name: module.WORKLOAD
    for module in (
        running_aggregate,
        cached_aggregate,
        rekeyed_aggregate,
        windowed_suppress,
        outer_join,
        rekeyed_join,
        foreign_key_join,
        punctuation,
        read_back,
        bad_input,
        framed_aggregate,
    )
}
