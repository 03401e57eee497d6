"""Runs one subtopology on one partition; no I/O, no clock of its own."""
