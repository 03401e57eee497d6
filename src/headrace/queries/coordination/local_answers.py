"""Answers from the shards that an instance itself has: what it tells its peers, and itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from headrace.errors import QueryError
from headrace.queries.catalog import QueryableStore
from headrace.queries.coordination.local_reads import (
    LocalAnswer,
    LocalProblem,
    LocalRead,
    Outcome,
    ShardAnswer,
    ShardRead,
)
from headrace.queries.coordination.queried_instance import QueriedInstance, await_change
from headrace.queries.copy.layout import Shard
from headrace.queries.copy.views import ShownSnapshot
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.reads import GetKey, Row
from headrace.queries.store_views import is_sorted, read_rows
from headrace.queries.tokens import Token, parse_token, token_of

MOST_BYTES = 4 << 20
"""How many bytes of keys and values an answer has, unless one row of each shard has more."""
MOST_WAIT_MS = 30_000
"""How long an answer waits at most, whatever a peer asks for."""

T = TypeVar("T")
_Found: TypeAlias = tuple[ShownSnapshot | None, list[Outcome]]


class InThread(Protocol):
    """Calls a function that takes long, beside the event loop."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]:
        """Return its result."""
        ...


async def answer_locally(
    instance: QueriedInstance,
    read: LocalRead,
    *,
    has_status: bool = True,
    in_thread: InThread = asyncio.to_thread,
) -> LocalAnswer:
    """Return what an instance has of its shards, and wait for the snapshot if the read says so.

    Args:
        instance: The instance.
        read: The read of a peer, or of its own coordinator.
        has_status: Whether the answer has the status of the instance, as peers need it.
        in_thread: Runs what may take long.
    """
    try:
        reading = _Reading(instance, read)
        seconds = min(read.wait_ms, MOST_WAIT_MS) / 1_000
        found = await await_change(instance, reading.find, seconds) or reading.look()
        if all(isinstance(each.operation, GetKey) or each.limit <= 0 for each in read.reads):
            answer = reading.answer(*found)
        else:
            answer = await in_thread(partial(reading.answer, *found))
    except QueryProblemError as error:
        answer = LocalAnswer(problem=LocalProblem(error.code.name, error.detail))
    return msgspec.structs.replace(answer, status=instance.status()) if has_status else answer


def token_from(text: str) -> Token:
    """Return a token that a client or a peer has sent.

    Raises:
        QueryProblemError: The text is no token.
    """
    try:
        return parse_token(text)
    except QueryError as error:
        raise QueryProblemError(ProblemCode.BAD_REQUEST, str(error)) from error


class _Reading:
    """A read of the shards of one instance."""

    def __init__(self, instance: QueriedInstance, read: LocalRead) -> None:
        self._instance = instance
        self._read = read
        self._stores = [instance.catalog.store(each.store) for each in read.reads]
        self._shards = [
            Shard(store.group, each.partition)
            for store, each in zip(self._stores, read.reads, strict=True)
        ]
        self._at = None if read.at is None else token_from(read.at)
        self._minimum = None if read.minimum is None else token_from(read.minimum)

    def find(self) -> _Found | None:
        """Return the snapshot and the result of each shard; None: the copy may have it later."""
        found = self.look()
        is_behind = "behind" in found[1] or (found[0] is None and not self._shards)
        return None if is_behind else found

    def look(self) -> _Found:
        """Return the snapshot, None if the instance does not show it, and results."""
        if self._at is None:
            return self._look_for_newest()
        shown = None
        with suppress(QueryError):
            shown = self._instance.snapshots.at(self._at)
        return shown, [self._outcome_at(self._at, shown, shard) for shard in self._shards]

    def _outcome_at(self, at: Token, shown: ShownSnapshot | None, shard: Shard) -> Outcome:
        if shown is not None and shard in shown.shards:
            return "rows"
        newest = self._instance.snapshots.newest_of(shard)
        if newest is None:
            return "not_ready"
        token = token_of(newest.record)
        return "behind" if token.history == at.history and token.snapshot < at.snapshot else "gone"

    def _look_for_newest(self) -> _Found:
        instance = self._instance
        if not all(instance.is_shard_ready(shard) for shard in self._shards):
            return None, ["not_ready"] * len(self._shards)
        shards = set(self._shards)
        for shown in reversed([*instance.snapshots]):
            if shards <= shown.shards.keys():
                outcome = self._outcome_of_newest(shown)
                return shown if outcome == "rows" else None, [outcome] * len(self._shards)
        return None, ["not_ready"] * len(self._shards)

    def _outcome_of_newest(self, shown: ShownSnapshot) -> Outcome:
        if self._minimum is None:
            return "rows"
        token = token_of(shown.record)
        if token.history != self._minimum.history:
            return "gone"
        return "rows" if token.snapshot >= self._minimum.snapshot else "behind"

    def answer(self, shown: ShownSnapshot | None, outcomes: Sequence[Outcome]) -> LocalAnswer:
        """Return the rows of all shards that have the snapshot."""
        if shown is None:
            return LocalAnswer(shards=[ShardAnswer(outcome) for outcome in outcomes])
        cursor = self._read.cursor
        if cursor is not None and self._read.closes_cursor:
            shown.cursors.pop(cursor, None)
        elif cursor is not None:
            self._instance.snapshots.use_cursor(shown, cursor)
        return LocalAnswer(
            token=str(token_of(shown.record)),
            record=shown.record if self._read.wants_record else None,
            shards=[
                self._read_shard(shown, store, read, MOST_BYTES // len(outcomes))
                if outcome == "rows"
                else ShardAnswer(outcome)
                for store, read, outcome in zip(
                    self._stores, self._read.reads, outcomes, strict=True
                )
            ],
        )

    def _read_shard(
        self, shown: ShownSnapshot, store: QueryableStore, read: ShardRead, most_bytes: int
    ) -> ShardAnswer:
        rows: list[Row] = []
        size = 0
        if read.limit <= 0:
            return ShardAnswer("rows", rows, is_complete=False)
        snapshots = self._instance.snapshots
        scan = (store.name, read.partition, read.operation)
        found = snapshots.take_scan(shown, (*scan, read.after))
        if found is None:
            found = read_rows(shown, store, read.partition, read.operation, read.after)
        for row in found:
            if len(rows) >= read.limit or size >= most_bytes:
                if is_sorted(shown, store, read.partition, read.operation):
                    position = (*scan, rows[-1].position)
                    snapshots.put_scan(shown, position, chain((row,), found))
                return ShardAnswer("rows", rows, is_complete=False)
            rows.append(row)
            size += len(row.key) + len(row.value)
        return ShardAnswer("rows", rows)
