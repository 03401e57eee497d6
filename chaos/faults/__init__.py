"""Everything that can go wrong, one file per family."""

from chaos.faults import (
    bad_input,
    brokers,
    checkpoint,
    clock,
    dependencies,
    disk,
    leadership,
    network,
    processes,
    steps,
)
from chaos.scene import Fault

FAMILIES: dict[str, tuple[Fault, ...]] = {
    "processes": processes.FAULTS,
    "leadership": leadership.FAULTS,
    "protocol": steps.FAULTS,
    "brokers": brokers.FAULTS,
    "network": network.FAULTS,
    "disk": disk.FAULTS,
    "checkpoint": checkpoint.FAULTS,
    "clock": clock.FAULTS,
    "bad-input": bad_input.FAULTS,
    "dependencies": dependencies.FAULTS,
}
"""All faults, by family."""

FAULTS: dict[str, Fault] = {fault.kind: fault for family in FAMILIES.values() for fault in family}
"""All faults, by kind."""
