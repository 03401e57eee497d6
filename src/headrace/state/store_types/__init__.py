"""One class per type of store."""
