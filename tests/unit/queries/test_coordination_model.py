from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pytest

from headrace.queries.coordination import coordinator
from headrace.queries.coordination.asking import Asker, Refused
from headrace.queries.coordination.copies import Copies
from headrace.queries.coordination.cursors import Cursor, encode_cursor
from headrace.queries.coordination.gathering import Gatherer
from headrace.queries.coordination.local_reads import (
    LocalChanges,
    LocalRead,
    ShardAnswer,
)
from headrace.queries.coordination.read_plans import ReadPlan
from headrace.queries.coordination.watching import Watch
from headrace.queries.copy.layout import Shard
from headrace.queries.copy.views import KeptSnapshots, ShownSnapshot
from headrace.queries.tokens import Token
from tests.unit.queries.coordination_model import run

SHARES = 4
SEEDS_OF_A_MUTANT = 60


@pytest.mark.parametrize("share", range(SHARES))
def test_every_answer_is_the_snapshot_that_it_names(share: int) -> None:
    runs = [run(seed) for seed in range(share, 200, SHARES)]

    assert sum(each.answers for each in runs) > 1_000
    assert sum(each.changes for each in runs) > 100
    assert sum(each.resets for each in runs) > 10
    assert sum(each.refused for each in runs) > 10


def test_a_seed_decides_everything() -> None:
    first, second = run(3), run(3)

    assert first.answers == second.answers
    assert first.cluster.asked
    assert first.cluster.asked == second.cluster.asked


def _mix_tokens(patch: pytest.MonkeyPatch) -> None:
    async def read_of(self: Any, member: str, read: LocalRead) -> Sequence[ShardAnswer | str]:
        newest = LocalRead(reads=read.reads, wait_ms=read.wait_ms)
        answer = await self.read(member, newest)
        return ["unreachable"] * len(read.reads) if answer is None else answer.shards

    patch.setattr(Asker, "_read_of", read_of)


def _drop_a_shard(patch: pytest.MonkeyPatch) -> None:
    shards = ReadPlan._shards
    patch.setattr(ReadPlan, "_shards", lambda self, record: shards(self, record)[:2])


def _leave_out_what_does_not_answer(patch: pytest.MonkeyPatch) -> None:
    read_at = Asker.read_at

    async def read_some(
        self: Any, token: Token, wanted: Sequence[Any], *args: Any, **options: Any
    ) -> list[ShardAnswer] | Refused:
        found = await read_at(self, token, wanted, *args, **options)
        return [ShardAnswer("rows")] * len(wanted) if isinstance(found, Refused) else found

    patch.setattr(Asker, "read_at", read_some)


def _resume_at_the_wrong_key(patch: pytest.MonkeyPatch) -> None:
    def encode(cursor: Cursor) -> str:
        return encode_cursor(msgspec.structs.replace(cursor, position=cursor.position[:-1]))

    patch.setattr(coordinator, "encode_cursor", encode)


def _ignore_the_minimum(patch: pytest.MonkeyPatch) -> None:
    async def no_minimum(*_: object) -> None:
        return None

    patch.setattr(Gatherer, "_minimum", no_minimum)


def _forget_what_readers_saw(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Copies, "floor", lambda *_: 0)
    patch.setattr(Copies, "passes_floor", lambda *_: True)


def _watch_over_a_gap(patch: pytest.MonkeyPatch) -> None:
    def changes_after(self: KeptSnapshots, _: Token, shard: Shard) -> list[ShownSnapshot]:
        newest = self.newest_of(shard)
        return [] if newest is None else [newest]

    patch.setattr(KeptSnapshots, "changes_after", changes_after)


def _repeat_the_last_change(patch: pytest.MonkeyPatch) -> None:
    request = Watch._request

    def repeat(self: Watch, *args: Any) -> LocalChanges:
        asked = request(self, *args)
        positions = tuple((partition, position, True) for partition, position, _ in asked.positions)
        return msgspec.structs.replace(asked, positions=positions)

    patch.setattr(Watch, "_request", repeat)


@pytest.mark.parametrize(
    "break_it",
    [
        _mix_tokens,
        _drop_a_shard,
        _leave_out_what_does_not_answer,
        _resume_at_the_wrong_key,
        _ignore_the_minimum,
        _forget_what_readers_saw,
        _watch_over_a_gap,
        _repeat_the_last_change,
    ],
)
def test_a_build_that_is_wrong_on_purpose_is_found(
    break_it: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)

    with pytest.raises(AssertionError):
        _run_all(range(SEEDS_OF_A_MUTANT))


def _run_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        run(seed)
