"""The embedded log: topics in one SQLite file."""

from headrace.brokers.embedded.log import EmbeddedLog

__all__ = ["EmbeddedLog"]
