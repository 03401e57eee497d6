from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.errors import QueryError
from headrace.queries.copy.layout import Shard
from headrace.queries.copy.memory_database import MemoryDatabase
from headrace.queries.copy.views import KeptSnapshots, ShownSnapshot
from headrace.queries.tokens import Token
from tests.unit.queries.snapshot_records import make_record

SHARD = Shard("0", 0)
HISTORY = "3f9a1c07"


def _kept(numbers: range, *, every_ms: int, clock: Callable[[], int] = int) -> KeptSnapshots:
    kept = KeptSnapshots(clock)
    for number in numbers:
        view = MemoryDatabase().view()
        shown = ShownSnapshot(make_record(number), view, {SHARD: number - 1}, number * every_ms)
        kept.add(shown)
    return kept


def _numbers(kept: KeptSnapshots) -> list[int]:
    return [shown.record.snapshot for shown in kept]


def test_the_last_30_snapshots_stay_however_old() -> None:
    kept = _kept(range(40), every_ms=1_000)

    assert kept.drop_old(1_000_000) == [*range(10)]
    assert _numbers(kept) == [*range(10, 40)]


def test_snapshots_of_the_last_15_seconds_stay_up_to_300() -> None:
    kept = _kept(range(400), every_ms=100)
    kept.drop_old(39_900)
    assert _numbers(kept) == [*range(249, 400)]

    kept = _kept(range(400), every_ms=10)
    kept.drop_old(3_990)
    assert _numbers(kept) == [*range(100, 400)]


def test_a_snapshot_stays_for_a_minute_after_the_last_read_of_a_cursor() -> None:
    # It was shown two minutes before a cursor is opened.
    kept = _kept(range(40), every_ms=0, clock=lambda: 120_000)
    kept.use_cursor(kept.at(Token(HISTORY, 3)), "cursor")

    kept.drop_old(180_000)
    assert _numbers(kept)[0] == 3
    assert kept.open_cursors() == 1
    kept.drop_old(180_001)
    assert _numbers(kept)[0] == 10
    assert kept.open_cursors() == 0


def test_a_cursor_that_is_read_keeps_a_snapshot_for_15_minutes() -> None:
    clock = [0]
    kept = _kept(range(40), every_ms=0, clock=lambda: clock[0])
    shown = kept.at(Token(HISTORY, 3))
    clock[0] = 100_000
    while shown in kept:
        kept.use_cursor(shown, "cursor")
        clock[0] += 30_000
        kept.drop_old(clock[0])

    assert clock[0] == 130_000 + 900_000 + 30_000


def test_cursors_keep_at_most_300_snapshots_the_newest_ones() -> None:
    kept = _kept(range(400), every_ms=0)
    for shown in kept:
        kept.use_cursor(shown, "cursor")

    kept.drop_old(20_000)

    assert _numbers(kept) == [*range(100, 400)]


def test_expired_cursors_are_forgotten_though_nothing_is_dropped() -> None:
    clock = [0]
    kept = KeptSnapshots(lambda: clock[0])
    kept.add(ShownSnapshot(make_record(1), MemoryDatabase().view(), {SHARD: 0}, 0))
    shown = kept.at(Token(HISTORY, 1))
    for number in range(1_000):
        clock[0] = number * 10_000
        kept.use_cursor(shown, str(number))

    assert len(shown.cursors) <= 100


def test_a_token_that_is_gone_or_of_another_history_is_refused() -> None:
    kept = _kept(range(5), every_ms=0)

    assert kept.at(Token(HISTORY, 4)).record.snapshot == 4
    for token in (Token(HISTORY, 5), Token("00000000", 4)):
        with pytest.raises(QueryError, match=f"{token} is gone"):
            kept.at(token)


def test_changes_follow_a_token_without_a_gap_or_not_at_all() -> None:
    kept = _kept(range(5), every_ms=0)

    steps = kept.changes_after(Token(HISTORY, 2), SHARD)
    assert steps is not None
    assert [step.record.snapshot for step in steps] == [3, 4]
    assert kept.changes_after(Token(HISTORY, 4), SHARD) == []
    assert kept.changes_after(Token("00000000", 2), SHARD) is None
    assert kept.changes_after(Token(HISTORY, 7), SHARD) is None
    assert kept.changes_after(Token(HISTORY, 2), Shard("1", 0)) is None


def test_changes_do_not_follow_over_a_jump() -> None:
    kept = _kept(range(3), every_ms=0)
    view = MemoryDatabase().view()
    kept.add(ShownSnapshot(make_record(5), view, {SHARD: None}, 0))

    assert kept.changes_after(Token(HISTORY, 2), SHARD) is None
    assert kept.changes_after(Token(HISTORY, 5), SHARD) == []
