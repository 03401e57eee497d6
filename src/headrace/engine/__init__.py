"""Runs one sub-topology on one partition; no I/O, no clock of its own."""
