"""SQL over the rows of stores."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec import Struct

from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.reads import FetchSessions, FetchWindows, GetKey, ScanKeys
from headrace.queries.sql import SqlEngine, SqlParameters, engine
from headrace.queries.sql.tables import HeavyStatementError
from tests.unit.queries.listed_rows import ListedRows, listed_store, row


class Revenue(Struct):
    city: str
    amount: int


REVENUE = listed_store("revenue", str, Revenue, "timestamped_key_value")
COUNTS = listed_store("counts-by-city", str, int)
CLICKS = listed_store("clicks", str, int, "window")
VISITS = listed_store("visits", str, int, "session")
PRICES = listed_store("prices", int, float, "versioned_key_value")
STORES = [REVENUE, COUNTS, CLICKS, VISITS, PRICES]


def _rows() -> ListedRows:
    names = ("ann", "bob", "cid", "dan")
    cities = ("Oslo", "Rome", "Rome", "Oslo")
    return ListedRows(
        {
            "revenue": [
                row(REVENUE, name, Revenue(city, 10 * index), timestamp=1000 + index)
                for index, (name, city) in enumerate(zip(names, cities, strict=True))
            ],
            "counts-by-city": [row(COUNTS, "Oslo", 2), row(COUNTS, "Rome", 3)],
            "clicks": [
                row(CLICKS, key, start, start=start, end=start + 10)
                for key in ("a", "b")
                for start in (0, 10, 20)
            ],
            "visits": [row(VISITS, "a", 1, start=5, end=9), row(VISITS, "a", 2, start=20, end=30)],
            "prices": [row(PRICES, key, key / 2, start=100 + key) for key in (-5, -1, 0, 3, 7)],
        }
    )


def _run(
    text: str, parameters: SqlParameters = None, rows: ListedRows | None = None, **limits: Any
) -> list[Any]:
    source = rows or _rows()
    return SqlEngine(STORES).run(text, parameters, source.open, **limits).rows


def _problem(text: str, parameters: SqlParameters = None, **limits: Any) -> QueryProblemError:
    with pytest.raises(QueryProblemError) as caught:
        _run(text, parameters, **limits)
    return caught.value


def test_a_table_has_key_value_timestamp_and_the_fields_of_its_values() -> None:
    result = SqlEngine(STORES).run("SELECT * FROM revenue WHERE key = 'bob'", None, _rows().open)

    assert result.columns == ("key", "value", "timestamp", "city", "amount")
    assert result.rows == [("bob", '{"city":"Rome","amount":10}', 1001, "Rome", 10)]


def test_every_kind_of_store_shows_its_own_columns() -> None:
    tables = SqlEngine(STORES).tables

    assert tables["counts-by-city"] == ("key", "value")
    assert tables["clicks"] == tables["visits"] == ("key", "value", "window_start", "window_end")
    assert tables["prices"] == ("key", "value", "valid_from")
    assert _run("SELECT key, value, valid_from FROM prices WHERE key = 3") == [(3, 1.5, 103)]
    assert _run("SELECT window_start, valid_from FROM revenue LIMIT 1") == [(None, None)]
    assert _run("SELECT valid_from FROM clicks LIMIT 1") == [(None,)]


def test_stores_are_joined_and_grouped() -> None:
    text = """
        SELECT c.key, c.value, sum(r.amount) FROM "counts-by-city" c
        JOIN revenue r ON r.city = c.key GROUP BY c.key ORDER BY c.key
    """
    assert _run(text) == [("Oslo", 2, 30), ("Rome", 3, 30)]


def test_the_source_is_opened_once_with_the_stores_of_the_statement() -> None:
    rows = _rows()
    text = 'WITH x AS (SELECT count(*) n FROM revenue) SELECT * FROM x, "counts-by-city"'

    _run(text, rows=rows)

    assert rows.opened == [frozenset({"revenue", "counts-by-city"})]


@pytest.mark.parametrize(
    ("condition", "operations", "keys"),
    [
        ("key = 'bob'", [GetKey(b"bob")], ["bob"]),
        ("key IN ('ann', 'zoe')", [GetKey(b"ann"), GetKey(b"zoe")], ["ann"]),
        ("key > 'ann' AND key <= 'cid'", [ScanKeys(b"ann", b"cid")], ["bob", "cid"]),
        ("key BETWEEN 'b' AND 'c'", [ScanKeys(b"b", b"c")], ["bob"]),
        ("key GLOB 'c*'", [ScanKeys(b"c", b"d")], ["cid"]),
        ("key LIKE 'C%'", [ScanKeys()], ["cid"]),
        ("key = 'BOB' COLLATE NOCASE", [ScanKeys()], ["bob"]),
        ("key > 'x' AND key < 'b'", [], []),
        ("key = NULL", [], []),
        ("key <> 'ann' AND amount > 10", [ScanKeys()], ["cid", "dan"]),
        ("key = 5", [ScanKeys()], []),
    ],
)
def test_conditions_on_text_keys_narrow_the_read(
    condition: str, operations: list[Any], keys: list[str]
) -> None:
    rows = _rows()

    found = _run(f"SELECT key FROM revenue WHERE {condition}", rows=rows)

    assert [key for (key,) in found] == keys
    assert rows.operations == operations


@pytest.mark.parametrize(
    ("condition", "keys"),
    [
        ("key >= -1 AND key < 7", [-1, 0, 3]),
        ("key < 0", [-5, -1]),
        ("key > 2.5", [3, 7]),
        ("key = 3.0", [3]),
        ("key = 3.5", []),
        ("key = '3'", [3]),
        ("key < 1e300", [-5, -1, 0, 3, 7]),
        ("key < 9e999", [-5, -1, 0, 3, 7]),
        ("key > 99999999999999999999", []),
        ("key IS NOT NULL ORDER BY key DESC LIMIT 2", [7, 3]),
        ("1 ORDER BY key", [-5, -1, 0, 3, 7]),
    ],
)
def test_conditions_on_whole_numbers_narrow_the_read(condition: str, keys: list[int]) -> None:
    assert [key for (key,) in _run(f"SELECT key FROM prices WHERE {condition}")] == keys


def test_a_range_of_whole_numbers_reads_negative_ones_apart() -> None:
    rows, key = _rows(), PRICES.key.serialize

    _run("SELECT key FROM prices WHERE key BETWEEN -2 AND 3", rows=rows)

    assert rows.operations == [ScanKeys(key(-2), key(-1)), ScanKeys(key(0), key(3))]


@pytest.mark.parametrize(
    ("text", "operation", "count"),
    [
        ("clicks WHERE key = 'a' AND window_start >= 10", FetchWindows(b"a", None, 10), 2),
        ("clicks WHERE window_start = 10", FetchWindows(None, None, 10, 10), 2),
        ("clicks WHERE key BETWEEN 'a' AND 'b'", FetchWindows(b"a", b"b"), 6),
        ("clicks WHERE key >= 'b' AND window_end <= 20", FetchWindows(), 2),
        ("visits WHERE window_end > 9 AND window_start < 50", FetchSessions(None, None, 9, 50), 1),
    ],
)
def test_conditions_on_windows_narrow_the_read(text: str, operation: Any, count: int) -> None:
    rows = _rows()

    assert _run(f"SELECT count(*) FROM {text}", rows=rows) == [(count,)]
    assert rows.operations == [operation]


def test_a_window_without_times_reads_nothing() -> None:
    rows = _rows()

    assert _run("SELECT * FROM clicks WHERE window_start = NULL", rows=rows) == []
    assert _run("SELECT * FROM clicks WHERE window_start > 8 AND window_start < 2", rows=rows) == []
    assert rows.operations == []


def test_rows_come_in_the_order_of_keys_without_sorting_them_all() -> None:
    rows = _rows()
    text = "SELECT key FROM revenue WHERE key > 'a' ORDER BY key DESC LIMIT 2"

    assert _run(text, rows=rows) == [("dan",), ("cid",)]
    assert rows.operations == [ScanKeys(b"a", descending=True)]
    assert rows.closed == 1
    assert "TEMP B-TREE" not in str(_run(f"EXPLAIN QUERY PLAN {text}"))


def test_parameters_are_given_by_position_or_by_name() -> None:
    assert _run("SELECT key FROM revenue WHERE amount = ? OR key = ?", [30, "ann"]) == [
        ("ann",),
        ("dan",),
    ]
    assert _run("SELECT amount FROM revenue WHERE key = :who", {"who": "cid"}) == [(20,)]
    assert _run("SELECT ?, ?, ?, ?", [None, True, b"x", 1.5]) == [(None, 1, b"x", 1.5)]


@pytest.mark.parametrize(
    ("parameters", "detail"),
    [
        ({}, "The parameter :who has no value."),
        ([], "The parameters do not fit the query"),
        (["a", "b"], "The parameters do not fit the query"),
        (None, "The parameters do not fit the query"),
        ([["a"]], "A parameter is no SQL value"),
        ([2**70], "A parameter is no SQL value"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(parameters: Any, detail: str) -> None:
    problem = _problem("SELECT :who", parameters)

    assert problem.code is ProblemCode.BAD_REQUEST
    assert problem.detail.startswith(detail)


@pytest.mark.parametrize(
    "text",
    [
        "ATTACH '/tmp/x' AS y",
        "DETACH main",
        "PRAGMA user_version",
        "PRAGMA temp_store_directory = '/'",
        "SELECT * FROM pragma_database_list",
        "SELECT count(*) FROM pragma_database_list",
        "SELECT * FROM sqlite_master",
        "SELECT load_extension('x')",
        "SELECT fts3_tokenizer('x')",
        "INSERT INTO revenue VALUES (1, 2, 3, 4, 5)",
        "UPDATE revenue SET amount = 0",
        "DELETE FROM revenue",
        "CREATE TABLE t (a)",
        "CREATE VIRTUAL TABLE t USING fts5(a)",
        "CREATE TEMP TRIGGER t AFTER INSERT ON revenue BEGIN SELECT 1; END",
        "DROP TABLE revenue",
        "BEGIN",
        "SAVEPOINT x",
        "VACUUM INTO '/tmp/x'",
        "ANALYZE",
        "REINDEX",
    ],
)
def test_a_statement_that_does_more_than_read_stores_is_refused(text: str) -> None:
    problem = _problem(text)

    assert problem.code is ProblemCode.BAD_REQUEST
    assert re.search(
        "Queries only read stores: .* is not allowed|one `SELECT`|may not be modified|triggers",
        problem.detail,
    )


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("", "A query is one `SELECT`, and this text has none."),
        ("-- nothing", "A query is one `SELECT`, and this text has none."),
        ("SELECT 1; SELECT 2", "A query is one statement. Send each alone."),
        ("SELEC 1", 'SQLite refuses the query: near "SELEC": syntax error.'),
        ("SELECT nope FROM revenue", "SQLite refuses the query: no such column: nope."),
        ("SELECT rowid FROM revenue", "SQLite refuses the query: rows of a store have no rowid."),
        ("SELECT 1" + " + 1" * 200, "Expression tree is too large"),
        ("SELECT 1" + " UNION SELECT 1" * 60, "too many terms in compound SELECT"),
        (f"SELECT '{'x' * 70_000}'", "too big"),
        ("SELECT zeroblob(17000000)", "too big"),
    ],
)
def test_a_wrong_statement_is_refused_with_its_error(text: str, detail: str) -> None:
    problem = _problem(text)

    assert problem.code is ProblemCode.BAD_REQUEST
    assert detail in problem.detail


def test_a_table_that_does_not_exist_is_an_unknown_store() -> None:
    problem = _problem("SELECT * FROM counts_by_city")

    assert problem.code is ProblemCode.UNKNOWN_STORE
    assert "Did you mean 'counts-by-city'?" in problem.detail
    assert "double quotes" in problem.detail


def test_an_endless_query_ends_after_its_time() -> None:
    counting = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c)"

    for text in (
        f"{counting} SELECT max(n) FROM c",
        "SELECT count(*) FROM clicks a, clicks b, clicks c, clicks d, clicks e, clicks f, clicks g",
    ):
        problem = _problem(text, seconds=0.02)
        assert problem.code is ProblemCode.TIMEOUT
        assert problem.detail.startswith("The query took more than 0.02 s.")


def test_an_answer_is_never_cut() -> None:
    assert len(_run("SELECT * FROM clicks", row_limit=6)) == 6

    problem = _problem("SELECT * FROM clicks", row_limit=5)
    assert problem.code is ProblemCode.LIMIT_TOO_LARGE
    assert "more than 5 rows" in problem.detail


def test_an_answer_or_a_statement_that_needs_too_much_memory_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blobs = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 50)"

    monkeypatch.setattr(engine, "RESULT_BYTES", 4 << 20)
    problem = _problem(f"{blobs} SELECT zeroblob(100000) FROM c")
    assert problem.code is ProblemCode.LIMIT_TOO_LARGE

    monkeypatch.setattr(engine, "MEMORY", 4 << 20)
    problem = _problem(
        f"{blobs} SELECT count(*) FROM (SELECT randomblob(100000) b FROM c ORDER BY b)"
    )
    assert problem.code is ProblemCode.BAD_REQUEST
    assert "need more than 4 MB" in problem.detail


def test_a_problem_of_the_source_reaches_the_reader() -> None:
    def refuse(_: frozenset[str]) -> ListedRows:
        raise QueryProblemError(ProblemCode.STORE_NOT_READY, "Not yet.", retry_after_ms=100)

    with pytest.raises(QueryProblemError, match="Not yet"):
        SqlEngine(STORES).run("SELECT * FROM revenue", None, refuse)


def test_names_that_differ_in_case_only_get_an_underscore() -> None:
    upper, lower = listed_store("Counts", str, int), listed_store("counts", str, int)
    rows = ListedRows({"Counts": [row(upper, "a", 1)], "counts": [row(lower, "a", 2)]})

    found = SqlEngine([lower, upper])

    assert found.run("SELECT value FROM counts", None, rows.open).rows == [(1,)]
    assert found.run("SELECT value FROM counts_", None, rows.open).rows == [(2,)]


def test_a_name_is_never_sql() -> None:
    name = 'x"; DROP TABLE y; --'
    store = listed_store(name, str, int)
    rows = ListedRows({name: [row(store, "a", 1)]})

    found = SqlEngine([store]).run('SELECT * FROM "x""; DROP TABLE y; --"', None, rows.open)

    assert found.rows == [("a", 1)]


def test_statements_one_after_another_read_their_own_stores_and_rows() -> None:
    runs, first, second = SqlEngine(STORES), _rows(), _rows()
    second.stores = {**second.stores, "revenue": second.stores["revenue"][:1]}
    count = "SELECT count(*) FROM revenue"

    assert runs.run(count, None, first.open).rows == [(4,)]
    with pytest.raises(QueryProblemError, match="not allowed"):
        runs.run("CREATE TABLE t(x)", None, first.open)
    assert runs.run("SELECT value FROM clicks WHERE key = 'b'", None, second.open).rows == [
        (0,),
        (10,),
        (20,),
    ]
    assert runs.run(count, None, second.open).rows == [(1,)]
    assert second.opened == [frozenset({"clicks"}), frozenset({"revenue"})]


def test_a_statement_may_run_inside_another() -> None:
    runs, rows = SqlEngine(STORES), _rows()
    inner: list[Any] = []

    def open_after_another(stores: frozenset[str]) -> ListedRows:
        inner.extend(runs.run("SELECT count(*) FROM clicks", None, rows.open).rows)
        return rows.open(stores)

    outer = runs.run("SELECT count(*) FROM revenue", None, open_after_another).rows

    assert (outer, inner) == ([(4,)], [(6,)])


@pytest.mark.parametrize(
    ("text", "parameters", "found"),
    [
        ("SELECT city, amount FROM revenue WHERE key = ?", ["bob"], [("Rome", 10)]),
        ("SELECT key FROM revenue WHERE key IN ('ann', 'cid', 'zoe')", None, [("ann",), ("cid",)]),
        ("SELECT 1", None, [(1,)]),
        ("SELECT key FROM revenue", None, None),
        ("SELECT key FROM revenue WHERE key > 'b'", None, None),
        ("SELECT count(*) FROM revenue WHERE key = 'bob'", None, None),
        ("SELECT hex(key) FROM revenue WHERE key = 'bob'", None, None),
        ("SELECT value FROM json_each('[1]')", None, None),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n", None, None),
        ("SELECT a.key FROM revenue a JOIN revenue b ON a.key = b.city", None, None),
        ("SELECT nothing FROM revenue", None, None),
        ("DROP TABLE revenue", None, None),
    ],
)
def test_only_reads_of_single_keys_are_quick(
    text: str, parameters: SqlParameters, found: list[Any] | None
) -> None:
    runs = SqlEngine(STORES)

    for _ in range(2):
        result = runs.run_quickly(text, parameters, _rows().open, seconds=60)
        assert (None if result is None else result.rows) == found


def test_a_quick_statement_may_find_that_its_rows_are_elsewhere() -> None:
    def refuse(_: frozenset[str]) -> ListedRows:
        raise HeavyStatementError

    runs = SqlEngine(STORES)

    text = "SELECT key FROM revenue WHERE key = 'bob'"
    assert runs.run_quickly(text, None, refuse, seconds=60) is None
    assert runs.run("SELECT count(*) FROM revenue", None, _rows().open).rows == [(4,)]
