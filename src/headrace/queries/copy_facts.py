"""Facts about the copy of an instance, for readers in other threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.brokers.log import TopicPartition
from headrace.queries.copy.applier import Applier
from headrace.queries.copy.layout import CopyLayout, Shard
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.runtime.snapshots import SnapshotRecord

_SOON_MS = 1_000
"""After which time a reader may ask again."""


@dataclass(frozen=True)
class CopyFacts:
    """The state of an applier at one moment. It never changes."""

    record: SnapshotRecord | None = None
    """The newest snapshot record that was read."""
    problem: str | None = None
    """Why no snapshot can be shown."""
    kept: frozenset[Shard] = frozenset()
    """The shards that the instance keeps."""
    shown: Mapping[Shard, int] = field(default_factory=dict)
    """The newest snapshot that readers see of each shard."""
    ready: frozenset[Shard] = frozenset()
    lost: frozenset[Shard] = frozenset()
    """The shards of which a changelog has lost records."""
    details: Mapping[Shard, str] = field(default_factory=dict)
    """Why shards do not join."""
    is_ready: bool = False
    """Whether every kept shard is ready."""


def facts_of(applier: Applier) -> CopyFacts:
    """Return the present state of an applier."""
    kept = applier.kept
    shown = {shard: applier.newest_shown(shard) for shard in kept}
    details = {shard: applier.problem_of(shard) for shard in kept}
    return CopyFacts(
        applier.newest,
        applier.problem,
        kept,
        {shard: number for shard, number in shown.items() if number is not None},
        frozenset(filter(applier.is_shard_ready, kept)),
        frozenset(filter(applier.has_lost_records, kept)),
        {shard: text for shard, text in details.items() if text is not None},
        applier.is_ready(),
    )


def problem_of_copy(facts: CopyFacts, application_id: str) -> QueryProblemError | None:
    """Return why no shard can answer; None: some may."""
    if facts.problem is not None:
        return QueryProblemError(ProblemCode.OTHER_PROGRAM, facts.problem)
    if facts.record is None:
        return QueryProblemError(
            ProblemCode.STORE_NOT_READY,
            f"Application {application_id!r} has no snapshot yet. Start it, and ask again.",
            retry_after_ms=_SOON_MS,
        )
    return None


def problem_of_shard(facts: CopyFacts, shard: Shard) -> QueryProblemError | None:
    """Return why a shard cannot answer; None: it can."""
    if shard in facts.lost:
        return QueryProblemError(ProblemCode.LOST_RECORDS, facts.details[shard])
    if shard in facts.ready:
        return None
    state = "is not up to date with" if shard in facts.kept else "does not have"
    detail = facts.details.get(shard, f"This instance {state} {shard} yet. Ask again soon.")
    return QueryProblemError(ProblemCode.STORE_NOT_READY, detail, retry_after_ms=_SOON_MS)


def lags_of(
    facts: CopyFacts, layout: CopyLayout, ends: Mapping[Shard, SnapshotRecord]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return of each changelog partition the end that readers see, and the newest one.

    ``ends`` are the newest snapshots that readers see of each shard.
    """
    newest = facts.record
    if newest is None:
        return {}
    return {
        name: (ends[shard].end(*name) if shard in ends else 0, newest.end(*name))
        for shard in sorted(facts.kept)
        for name in layout.partitions(shard)
    }
