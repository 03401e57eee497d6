"""Decide what the next batch reads, and check that a query may start."""
