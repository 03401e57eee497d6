"""The judge of a campaign finds copies that stand still, and a campaign that shows too little."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from chaos.queries.campaign import KINDS, Plan
from chaos.queries.expected import Orders
from chaos.queries.judging import MOST_BEHIND, Judge
from chaos.queries.program import GROUPS, ORDERS, PARTITIONS, USERS, group_of
from headrace.brokers import open_log
from headrace.config import StreamsConfig
from headrace.queries.tokens import Token
from headrace.runtime.snapshots import SnapshotRecord

HISTORY = "3f9a1c07-0000-0000-0000-000000000000"


def token(number: int) -> Token:
    return Token(HISTORY[:8], number)


def record(number: int, leader_epoch: int = 1, orders: int = 0) -> SnapshotRecord:
    """Return the record of a snapshot that reflects some orders of each partition."""
    return SnapshotRecord(
        history=HISTORY,
        leader_epoch=leader_epoch,
        snapshot=number,
        batch=number,
        layout="layout",
        topics="topics",
        clock=0,
        at=0,
        ends={},
        since=number - 1,
        changes={},
        store_times={},
        position={ORDERS: [orders] * PARTITIONS},
    )


def judge_of(snapshots: int, behind_seconds: float = 0.0) -> Judge:
    """Return a judge that has read records of the first snapshots."""
    judge = Judge(Orders(), behind_seconds)
    for number in range(snapshots):
        judge.note_record(record(number))
    return judge


def test_an_answer_may_be_three_snapshots_behind() -> None:
    judge = judge_of(6)

    judge.note_unpinned(time.monotonic(), token(5 - MOST_BEHIND))

    assert judge.problems == []


def test_a_copy_that_stands_still_is_found_when_it_is_more_than_three_behind() -> None:
    judge = judge_of(6)

    judge.note_unpinned(time.monotonic(), token(1))

    assert [problem[:4] for problem in judge.problems] == ["Q10:"]


def test_an_answer_may_be_far_behind_if_the_snapshots_are_new() -> None:
    judge = judge_of(6, behind_seconds=3_600)

    judge.note_unpinned(time.monotonic(), token(0))

    assert judge.problems == []


def filled(snapshots: int) -> Judge:
    """Return a judge with answers of every kind, of some snapshots."""
    judge = judge_of(snapshots)
    for number in range(snapshots):
        judge.note_answer("pinned", token(number))
    for kind in KINDS:
        judge.note_answer(kind, token(0))
    return judge


def test_answers_of_enough_snapshots_and_kinds_pass() -> None:
    judge = filled(Plan(10_000, 0).least_snapshots)

    judge.check_enough(Plan(10_000, 0).least_snapshots, KINDS)

    assert judge.problems == []


def test_answers_of_too_few_snapshots_are_not_enough() -> None:
    judge = filled(499)

    judge.check_enough(Plan(100_000, 20).least_snapshots, KINDS)

    assert judge.problems == ["check: answers of only 499 snapshots, 500 are needed"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_answer_that_never_came_is_missed(kind: str) -> None:
    judge = filled(10)
    del judge.counts[kind]

    judge.check_enough(10, KINDS)

    assert judge.problems == [f"check: no answer of the kind {kind!r}"]


def test_an_instance_that_goes_back_is_found() -> None:
    judge = judge_of(3)

    judge.note_forward("a", 1, "k", token(2))
    judge.note_forward("a", 2, "k", token(1))  # another life
    assert judge.problems == []
    judge.note_forward("a", 2, "k", token(0))

    assert [problem[:3] for problem in judge.problems] == ["Q4:"]


def test_two_records_of_one_number_that_differ_are_found() -> None:
    judge = judge_of(3)
    judge.note_record(record(2, leader_epoch=2))
    assert judge.problems == []

    judge.note_record(record(1, leader_epoch=2))

    assert judge.problems[0].startswith("Q9: leader 2 wrote")


def test_other_bytes_of_another_copy_are_found() -> None:
    judge = judge_of(1)

    judge.note_body("s", token(0), b"1")
    judge.note_body("s", token(0), b"1")
    assert judge.problems == []
    judge.note_body("s", token(0), b"2")

    assert [problem[:3] for problem in judge.problems] == ["Q3:"]


def test_the_stores_are_those_of_the_orders_below_a_position(tmp_path: Path) -> None:
    orders = Orders()
    config = StreamsConfig(application_id="a", embedded_path=tmp_path / "log.db")
    with closing(open_log(config)) as log:
        log.create_topic(ORDERS, partitions=PARTITIONS)
        [first, second] = orders.write(log, [("u01", 5), ("u01", 9)])
    position = [-1] * PARTITIONS
    position[first.partition] = second.offset

    found, everything = orders.at(position), orders.at(orders.ends)

    assert found is not None
    assert everything is not None
    assert found.sums == {USERS: {"u01": 5}, GROUPS: {group_of(5): 5}}
    assert everything.sums[USERS] == {"u01": 14}
    assert orders.at([9] * PARTITIONS) is None
