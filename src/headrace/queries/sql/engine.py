"""Answers SQL: one statement that only reads, in limits of time, rows and memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeAlias

import apsw

from headrace.errors import QueryError
from headrace.queries.catalog import QueryableStore
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.sql.tables import (
    HeavyStatementError,
    RowSource,
    StatementSource,
    StoreTable,
    TableModule,
)
from headrace.queries.tables.sql_values import SqlParameters, SqlResult, SqlValue
from headrace.queries.tables.value_fields import free_name

OpenSource: TypeAlias = Callable[[frozenset[str]], RowSource]
"""Returns the rows of the named stores, all at one snapshot."""

ROW_LIMIT = 10_000
SECONDS = 5.0
QUICK_SECONDS = 0.005
MEMORY = 256 << 20
"""How many bytes all statements of a process may need together."""
RESULT_BYTES = 64 << 20
"""How many bytes of text and blobs an answer may hold."""

_STEPS_BETWEEN_CHECKS = 200
_LIMITS = {
    apsw.SQLITE_LIMIT_LENGTH: 16 << 20,
    apsw.SQLITE_LIMIT_SQL_LENGTH: 64 << 10,
    apsw.SQLITE_LIMIT_EXPR_DEPTH: 100,
    apsw.SQLITE_LIMIT_COMPOUND_SELECT: 50,
    apsw.SQLITE_LIMIT_VDBE_OP: 100_000,
    apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1000,
    apsw.SQLITE_LIMIT_VARIABLE_NUMBER: 1000,
    apsw.SQLITE_LIMIT_ATTACHED: 0,
    apsw.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_HARMLESS_TABLES = {"json_each", "json_tree"}
_FORBIDDEN_FUNCTIONS = {"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"}


class SqlEngine:
    """Runs SQL over stores: one table per store, under the store's name.

    It may be used by several threads at the same time.

    Args:
        stores: The stores. SQL does not tell upper case from lower: of two names that differ in
            nothing else, the second gets an underscore behind it.
    """

    def __init__(self, stores: Iterable[QueryableStore]) -> None:
        self._tables: dict[str, StoreTable] = {}
        for store in sorted(stores, key=lambda each: each.name):
            self._tables[free_name(store.name, self._tables)] = StoreTable(store)
        self._idle: list[_Connection] = []
        """The connections that no statement uses; as many as ever ran at once."""

    @property
    def tables(self) -> Mapping[str, tuple[str, ...]]:
        """The columns of each table that ``SELECT *`` shows."""
        return {
            name: tuple(each.name for each in table.columns.columns if not each.is_hidden)
            for name, table in self._tables.items()
        }

    def run(
        self,
        text: str,
        params: SqlParameters,
        open_source: OpenSource,
        *,
        row_limit: int = ROW_LIMIT,
        seconds: float = SECONDS,
        deadline: float | None = None,
    ) -> SqlResult:
        """Return the rows of one statement.

        Args:
            text: The statement.
            params: The values of ``?``, in their order, or of ``:name``, by name.
            open_source: Called once, before the first row is read, with the names of the stores
                that the statement reads.
            row_limit: How many rows the answer may have.
            seconds: How long the statement may take.
            deadline: The time of `time.monotonic` when it must end, if it has waited before; by
                default the seconds count from now on.

        Raises:
            QueryProblemError: The statement is wrong, writes, or exceeds a limit. An answer is
                never cut.
        """
        limits = _Limits(row_limit, seconds, deadline=deadline)
        return self._run(text, params, open_source, limits)

    def stores_of(self, text: str, params: SqlParameters) -> frozenset[str]:
        """Return the names of the stores that a statement reads; nothing is read.

        Raises:
            QueryProblemError: The statement is wrong, or writes.
        """

        def name_stores(stores: frozenset[str]) -> RowSource:
            raise _StoresNamedError(stores)

        try:
            self._run(text, params, name_stores, _Limits())
        except _StoresNamedError as named:
            return named.stores
        return frozenset()  # the text has no statement to open stores for

    def run_quickly(
        self,
        text: str,
        params: SqlParameters,
        open_source: OpenSource,
        *,
        seconds: float = QUICK_SECONDS,
    ) -> SqlResult | None:
        """Return the rows of a statement that only reads single keys, and takes no longer.

        None: it does more, calls a function, or has a problem. `run` has the answer then.

        Args:
            text: The statement.
            params: Its parameters, as in `run`.
            open_source: As in `run`. It may raise a `HeavyStatementError`, and so may its rows.
            seconds: How long the statement may run.
        """
        try:
            return self._run(text, params, open_source, _Limits(seconds=seconds, is_quick=True))
        except QueryError:
            return None

    def _run(
        self, text: str, params: SqlParameters, open_source: OpenSource, limits: _Limits
    ) -> SqlResult:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = _Connection(self._tables)
        try:
            result = connection.run(text, params, open_source, limits)
        except HeavyStatementError:
            self._idle.append(connection)
            raise
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return result


class _Limits(NamedTuple):
    rows: int = ROW_LIMIT
    seconds: float = SECONDS
    is_quick: bool = False
    deadline: float | None = None


class _StoresNamedError(HeavyStatementError):
    def __init__(self, stores: frozenset[str]) -> None:
        super().__init__()
        self.stores = stores


class _Connection:
    """Runs one statement after another. Nothing stays of a statement, because none may write."""

    def __init__(self, tables: Mapping[str, StoreTable]) -> None:
        self._tables = tables
        self._source = StatementSource(self._check_time)
        self._begin(_Limits())
        # SQLite names the stores of a statement while it prepares it, so none is kept prepared.
        self._connection = apsw.Connection(":memory:", statementcachesize=0)
        self._prepare(self._connection)

    def _begin(self, limits: _Limits) -> None:
        self._seconds = limits.seconds
        own_deadline = time.monotonic() + limits.seconds
        self._deadline = own_deadline if limits.deadline is None else limits.deadline
        self._source.is_quick = limits.is_quick
        self._is_heavy = False
        self._problem: QueryProblemError | None = None
        self._stores: set[str] = set()
        self._columns: tuple[str, ...] = ()
        self._source.forget()

    def run(
        self, text: str, params: SqlParameters, open_source: OpenSource, limits: _Limits
    ) -> SqlResult:
        self._begin(limits)
        cursor = self._connection.cursor()
        cursor.exec_trace = self._before_first_step(open_source)
        try:
            rows = _collect(cursor.execute(text, params), limits.rows)
        except (QueryProblemError, HeavyStatementError):
            raise
        except Exception as error:
            if self._is_heavy:
                raise HeavyStatementError from None
            raise self._explained(error) from None
        finally:
            cursor.close(force=True)
            self._source.forget()
        return SqlResult(self._columns, rows)

    def close(self) -> None:
        self._connection.close(force=True)

    def _prepare(self, connection: apsw.Connection) -> None:
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        for limit, value in _LIMITS.items():
            connection.limit(limit, value)
        for name, table in self._tables.items():
            module: Any = TableModule(table, self._source)
            connection.create_module(
                name, module, use_bestindex_object=True, eponymous_only=True, read_only=True
            )
        connection.authorizer = self._authorize
        connection.set_progress_handler(self._should_stop, _STEPS_BETWEEN_CHECKS)

    def _before_first_step(
        self, open_source: OpenSource
    ) -> Callable[[apsw.Cursor, str, Any], bool]:
        def open_once(cursor: apsw.Cursor, _: str, __: Any) -> bool:
            if self._columns:
                detail = "A query is one statement. Send each alone."
                raise _refusal(detail)
            self._columns = tuple(each[0] for each in cursor.get_description())
            if not self._columns:
                detail = "A query is one `SELECT`, and this text has none."
                raise _refusal(detail)
            self._source.source = open_source(frozenset(self._stores))
            return True

        return open_once

    def _authorize(self, action: int, first: Any, second: Any, *_: Any) -> int:
        if action == apsw.SQLITE_SELECT:
            return apsw.SQLITE_OK
        if self._source.is_quick and (action != apsw.SQLITE_READ or first in _HARMLESS_TABLES):
            # One call of a function may take long, and SQLite cannot stop it.
            self._is_heavy = True
            return apsw.SQLITE_DENY
        if action == apsw.SQLITE_RECURSIVE:
            return apsw.SQLITE_OK
        if action == apsw.SQLITE_FUNCTION and second.lower() not in _FORBIDDEN_FUNCTIONS:
            return apsw.SQLITE_OK
        if action == apsw.SQLITE_READ:
            if first in self._tables:
                self._stores.add(self._tables[first].store.name)
            # Without a column SQLite asks whether rows may be counted, also those of a `WITH`.
            if first in self._tables or first in _HARMLESS_TABLES or not second:
                return apsw.SQLITE_OK
        name = str(apsw.mapping_authorizer_function[action]).removeprefix("SQLITE_")
        what = f"{name.replace('_', ' ')} {first or second or ''}".strip()
        self._problem = _refusal(f"Queries only read stores: {what} is not allowed.")
        return apsw.SQLITE_DENY

    def _should_stop(self) -> bool:
        if apsw.memory_used() > MEMORY:
            self._problem = _refusal(
                f"The queries that run now need more than {MEMORY >> 20} MB. "
                "Read fewer rows, or group and sort fewer of them."
            )
        elif time.monotonic() > self._deadline:
            self._problem = self._timeout()
        else:
            return False
        return True

    def _check_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise self._timeout()

    def _timeout(self) -> QueryProblemError:
        detail = (
            f"The query took more than {self._seconds:g} s. "
            "Narrow it by key, or read the store with `to_arrow`."
        )
        return QueryProblemError(ProblemCode.TIMEOUT, detail)

    def _explained(self, error: Exception) -> Exception:
        """Return the problem that an error of SQLite means."""
        message = str(error)
        if self._problem is not None:
            return self._problem
        if isinstance(error, KeyError):
            return _refusal(f"The parameter :{error.args[0]} has no value.")
        if isinstance(error, TypeError | OverflowError):
            return _refusal(
                f"A parameter is no SQL value: {message}. Use text, numbers, bytes or None."
            )
        if isinstance(error, apsw.BindingsError):
            return _refusal(f"The parameters do not fit the query: {message.rstrip('!.')}.")
        if message.startswith("no such table: "):
            return self._unknown_table(message.removeprefix("no such table: "))
        if isinstance(error, apsw.Error):
            return _refusal(f"SQLite refuses the query: {message}.")
        return error

    def _unknown_table(self, name: str) -> QueryProblemError:
        similar = get_close_matches(name, self._tables, n=2)
        hint = f" Did you mean {' or '.join(map(repr, similar))}?" if similar else ""
        quotes = " Put names with other characters than letters, digits and _ in double quotes."
        detail = f"There is no store {name!r}.{hint}{quotes if '-' in ''.join(similar) else ''}"
        return QueryProblemError(ProblemCode.UNKNOWN_STORE, detail)


def _refusal(detail: str) -> QueryProblemError:
    return QueryProblemError(ProblemCode.BAD_REQUEST, detail)


def _collect(cursor: apsw.Cursor, row_limit: int) -> list[tuple[SqlValue, ...]]:
    rows: list[tuple[SqlValue, ...]] = []
    size = 0
    for row in cursor:
        if len(rows) == row_limit:
            detail = f"The answer has more than {row_limit} rows. Add a `LIMIT`, or group them."
            raise QueryProblemError(ProblemCode.LIMIT_TOO_LARGE, detail)
        size += sum(len(each) for each in row if isinstance(each, str | bytes))
        if size > RESULT_BYTES:
            detail = f"The answer has more than {RESULT_BYTES >> 20} MB. Select fewer columns."
            raise QueryProblemError(ProblemCode.LIMIT_TOO_LARGE, detail)
        rows.append(row)
    return rows
