"""The judge of a campaign finds copies that stand still, and a campaign that shows too little."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from chaos.queries.campaign import KINDS, Plan
from chaos.queries.expected import ORDER_MS, Orders
from chaos.queries.judging import BEHIND_ANSWERS, MOST_BEHIND, Judge
from chaos.queries.prices import Prices
from chaos.queries.program import (
    GAP_MS,
    GROUPS,
    OPEN,
    ORDERS,
    PARTITIONS,
    RATED,
    RETENTION_MS,
    USERS,
    WINDOW_MS,
    group_of,
    rate_of,
)
from headrace.brokers import open_log
from headrace.brokers.log import TopicLog
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
    judge = Judge(Orders(), Prices(()), behind_seconds)
    for number in range(snapshots):
        judge.note_record(record(number))
    return judge


def note_lives(judge: Judge, answers: int, instance: str = "a") -> None:
    for _ in range(answers):
        judge.note_life(instance)


def test_an_answer_may_be_three_snapshots_behind() -> None:
    judge = judge_of(6)
    note_lives(judge, BEHIND_ANSWERS + 1)

    judge.note_unpinned("a", time.monotonic(), token(5 - MOST_BEHIND))

    assert judge.problems == []


def test_a_copy_that_stands_still_is_found_when_it_is_more_than_three_behind() -> None:
    judge = judge_of(6)
    note_lives(judge, BEHIND_ANSWERS + 1)

    judge.note_unpinned("a", time.monotonic(), token(1))

    assert [problem[:4] for problem in judge.problems] == ["Q10:"]


def test_an_answer_may_be_far_behind_if_the_snapshots_are_new() -> None:
    judge = judge_of(6, behind_seconds=3_600)
    note_lives(judge, BEHIND_ANSWERS + 1)

    judge.note_unpinned("a", time.monotonic(), token(0))

    assert judge.problems == []


def test_an_instance_that_answered_nothing_meanwhile_may_be_far_behind() -> None:
    judge = judge_of(1)
    note_lives(judge, BEHIND_ANSWERS + 1)
    for number in range(1, 6):
        judge.note_record(record(number))
    note_lives(judge, BEHIND_ANSWERS)
    note_lives(judge, BEHIND_ANSWERS + 1, "b")

    judge.note_unpinned("a", time.monotonic(), token(0))
    assert judge.problems == []
    judge.note_unpinned("b", time.monotonic(), token(0))

    assert [problem[:4] for problem in judge.problems] == ["Q10:"]


def filled(snapshots: int) -> Judge:
    """Return a judge with answers of every kind, of some snapshots."""
    judge = judge_of(snapshots)
    for number in range(snapshots):
        judge.note_answer("pinned", token(number))
    for kind in KINDS:
        judge.note_answer(kind, token(snapshots))
    return judge


def test_answers_of_enough_snapshots_and_kinds_pass() -> None:
    judge = filled(Plan(10_000, 0).least_snapshots)

    judge.check_enough(Plan(10_000, 0).least_snapshots, KINDS)

    assert judge.problems == []


def test_answers_of_too_few_snapshots_are_not_enough() -> None:
    judge = filled(499)

    judge.check_enough(Plan(100_000, 20).least_snapshots, KINDS)

    assert judge.problems == ["check: pinned answers of only 499 snapshots, 500 are needed"]


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


def test_only_pinned_answers_count_as_snapshots() -> None:
    judge = judge_of(1)

    judge.note_answer("pinned", token(0))
    judge.note_answer("watched", token(1))

    assert judge.tokens == {token(0)}


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


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[tuple[Orders, TopicLog]]:
    config = StreamsConfig(application_id="a", embedded_path=tmp_path / "log.db")
    with closing(open_log(config)) as log:
        log.create_topic(ORDERS, partitions=PARTITIONS)
        yield Orders(), log


def test_the_stores_are_those_of_the_orders_below_a_position(
    orders: tuple[Orders, TopicLog],
) -> None:
    written, log = orders
    [first, second, third] = written.write(log, [("u01", 5), ("u01", 9), ("u01", 8)])
    position = [-1] * PARTITIONS
    position[first.partition] = second.offset

    one = written.at(position)
    position[first.partition] = third.offset
    two = written.at(position)
    everything = written.at(written.ends)

    assert one is not None
    assert two is not None
    assert everything is not None
    assert one.sums == {
        USERS: {"u01": 5},
        GROUPS: {group_of(5): 5},
        OPEN: {"u01": 5},
        RATED: {"u01": 5 * rate_of("u01")},
    }
    assert two.sums[USERS] == two.sums[OPEN] == {"u01": 14}
    assert everything.sums[USERS] == {"u01": 22}
    assert everything.sums[OPEN] == {}, "an order that four divides deletes the open sum"
    assert written.at([9] * PARTITIONS) is None


def test_windows_sessions_and_versions_are_those_of_the_orders_that_have_not_expired(
    orders: tuple[Orders, TopicLog],
) -> None:
    written, log = orders
    [first] = written.write(log, [("u01", 5)])
    pause = [("u02", 1)] * (GAP_MS // ORDER_MS + 1)  # may be of another partition
    written.write(log, [("u01", 9), *pause, ("u01", 8)])
    ends = written.ends
    since = written.recent_time(ends, 0)

    windows, sessions = written.windows("u01", ends), written.sessions("u01", ends)

    assert sum(total for _, _, total in windows) == 22
    assert all(end - start == WINDOW_MS for start, end, _ in windows)
    assert [total for _, _, total in sessions] == [14, 8]
    assert sessions[1][:2] == (since, since)
    assert written.version("u01", ends, since) == (8, since)
    assert written.version("u01", ends, since - 1) == (9, sessions[0][1])
    assert written.version("u01", ends, sessions[0][0] - 1) is None

    # Each write is later than the one before.
    written.write(log, [("u01", 1)] * (2 * RETENTION_MS // ORDER_MS))
    assert len(written.windows("u01", written.ends)) <= RETENTION_MS // WINDOW_MS + 1
    assert len(written.windows("u01", written.ends)) >= RETENTION_MS // WINDOW_MS
    assert written.version("u01", ends, since) == (8, since), "an older snapshot is as it was"
    assert first.offset == 0
