"""Rewrites of the graph, one per file; `lower` applies them in order."""
