"""Everything that can go wrong, one file per family."""

from chaos.faults import (
    brokers,
    checkpoint,
    clock,
    disk,
    leadership,
    network,
    processes,
    steps,
)
from chaos.scene import Fault

FAULTS: dict[str, Fault] = {
    fault.kind: fault
    for family in (processes, leadership, steps, brokers, network, disk, checkpoint, clock)
    for fault in family.FAULTS
}
"""All faults, by kind."""
