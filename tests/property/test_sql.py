"""A store's table answers as a plain table of SQLite does, whatever narrows the read."""

from __future__ import annotations

import sqlite3
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.queries.sql import SqlEngine
from tests.unit.queries.listed_rows import ListedRows, listed_store, row

OPERATORS = st.sampled_from(["=", "<", "<=", ">", ">=", "<>", "IS"])
TEXTS = st.text(alphabet="ab5é", max_size=3)
NUMBERS = st.integers(-6, 6)
VALUES = st.one_of(
    TEXTS,
    NUMBERS,
    st.floats(-6, 6),
    st.sampled_from([None, b"a", "5", "5.0", 2**62, 1e300, float("inf"), -(2.0**63)]),
)
CONDITIONS = st.lists(st.tuples(OPERATORS, VALUES), max_size=3)


@given(keys=st.sets(TEXTS), conditions=CONDITIONS, order=st.sampled_from(["", "DESC"]))
def test_text_keys(keys: set[str], conditions: list[tuple[str, Any]], order: str) -> None:
    _check(str, "TEXT", keys, conditions, order)


@given(keys=st.sets(NUMBERS), conditions=CONDITIONS, order=st.sampled_from(["", "DESC"]))
def test_whole_numbers(keys: set[int], conditions: list[tuple[str, Any]], order: str) -> None:
    _check(int, "INTEGER", keys, conditions, order)


@given(
    keys=st.sets(st.binary(max_size=2)),
    conditions=st.lists(st.tuples(OPERATORS, st.one_of(VALUES, st.binary(max_size=2))), max_size=3),
)
def test_bytes(keys: set[bytes], conditions: list[tuple[str, Any]]) -> None:
    _check(bytes, "BLOB", keys, conditions, "")


def _check(
    type_: Any, affinity: str, keys: set[Any], conditions: list[tuple[str, Any]], order: str
) -> None:
    where = " AND ".join(f"key {operator} ?" for operator, _ in conditions) or "1"
    text = f"SELECT key FROM s WHERE {where} ORDER BY key {order}"
    values = [value for _, value in conditions]
    plain = sqlite3.connect(":memory:")
    plain.execute(f"CREATE TABLE s (key {affinity})")
    plain.executemany("INSERT INTO s VALUES (?)", [(key,) for key in keys])
    expected = plain.execute(text, values).fetchall()
    plain.close()

    store = listed_store("s", type_, int)
    rows = ListedRows({"s": [row(store, key, 1) for key in keys]})

    assert SqlEngine([store]).run(text, values, rows.open).rows == expected
