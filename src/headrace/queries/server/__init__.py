"""The HTTP server of an instance."""

from headrace.queries.server.application import QueryApp, create_app
from headrace.queries.server.server import FIRST_PORT, LAST_PORT, QueryServer

__all__ = ["FIRST_PORT", "LAST_PORT", "QueryApp", "QueryServer", "create_app"]
