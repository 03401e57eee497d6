"""The HTTP server of an instance."""

from headrace.queries.server.application import QueryApp, create_app
from headrace.queries.server.server import QueryServer

__all__ = ["QueryApp", "QueryServer", "create_app"]
