"""How records travel between tasks: packed, and by grouping key."""
