"""SQL over stores, by virtual tables of SQLite."""

from headrace.queries.sql.engine import OpenSource, SqlEngine
from headrace.queries.sql.tables import RowSource
from headrace.queries.tables.sql_values import SqlParameters, SqlResult, SqlValue

__all__ = ["OpenSource", "RowSource", "SqlEngine", "SqlParameters", "SqlResult", "SqlValue"]
