"""Builds that are wrong on purpose. The model must find each of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from chaos.queries_model.simulation import AT_LEAST_ONCE
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
from headrace.queries.transfer.fetching import ShardFetch
from headrace.queries.transfer.messages import (
    ShardHeader,
    TransferError,
    frames,
    header_of,
    part_of,
)
from headrace.runtime.snapshots import SnapshotRecord
from headrace.state.changelog import VersionChangelog


@dataclass(frozen=True)
class Mutant:
    """A wrong build: a writer, or an attribute of the instance's code."""

    writer: WriterBuild | None = None
    target: type | None = None
    name: str = ""
    replacement: Callable[..., Any] | property | None = None
    at_least_once: bool = False
    """Whether only applications with ``at_least_once`` can show it."""

    def seeds(self, count: int) -> range:
        """Return the first seeds that can find it."""
        if not self.at_least_once:
            return range(count)
        return range(AT_LEAST_ONCE - 1, AT_LEAST_ONCE * count, AT_LEAST_ONCE)


def _ignore_counts(progress: ShardProgress, record: SnapshotRecord) -> bool:
    return record.since == progress.base


def _ignore_since(progress: ShardProgress, record: SnapshotRecord) -> bool:
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


def _count_copies(partition: PartitionProgress, start: int, end: int) -> int:
    offsets = partition._offsets
    return bisect_left(offsets, end) - bisect_left(offsets, start)


def _accept_more(progress: ShardProgress, record: SnapshotRecord) -> bool:
    """Count every copy, and accept more records than changes."""
    if record.since != progress.base or record.changes is None:
        return False
    return all(
        _count_copies(each, progress.base_ends[name], record.end(*name))
        >= (record.change_count(*name) or 0)
        for name, each in progress.partitions.items()
    )


def _use_what_came(fetch: ShardFetch, chunks: Iterable[bytes]) -> ShardState:
    found = frames(chunks)
    state = fetch._checked(header_of(next(found)))
    with suppress(TransferError):
        for frame in found:
            part = part_of(frame)
            if not isinstance(part, int):
                fetch.entries.add(part)
    return state


def _use_any_peer(fetch: ShardFetch, header: ShardHeader) -> ShardState:
    return header.state


def _nothing(*_: object) -> None:
    """Do nothing."""


MUTANTS = {
    "ends are taken after the commit": Mutant(WriterBuild(ends_before_commit=False)),
    "a new leader writes the newest record with present ends": Mutant(
        WriterBuild(carries_ends=False)
    ),
    "a record is written before its transactions": Mutant(WriterBuild(waits_for_all=False)),
    "at_least_once asks for ends before its last append": Mutant(
        WriterBuild(ends_after_appends=False), at_least_once=True
    ),
    "at_least_once counts on after a batch was repeated": Mutant(
        WriterBuild(doubts_repeats=False), at_least_once=True
    ),
    "at_least_once accepts more records than changes": Mutant(
        None, ShardProgress, "follows", _accept_more, at_least_once=True
    ),
    "a late version is not followed by the latest": Mutant(
        None, VersionChangelog, "add_latest", _nothing
    ),
    "a shard of a peer is used though its bytes end early": Mutant(
        None, ShardFetch, "_fetch", _use_what_came
    ),
    "a shard of a peer of another history is used": Mutant(
        None, ShardFetch, "_checked", _use_any_peer
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
    "a late version is not followed by the latest",
    "a shard of a peer is used though its bytes end early",
    "counts are ignored",
    "a copy joins without asking for committed ends",
    "a token has no history",
}
"""Those that a push must find; the others are found nightly."""
