"""The operations: each handles one record at a time."""
