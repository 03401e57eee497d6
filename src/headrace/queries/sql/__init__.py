"""SQL over stores, by virtual tables of SQLite."""

from headrace.queries.sql.columns import SqlValue
from headrace.queries.sql.engine import OpenSource, SqlEngine, SqlParameters, SqlResult
from headrace.queries.sql.tables import RowSource

__all__ = ["OpenSource", "RowSource", "SqlEngine", "SqlParameters", "SqlResult", "SqlValue"]
