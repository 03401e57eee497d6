from __future__ import annotations

import pytest

from headrace.errors import QueryError
from headrace.queries.copy.layout import Shard
from headrace.queries.copy.memory_database import MemoryDatabase
from headrace.queries.copy.views import KeptSnapshots, ShownSnapshot
from headrace.queries.tokens import Token
from tests.unit.queries.snapshot_records import make_record

SHARD = Shard("0", 0)
HISTORY = "3f9a1c07"


def _kept(numbers: range, *, every_ms: int) -> KeptSnapshots:
    kept = KeptSnapshots()
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


def test_a_snapshot_with_an_open_cursor_stays_for_up_to_a_minute() -> None:
    kept = _kept(range(40), every_ms=0)
    kept.at(Token(HISTORY, 3)).cursors += 1

    kept.drop_old(60_000)
    assert _numbers(kept)[0] == 3
    kept.drop_old(60_001)
    assert _numbers(kept)[0] == 10


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
