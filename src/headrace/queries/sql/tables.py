"""Virtual tables of SQLite over the rows of stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Any, Protocol

import apsw

from headrace.errors import QueryError
from headrace.queries.catalog import QueryableStore
from headrace.queries.reads import Operation, RowBatch
from headrace.queries.sql.columns import StoreColumns
from headrace.queries.sql.plans import Plan, Planner
from headrace.queries.tables.sql_values import SqlValue


class RowSource(Protocol):
    """The rows of stores at one snapshot."""

    def batches(self, store: str, operation: Operation, *, is_ordered: bool) -> Iterator[RowBatch]:
        """Yield the rows of a read of a whole store, some at a time.

        The rows of all shards come in one order if they are ``is_ordered``; else shard by shard.
        """
        ...


class StoreTable:
    """The table of one store; it serves all statements."""

    def __init__(self, store: QueryableStore) -> None:
        self.store = store
        self.columns = StoreColumns(store)
        self.planner = Planner(store, len(self.columns.columns))
        self.declaration = self.columns.declaration()


class TableModule:
    """One table within one connection. SQLite calls it."""

    def __init__(self, table: StoreTable, statement: StatementSource) -> None:
        self._table = table
        self._statement = statement

    def Connect(self, *_: Any) -> tuple[str, Any]:  # noqa: N802
        return self._table.declaration, _VirtualTable(self._table, self._statement)

    Create = Connect

    def ShadowName(self, _: str) -> bool:  # noqa: N802
        return False


class HeavyStatementError(QueryError):
    """A statement does more than to read single keys of this instance."""


class StatementSource:
    """The rows that a statement reads; opened when SQLite knows which stores it needs."""

    def __init__(self, check: Callable[[], None]) -> None:
        self.source: RowSource | None = None
        self.plans: list[Plan] = []
        """How the statement reads its tables."""
        self.is_quick = False
        """Whether the statement may read single keys only."""
        self.check = check
        """Raises if the statement has run too long."""

    def forget(self) -> None:
        """Forget the statement, and the snapshot that it has read."""
        self.source = None
        self.plans.clear()

    def batches(
        self, table: StoreTable, plan: Plan, values: tuple[SqlValue, ...]
    ) -> Iterator[RowBatch]:
        """Return the rows that a plan reads."""
        source = self.source
        assert source is not None, "the statement runs before its source is open"
        if self.is_quick and not plan.reads_one_key:
            raise HeavyStatementError
        return chain.from_iterable(
            source.batches(table.store.name, operation, is_ordered=plan.is_ordered)
            for operation in table.planner.operations(plan, values)
        )


class _VirtualTable:
    def __init__(self, table: StoreTable, statement: StatementSource) -> None:
        self._table = table
        self._statement = statement

    def BestIndexObject(self, info: apsw.IndexInfo) -> bool:  # noqa: N802
        plans = self._statement.plans
        info.idxNum = len(plans)
        plans.append(self._table.planner.plan(info))
        return True

    def Open(self) -> _Cursor:  # noqa: N802
        return _Cursor(self._table, self._statement)

    def Disconnect(self) -> None:  # noqa: N802
        """Do nothing: the table has nothing of its own."""

    Destroy = Disconnect


class _Cursor:
    """Walks over rows. A scan calls `Eof`, `Next` and `Column` for each row, so all are in C."""

    __slots__ = ("Column", "Eof", "Next", "_statement", "_table")

    def __init__(self, table: StoreTable, statement: StatementSource) -> None:
        self._table = table
        self._statement = statement
        self.Next: Callable[[], None]
        self.Eof: Callable[[], bool]
        self.Column: Callable[[int], SqlValue]

    def Filter(self, number: int, _: str | None, values: tuple[SqlValue, ...]) -> None:  # noqa: N802
        plan = self._statement.plans[number]
        found = self._statement.batches(self._table, plan, values)
        self.Eof = bool  # False
        first, last = (plan.used[0], plan.used[-1]) if plan.used else (0, 0)
        row: list[SqlValue] = [None] * (last + 1)
        self.Column = row.__getitem__
        where: Any = first if first == last else slice(first, last + 1)
        batches = chain.from_iterable(self._batches(plan, found))
        self.Next = map(row.__setitem__, repeat(where), batches).__next__
        self.Next()

    def _batches(self, plan: Plan, found: Iterator[RowBatch]) -> Iterator[Any]:
        rows_of = self._table.columns.rows
        for batch in found:
            self._statement.check()
            yield rows_of(batch, plan.used)
        self.Eof = _is_at_end
        yield [()]

    def Rowid(self) -> int:  # noqa: N802
        msg = "rows of a store have no rowid"
        raise apsw.SQLError(msg)

    def Close(self) -> None:  # noqa: N802
        """Release the rows: they refer to this cursor, and it to them."""
        self.Next = _do_nothing


def _is_at_end() -> bool:
    return True


def _do_nothing() -> None:
    pass
