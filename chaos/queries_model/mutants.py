"""Builds that are wrong on purpose. The model must find each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from chaos.queries_model.writer import WriterBuild
from headrace.brokers.log import TopicPartition
from headrace.errors import QueryError
from headrace.queries.copy.actions import ShardState, ShardWrite
from headrace.queries.copy.applier import Applier
from headrace.queries.copy.copy_progress import CopyProgress
from headrace.queries.copy.local_copy import LocalCopy
from headrace.queries.copy.shard_progress import PartitionProgress, Phase, ShardProgress
from headrace.queries.copy.snapshot_log import SnapshotLog
from headrace.queries.copy.views import KeptSnapshots, ShownSnapshot
from headrace.queries.tokens import Token
from headrace.runtime.snapshots import SnapshotRecord


@dataclass(frozen=True)
class Mutant:
    """A wrong build: a writer, or an attribute of the instance's code."""

    writer: WriterBuild | None = None
    target: type | None = None
    name: str = ""
    replacement: Callable[..., Any] | property | None = None


def _ignore_counts(
    progress: ShardProgress, record: SnapshotRecord, *, allows_more: bool = False
) -> bool:
    return record.since == progress.base


def _ignore_since(
    progress: ShardProgress, record: SnapshotRecord, *, allows_more: bool = False
) -> bool:
    return record.changes is not None and all(
        each.count(progress.base_ends[name], record.end(*name)) == record.change_count(*name)
        for name, each in progress.partitions.items()
    )


def _no_marks(_copy: LocalCopy, _parts: object) -> dict[bytes, bytes | None]:
    return {}


def _join_at_once(copy: CopyProgress, progress: ShardProgress) -> None:
    """Skip (b): what was removed before (a) may have its successor behind the join."""
    progress.asked_ends = dict.fromkeys(progress.partitions, 0)
    progress.phase = Phase.REACHING


def _join_behind_ends(progress: ShardProgress, ends: Mapping[TopicPartition, int]) -> bool:
    return True


def _follow_nothing(copy: CopyProgress, progress: ShardProgress) -> None:
    """Skip (d)."""
    assert copy.head is not None
    if progress.has_reached(progress.ends(copy.head)):
        progress.move_base(copy.head)


def _number_alone(kept: KeptSnapshots, token: Token) -> ShownSnapshot:
    for shown in kept:
        if shown.record.snapshot == token.snapshot:
            return shown
    msg = f"Snapshot {token} is gone."
    raise QueryError(msg)


def _count_markers(partition: PartitionProgress, end: int | None = None) -> Any:
    taken = _take(partition, end)
    if end is None:
        partition.written = max(partition.written, partition.position)
    return taken


_take = PartitionProgress.take


def _write_without_mark(progress: ShardProgress) -> ShardWrite | None:
    part = _write_part(progress)
    if part is None or part.state is None or progress.base is None:
        return part
    return ShardWrite(
        part.shard, ShardState(progress.base, part.state.offsets, part.state.fresh_at), part.changes
    )


_write_part = ShardProgress.write_part


def _use_any_leader(log: SnapshotLog, record: SnapshotRecord, now: int) -> None:
    if not log.is_live:
        log._gathered.append(record)
    else:
        log._use(record, now)


def _trust_topic_ids(applier: Applier, request: int, ids: Mapping[str, str]) -> None:
    known = applier._topic_ids or (applier._saved.topic_ids if applier._saved else None)
    if known is not None and set(ids) >= set(known):
        ids = {**known, "app-snapshots": ids["app-snapshots"]}
    _topic_ids(applier, request, ids)


_topic_ids = Applier.topic_ids


def _never_too_old(progress: ShardProgress, record: SnapshotRecord, now: int) -> None:
    progress.fresh_at = 1 << 62


def _list_changes_after_a_jump(
    progress: ShardProgress, record: SnapshotRecord, now: int
) -> ShardWrite:
    shown = progress.shown
    part = _write_whole(progress, record, now)
    progress.previous = shown
    return part


_write_whole = ShardProgress.write_whole


def _always(*_: object) -> bool:
    return True


MUTANTS = {
    "ends are taken after the commit": Mutant(WriterBuild(ends_before_commit=False)),
    "a new leader writes the newest record with present ends": Mutant(
        WriterBuild(carries_ends=False)
    ),
    "a record is written before its transactions": Mutant(WriterBuild(waits_for_all=False)),
    "at_least_once asks for ends before its last append": Mutant(
        WriterBuild(ends_after_appends=False)
    ),
    "counts are ignored": Mutant(None, ShardProgress, "follows", _ignore_counts),
    "since is ignored": Mutant(None, ShardProgress, "follows", _ignore_since),
    "a copy joins without asking for committed ends": Mutant(
        None, CopyProgress, "ask_ends", _join_at_once
    ),
    "a copy joins at a snapshot that lacks what it has": Mutant(
        None, ShardProgress, "holds_only", _join_behind_ends
    ),
    "a copy joins without counting from (a) on": Mutant(
        None, CopyProgress, "_follow", _follow_nothing
    ),
    "a token has no history": Mutant(None, KeptSnapshots, "at", _number_alone),
    "markers count as records": Mutant(None, PartitionProgress, "take", _count_markers),
    "a part is written without the mark": Mutant(
        None, ShardProgress, "write_part", _write_without_mark
    ),
    "a write goes in parts without a mark": Mutant(None, LocalCopy, "_marks", _no_marks),
    "records about other topics count": Mutant(None, SnapshotLog, "add", _use_any_leader),
    "topic ids are not compared before a snapshot is shown": Mutant(
        None, CopyProgress, "_is_confirmed", _always
    ),
    "a copy joins though a deletion may be gone": Mutant(
        None, CopyProgress, "_sees_deletions", _always
    ),
    "topic ids are not compared": Mutant(None, Applier, "topic_ids", _trust_topic_ids),
    "a copy is never too old": Mutant(None, ShardProgress, "refresh", _never_too_old),
    "a jump lists its changes": Mutant(
        None, ShardProgress, "write_whole", _list_changes_after_a_jump
    ),
}
"""Each wrong build, by what is wrong with it."""

NAMED = {
    "at_least_once asks for ends before its last append",
    "ends are taken after the commit",
    "counts are ignored",
    "a copy joins without asking for committed ends",
    "a token has no history",
}
"""Those that a push must find; the others are found nightly."""
