from __future__ import annotations

import pytest

from headrace.queries.coordination.local_reads import (
    ChangedRow,
    ChangesAnswer,
    LocalAnswer,
    LocalChanges,
    LocalProblem,
    LocalRead,
    MessagePack,
    ShardAnswer,
    ShardChanges,
    ShardRead,
)
from headrace.queries.coordination.local_routes import shard_path
from headrace.queries.members import MemberStatus
from headrace.queries.problems import ProblemCode
from headrace.queries.reads import FetchVersions, GetKey, Row
from tests.unit.queries.snapshot_records import make_record

STATUS = MemberStatus(name="a:1", shards={"0/1": 7}, ready=("0/1",), is_ready=True)


def test_reads_and_answers_come_back_as_they_were() -> None:
    read = LocalRead(
        reads=(ShardRead("s", 1, GetKey(b"\xff")), ShardRead("v", 2, FetchVersions(b"k"), b"p", 5)),
        at="3f9a1c07.812",
        wait_ms=500,
        cursor="c1",
        closes_cursor=True,
    )
    rows = [Row(b"k", b"\x00", 5, None, None, b"k"), Row(b"l", b"", None, 1, 2, b"l")]
    answer = LocalAnswer(
        token="3f9a1c07.812",
        record=make_record(812, changes={"app-a": {3: 4}}),
        shards=[ShardAnswer("rows", rows, False), ShardAnswer("gone")],
        status=STATUS,
    )

    assert MessagePack.decode_read(MessagePack.encode(read)) == read
    assert MessagePack.decode_answer(MessagePack.encode(answer)) == answer


def test_changes_come_back_as_they_were() -> None:
    changes = LocalChanges(
        store="s", partitions=(0, 1), after="3f9a1c07.1", positions=((1, b"p", False),)
    )
    rows = [ChangedRow(b"k", None, None, None, None, b"k")]
    answer = ChangesAnswer(
        outcome="changes", token="3f9a1c07.2", shards=[ShardChanges(rows)], status=STATUS
    )

    assert MessagePack.decode_changes(MessagePack.encode(changes)) == changes
    assert MessagePack.decode_changes_answer(MessagePack.encode(answer)) == answer


@pytest.mark.parametrize(
    ("code", "expected"),
    [("WRONG_STORE_KIND", ProblemCode.WRONG_STORE_KIND), ("NEWER", ProblemCode.INTERNAL)],
)
def test_a_problem_of_a_peer_becomes_an_error(code: str, expected: ProblemCode) -> None:
    error = LocalProblem(code, "because").to_error()

    assert (error.code, error.detail) == (expected, "because")


def test_the_path_of_a_shard_names_group_and_partition() -> None:
    assert shard_path("global-rates", 3) == "/local/shards/global-rates/3"
