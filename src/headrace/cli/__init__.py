"""The command line: ``headrace``."""
