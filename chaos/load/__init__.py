"""The running aggregate under a steady load with restarts: lag, memory, and what it counted."""
