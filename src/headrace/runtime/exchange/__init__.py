"""Move records between tasks: packed, and by grouping key."""
