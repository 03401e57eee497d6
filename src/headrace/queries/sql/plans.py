"""Plans how a statement reads a store: its conditions narrow the reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import apsw

from headrace.queries.catalog import QueryableStore
from headrace.queries.reads import FetchSessions, FetchWindows, GetKey, Operation, ScanKeys
from headrace.queries.sql.columns import KEY, WINDOW_END, WINDOW_START
from headrace.queries.sql.keys import Comparison, KeyRange, SqlKeys
from headrace.queries.tables.sql_values import SqlValue

_OPERATORS = {
    apsw.SQLITE_INDEX_CONSTRAINT_EQ: "=",
    apsw.SQLITE_INDEX_CONSTRAINT_GT: ">",
    apsw.SQLITE_INDEX_CONSTRAINT_GE: ">=",
    apsw.SQLITE_INDEX_CONSTRAINT_LT: "<",
    apsw.SQLITE_INDEX_CONSTRAINT_LE: "<=",
}
_WHOLE_SCAN, _KEY_RANGE, _ONE_KEY = (1e6, 1_000_000), (1e4, 10_000), (10.0, 1)
"""The cost and the rows of a read, as SQLite's planner compares them."""
_LAST_COLUMN_OF_MASK = 63
_MAX_MS = 2**63 - 1


@dataclass(frozen=True)
class Plan:
    """The read of one table by one statement."""

    conditions: tuple[tuple[int, str], ...]
    """The column and the operator of each condition whose value SQLite hands over."""
    used: tuple[int, ...]
    """The columns that the statement needs, in their order."""
    is_ordered: bool
    """Whether the rows must come in the order of the keys."""
    is_descending: bool

    @property
    def reads_one_key(self) -> bool:
        """Return whether a condition names the key."""
        return (KEY, "=") in self.conditions


class Planner:
    """Plans the reads of one store."""

    def __init__(self, store: QueryableStore, column_count: int) -> None:
        self._type = store.type
        self._keys = SqlKeys(store.key)
        self._column_count = column_count

    def plan(self, info: apsw.IndexInfo) -> Plan:
        """Return the plan of a statement, and state its cost to SQLite."""
        conditions = []
        for index in range(info.nConstraint):
            column = info.get_aConstraint_iColumn(index)
            operator = _OPERATORS.get(info.get_aConstraint_op(index))
            if operator is None or not info.get_aConstraint_usable(index):
                continue
            if column in self._narrowing() and info.get_aConstraint_collation(index) == "BINARY":
                conditions.append((column, operator))
                info.set_aConstraintUsage_argvIndex(index, len(conditions))
        info.estimatedCost, info.estimatedRows = self._cost(conditions)
        is_ordered = self._is_ordered(info)
        info.orderByConsumed = is_ordered
        return Plan(
            tuple(conditions),
            self._used(info),
            is_ordered,
            is_ordered and info.get_aOrderBy_desc(0),
        )

    def operations(self, plan: Plan, values: Sequence[SqlValue]) -> Iterator[Operation]:
        """Yield the reads of a plan, in the order of their rows."""
        comparisons: dict[int, list[Comparison]] = {KEY: [], WINDOW_START: [], WINDOW_END: []}
        for (column, operator), value in zip(plan.conditions, values, strict=True):
            comparisons[column].append(Comparison(operator, value))
        ranges = self._keys.ranges(comparisons[KEY])
        for each in reversed(ranges) if plan.is_descending else ranges:
            if self._type.has_windows:
                yield from self._windows(each, comparisons)
            elif each.start is not None and each.start == each.end:
                yield GetKey(each.start)
            else:
                yield ScanKeys(each.start, each.end, descending=plan.is_descending)

    def _windows(
        self, keys: KeyRange, comparisons: dict[int, list[Comparison]]
    ) -> Iterator[Operation]:
        # A range of keys that is open at one end reads all keys.
        start, end = keys if None not in keys else (None, None)
        end = None if start == end else end
        starts, ends = _times(comparisons[WINDOW_START]), _times(comparisons[WINDOW_END])
        if starts is None or ends is None:
            return
        if self._type.has_sessions:
            yield FetchSessions(start, end, ends[0], starts[1])
        else:
            yield FetchWindows(start, end, *starts)

    def _narrowing(self) -> tuple[int, ...]:
        if self._type.has_sessions:
            return (KEY, WINDOW_START, WINDOW_END)
        return (KEY, WINDOW_START) if self._type.has_windows else (KEY,)

    def _cost(self, conditions: list[tuple[int, str]]) -> tuple[float, int]:
        if (KEY, "=") in conditions:
            return _ONE_KEY
        return _KEY_RANGE if conditions else _WHOLE_SCAN

    def _is_ordered(self, info: apsw.IndexInfo) -> bool:
        has_order = self._keys.has_ranges and not self._type.has_windows
        return has_order and info.nOrderBy == 1 and info.get_aOrderBy_iColumn(0) == KEY

    def _used(self, info: apsw.IndexInfo) -> tuple[int, ...]:
        used = set(info.colUsed)
        if _LAST_COLUMN_OF_MASK in used:  # SQLite's mask has one bit for all columns from here on
            used.update(range(_LAST_COLUMN_OF_MASK, self._column_count))
        return tuple(sorted(used))


def _times(comparisons: list[Comparison]) -> tuple[int, int] | None:
    """Return the first and the last time that pass the comparisons; None: none does."""
    first, last = 0, _MAX_MS
    for operator, value in comparisons:
        if value is None:
            return None
        if isinstance(value, int):
            first = max(first, value) if operator in ("=", ">", ">=") else first
            last = min(last, value) if operator in ("=", "<", "<=") else last
    return (first, last) if first <= last else None
