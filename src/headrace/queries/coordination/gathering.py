"""Chooses the snapshot of an answer, and gathers all shards of it, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from headrace.brokers.log import TopicPartition
from headrace.errors import QueryError
from headrace.queries.coordination.answers import Bound
from headrace.queries.coordination.asking import COPY_WAIT_MS, Asker, Refused, Wanted
from headrace.queries.coordination.copies import Copies
from headrace.queries.coordination.local_reads import ShardAnswer
from headrace.queries.coordination.queried_instance import QueriedInstance, await_change
from headrace.queries.copy.layout import Shard
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.tokens import Token, token_of
from headrace.runtime.snapshots import SnapshotRecord, is_reflected

READ_SECONDS = 2.0
"""Within this time a read has an answer or a problem, unless it waits for a bound."""
RETRY_AFTER_MS = 500
_PAUSE_SECONDS = 0.05
"""How long a read waits before it asks the same copies again."""

Plan: TypeAlias = Callable[[SnapshotRecord], Sequence[Wanted]]
"""Returns the reads of the shards that a snapshot has."""


@dataclass(frozen=True)
class Gathered:
    """The answers of all shards, of one snapshot."""

    token: Token
    record: SnapshotRecord
    wanted: Sequence[Wanted]
    answers: Sequence[ShardAnswer]
    """For each read its answer."""


class Gatherer:
    """Gathers the shards of reads.

    Args:
        instance: The instance of this process.
        asker: Asks the copies.
        copies: Which instances have which shards.
        clock: The time in seconds.
    """

    def __init__(
        self,
        instance: QueriedInstance,
        asker: Asker,
        copies: Copies,
        clock: Callable[[], float],
    ) -> None:
        self._instance = instance
        self._asker = asker
        self._copies = copies
        self._clock = clock

    async def gather(self, plan: Plan, bound: Bound, cursor: str | None = None) -> Gathered:
        """Return the answers of all shards of a read.

        Args:
            plan: Returns the reads of the shards.
            bound: Which snapshots may answer.
            cursor: The open cursor that reads, of the snapshot of the bound.

        Raises:
            QueryProblemError: There is no snapshot within the bound that all shards have.
        """
        self._newest()
        if bound.at is not None:
            return await self._gather_at(plan, bound.at, cursor)
        start = self._clock()
        waits_until = start + bound.wait_ms / 1_000
        minimum = await self._minimum(bound)
        attempt = _Attempt(plan, minimum, waits_until, max(start + READ_SECONDS, waits_until))
        while True:
            gathered = await self._attempt(attempt)
            if gathered is not None:
                shards = {each.shard for each in gathered.wanted}
                self._copies.raise_floors(shards, gathered.token)
                return gathered
            if self._clock() >= attempt.deadline:
                raise self._not_ready(attempt.shard)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _gather_at(self, plan: Plan, token: Token, cursor: str | None) -> Gathered:
        deadline = self._clock() + READ_SECONDS
        while True:
            newest = token_of(self._newest())
            if newest.history != token.history:
                raise gone(token)
            shard = None
            record = await self._asker.record_at(token)
            if record is not None:
                wanted = plan(record)
                found = await self._asker.read_at(
                    token, wanted, COPY_WAIT_MS, is_pinned=True, cursor=cursor
                )
                if not isinstance(found, Refused):
                    return Gathered(token, record, wanted, found)
                shard = found.shard
                if "gone" in found.outcomes and "behind" not in found.outcomes:
                    raise gone(token)
            elif token.snapshot <= newest.snapshot:
                raise gone(token)
            if self._clock() >= deadline:
                raise self._not_ready(shard)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _attempt(self, attempt: _Attempt) -> Gathered | None:
        """Return the answers at one token; None: some copies lack it, so try another token."""
        record = self._newest()
        history = token_of(record).history
        minimum = attempt.minimum
        if minimum is not None and minimum.history != history:
            if self._clock() >= attempt.waits_until:
                raise gone(minimum)
            return None
        wanted = attempt.plan(record)
        shards = sorted({each.shard for each in wanted})
        floor = self._copies.floor(shards, history)
        lowest = max(floor, minimum.snapshot if minimum else 0)
        if len(shards) == 1:
            return await self._newest_of_one(attempt, wanted, Token(history, lowest))
        token = self._choose(attempt, shards, Token(history, lowest))
        return await self._at(attempt, token)

    def _choose(self, attempt: _Attempt, shards: Sequence[Shard], lowest: Token) -> Token:
        """Return the newest token that all shards are known to have, or one behind the last."""
        known = []
        for shard in shards:
            newest = self._copies.newest_known(shard, lowest.history)
            if newest is None:
                raise self._not_ready(shard)
            known.append(newest)
        number = max(min(known, default=lowest.snapshot), lowest.snapshot)
        if number <= attempt.refused:
            newer = sorted({*known, self._newest().snapshot})
            number = next((each for each in newer if each > attempt.refused), number)
        return Token(lowest.history, number)

    async def _at(self, attempt: _Attempt, token: Token) -> Gathered | None:
        record = await self._asker.record_at(token)
        if record is not None:
            wanted = attempt.plan(record)
            wait_ms = attempt.wait_ms(token, self._clock())
            found = await self._asker.read_at(token, wanted, wait_ms, is_pinned=False)
            if not isinstance(found, Refused):
                return Gathered(token, record, wanted, found)
            self._check_refused(attempt, token, found)
        elif attempt.is_minimum(token) and self._clock() >= attempt.waits_until:
            raise _not_up_to(token)
        attempt.refused = max(attempt.refused, token.snapshot)
        return None

    async def _newest_of_one(
        self, attempt: _Attempt, wanted: Sequence[Wanted], lowest: Token
    ) -> Gathered | None:
        shard = wanted[0].shard
        reads = [each.read for each in wanted]
        wait_ms = attempt.wait_ms(lowest, self._clock())
        found = await self._asker.read_newest(shard, reads, lowest, wait_ms)
        if isinstance(found, Refused):
            if not found.outcomes:
                raise self._not_ready(shard)
            self._check_refused(attempt, lowest, found)
            return None
        token, answers = found
        record = await self._asker.record_at(token)
        if record is None:
            return None
        needed = attempt.plan(record)
        if needed != wanted:
            return await self._at(attempt, token)
        return Gathered(token, record, wanted, answers)

    def _check_refused(self, attempt: _Attempt, token: Token, refused: Refused) -> None:
        attempt.shard = refused.shard
        is_waiting = self._clock() < attempt.waits_until
        if "behind" in refused.outcomes and attempt.is_minimum(token) and not is_waiting:
            raise _not_up_to(token)

    async def _minimum(self, bound: Bound) -> Token | None:
        """Return the oldest token that a bound allows; wait until its records are reflected."""
        minimum = bound.minimum
        if not bound.position:
            return minimum
        try:
            record = await await_change(
                self._instance, partial(self._reflecting, bound.position), bound.wait_ms / 1_000
            )
        except QueryProblemError:
            raise
        except QueryError as error:
            raise QueryProblemError(ProblemCode.NOT_AN_INPUT, str(error)) from error
        if record is None:
            msg = "The records that the read must reflect are not reflected yet. Wait longer."
            raise QueryProblemError(ProblemCode.NOT_UP_TO_BOUND, msg, retry_after_ms=RETRY_AFTER_MS)
        token = token_of(record)
        is_enough = minimum is None or (
            minimum.history == token.history and minimum.snapshot <= token.snapshot
        )
        return token if is_enough else minimum

    def _reflecting(self, position: Mapping[TopicPartition, int]) -> SnapshotRecord | None:
        """Return the oldest known record that reflects some records of inputs."""
        found = self._newest()
        if not _reflects(found, position):
            return None
        for shown in reversed([*self._instance.snapshots]):
            record = shown.record
            has_inputs = all(name.topic in record.position for name in position)
            if record.history != found.history or not has_inputs:
                break
            if not _reflects(record, position):
                break
            found = record
        return found

    def _newest(self) -> SnapshotRecord:
        problem = self._instance.problem()
        if problem is not None:
            raise problem
        record = self._instance.newest_record()
        if record is None:
            msg = "This instance has read no snapshot of the application yet. Retry."
            raise QueryProblemError(ProblemCode.STORE_NOT_READY, msg, retry_after_ms=RETRY_AFTER_MS)
        return record

    def _not_ready(self, shard: Shard | None) -> QueryProblemError:
        known = None if shard is None else self._instance.shard_problem(shard)
        if known is not None and known.code is not ProblemCode.STORE_NOT_READY:
            return known
        wanted = "the snapshot" if shard is None else shard
        return QueryProblemError(
            ProblemCode.STORE_NOT_READY,
            f"No instance that answers has {wanted}. Retry, or start more instances.",
            retry_after_ms=RETRY_AFTER_MS,
        )


@dataclass
class _Attempt:
    """A read that has no token yet."""

    plan: Plan
    minimum: Token | None
    waits_until: float
    """The time in seconds until which it waits for ``minimum``."""
    deadline: float
    refused: int = -1
    """The newest snapshot that some shard did not have."""
    shard: Shard | None = None
    """A shard that did not answer."""

    def is_minimum(self, token: Token) -> bool:
        """Return whether a token is no newer than the bound asks for."""
        return self.minimum is not None and token.snapshot <= self.minimum.snapshot

    def wait_ms(self, token: Token, now: float) -> int:
        """Return how long a copy may wait for a token."""
        until = self.waits_until if self.is_minimum(token) else self.deadline
        return max(0, min(COPY_WAIT_MS, int((until - now) * 1_000)))


def _reflects(record: SnapshotRecord, position: Mapping[TopicPartition, int]) -> bool:
    return all(is_reflected(record.position, *name, each) for name, each in position.items())


def gone(token: Token) -> QueryProblemError:
    """Return the problem of a snapshot that no copy has any more."""
    msg = f"Snapshot {token} is gone. Ask again without a token."
    return QueryProblemError(ProblemCode.SNAPSHOT_GONE, msg)


def _not_up_to(token: Token) -> QueryProblemError:
    msg = f"No copy has snapshot {token} yet. Give a longer `wait_ms`, or retry."
    return QueryProblemError(ProblemCode.NOT_UP_TO_BOUND, msg, retry_after_ms=RETRY_AFTER_MS)
