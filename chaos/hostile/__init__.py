"""Hostile records through every handler, in this process: each drop is counted."""
