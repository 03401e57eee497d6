"""The changes of the snapshots that an instance itself shows: the steps of a watch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Literal, TypeAlias

import msgspec

from headrace.errors import QueryError
from headrace.queries.coordination.local_answers import (
    MOST_BYTES,
    MOST_WAIT_MS,
    InThread,
    token_from,
)
from headrace.queries.coordination.local_reads import (
    ChangedRow,
    ChangesAnswer,
    LocalChanges,
    LocalProblem,
    ShardChanges,
)
from headrace.queries.coordination.queried_instance import QueriedInstance, await_change
from headrace.queries.copy.layout import Shard
from headrace.queries.copy.views import ShownSnapshot
from headrace.queries.problems import QueryProblemError
from headrace.queries.reads import Row
from headrace.queries.store_views import ChangedKey, changed_rows
from headrace.queries.tokens import Token, token_of

_Step: TypeAlias = ShownSnapshot | Literal["gap", "not_ready"]


async def answer_changes(
    instance: QueriedInstance,
    request: LocalChanges,
    *,
    has_status: bool = True,
    in_thread: InThread = asyncio.to_thread,
) -> ChangesAnswer:
    """Return what the next snapshot of an instance has changed, and wait for it if asked to.

    Args:
        instance: The instance.
        request: The request of a peer, or of its own coordinator.
        has_status: Whether the answer has the status of the instance, as peers need it.
        in_thread: Runs what may take long.
    """
    try:
        step = _ChangesStep(instance, request)
        seconds = min(request.wait_ms, MOST_WAIT_MS) / 1_000
        found: _Step | None = await await_change(instance, step.find, seconds)
        if isinstance(found, ShownSnapshot):
            answer = await in_thread(partial(step.answer, found))
        else:
            answer = ChangesAnswer(outcome=found or "none")
    except QueryProblemError as error:
        problem = LocalProblem(error.code.name, error.detail)
        answer = ChangesAnswer(outcome="not_ready", problem=problem)
    return msgspec.structs.replace(answer, status=instance.status()) if has_status else answer


class _ChangesStep:
    """A step of a watch: the next snapshot of some shards."""

    def __init__(self, instance: QueriedInstance, request: LocalChanges) -> None:
        self._instance = instance
        self._request = request
        self._store = instance.catalog.store(request.store)
        self._shards = [Shard(self._store.group, each) for each in request.partitions]
        self._after = token_from(request.after)
        self._at = None if request.at is None else token_from(request.at)

    def find(self) -> _Step | None:
        """Return the snapshot that is next for all shards; None: there is none yet."""
        if self._at is not None:
            return self._look_at(self._at)
        found: set[int] = set()
        shown = None
        for shard in self._shards:
            newest = self._instance.snapshots.newest_of(shard)
            if newest is None or not self._instance.is_shard_ready(shard):
                return "not_ready"
            token = token_of(newest.record)
            if token.history == self._after.history and token.snapshot <= self._after.snapshot:
                return None
            steps = self._instance.snapshots.changes_after(self._after, shard)
            if not steps:
                return "gap"
            shown = steps[0]
            found.add(shown.record.snapshot)
        return shown if len(found) == 1 else "gap"

    def _look_at(self, at: Token) -> _Step | None:
        try:
            shown = self._instance.snapshots.at(at)
        except QueryError:
            shown = None
        if shown is not None:
            is_whole = all(shown.shards.get(shard) is not None for shard in self._shards)
            return shown if is_whole else "gap"
        newest = [self._instance.snapshots.newest_of(shard) for shard in self._shards]
        tokens = [token_of(each.record) for each in newest if each is not None]
        is_behind = any(
            each.history == at.history and each.snapshot < at.snapshot for each in tokens
        )
        return None if is_behind else "gap"

    def answer(self, shown: ShownSnapshot) -> ChangesAnswer:
        """Return the changes of a snapshot."""
        positions = {each[0]: each[1:] for each in self._request.positions}
        return ChangesAnswer(
            outcome="changes",
            token=str(token_of(shown.record)),
            shards=[
                self._changes(shown, partition, positions.get(partition, (b"", True)))
                for partition in self._request.partitions
            ],
        )

    def _changes(
        self, shown: ShownSnapshot, partition: int, start: tuple[bytes, bool]
    ) -> ShardChanges:
        position, is_included = start
        rows: list[ChangedRow] = []
        size = 0
        after = None if is_included else position
        most_bytes = MOST_BYTES // len(self._shards)
        for row in self._matching(changed_rows(shown, self._store, partition, after)):
            if row.position < position:
                continue
            if len(rows) >= self._request.limit or size >= most_bytes:
                return ShardChanges(rows, is_complete=False)
            rows.append(row)
            size += len(row.key) + len(row.value or b"")
        return ShardChanges(rows)

    def _matching(self, changes: Iterator[tuple[ChangedKey, Row | None]]) -> Iterator[ChangedRow]:
        wanted, prefix = self._request.key, self._request.prefix
        for (key, start, end, position), row in changes:
            if (wanted is None or key == wanted) and (prefix is None or key.startswith(prefix)):
                if row is None:
                    yield ChangedRow(key, None, None, start, end, position)
                else:
                    yield ChangedRow(key, row.value, row.timestamp, row.start, row.end, position)
