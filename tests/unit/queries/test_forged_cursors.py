"""A cursor is not signed: whatever a client puts into it gets rows, or one problem."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.queries.copy.keys import segment_prefix, sorted_key
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.reads import (
    FetchSessions,
    FetchVersions,
    FetchWindows,
    GetKey,
    Operation,
    ScanKeys,
)
from headrace.queries.store_views import read_rows
from tests.unit.queries.copied_stores import copied
from tests.unit.state.written_stores import CASES, written

COPIES = {case: copied(written(case, seed=4)) for case in CASES}
NUMBERS = st.integers(-(2**63), 2**64 - 1)
KEYS = st.none() | st.binary(max_size=3)
WHOLE: list[Operation] = [ScanKeys(), FetchWindows(), FetchSessions()]
OPERATIONS: st.SearchStrategy[Operation] = st.one_of(
    st.sampled_from(WHOLE),
    st.builds(GetKey, st.binary(max_size=3), st.none() | NUMBERS),
    st.builds(ScanKeys, KEYS, KEYS, KEYS, st.booleans()),
    st.builds(FetchWindows, KEYS, KEYS, NUMBERS, NUMBERS, st.booleans()),
    st.builds(FetchSessions, KEYS, KEYS, NUMBERS, NUMBERS, st.booleans()),
    st.builds(FetchVersions, st.binary(max_size=3), NUMBERS, NUMBERS, st.booleans()),
)
WRITTEN = st.tuples(st.binary(max_size=2), st.lists(st.integers(0, 2**40), max_size=4))
VALID = WRITTEN.map(lambda key: segment_prefix(b"", 0) + sorted_key((key[0], *key[1])))
POSITIONS = st.one_of(
    st.binary(max_size=40),
    VALID,
    st.tuples(VALID, st.binary(max_size=9)).map(b"".join),
)


@pytest.mark.parametrize("case", CASES)
@given(OPERATIONS, POSITIONS)
def test_any_operation_and_position_get_rows_or_a_problem(
    case: str, operation: Operation, position: bytes
) -> None:
    copy = COPIES[case]
    code: ProblemCode | None = None

    try:
        rows = [*read_rows(copy.snapshots[-1], copy.store, 0, operation, position)]
    except QueryProblemError as problem:
        code = problem.code
    else:
        assert len(rows) <= 1_000

    assert code in {None, ProblemCode.BAD_REQUEST, ProblemCode.WRONG_STORE_KIND}
