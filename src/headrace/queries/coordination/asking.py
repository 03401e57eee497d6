"""Asks the copies of shards for one snapshot: one copy after the other, until all have answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from headrace.errors import QueryError
from headrace.queries.coordination.copies import HERE, Copies
from headrace.queries.coordination.local_answers import InThread, answer_locally, token_from
from headrace.queries.coordination.local_changes import answer_changes
from headrace.queries.coordination.local_reads import (
    ChangesAnswer,
    LocalAnswer,
    LocalChanges,
    LocalRead,
    PeerTransport,
    PeerUnreachableError,
    ShardAnswer,
    ShardRead,
)
from headrace.queries.coordination.queried_instance import QueriedInstance
from headrace.queries.copy.layout import Shard
from headrace.queries.problems import ProblemCode
from headrace.queries.tokens import Token, token_of
from headrace.runtime.snapshots import SnapshotRecord

COPY_WAIT_MS = 500
"""How long one copy waits for a snapshot that it does not show yet."""
ANSWER_SECONDS = 1.0
"""How long a peer may take for its answer, besides waiting for a snapshot."""
KNOWN_RECORDS = 300
"""How many snapshot records a coordinator remembers."""

_log = logging.getLogger("headrace")

_SAME_EVERYWHERE = {
    ProblemCode.WRONG_STORE_KIND,
    ProblemCode.BAD_KEY,
    ProblemCode.BAD_RANGE,
    ProblemCode.BAD_REQUEST,
    ProblemCode.LIMIT_TOO_LARGE,
}
"""Problems of a request that every copy would report."""

A = TypeVar("A", LocalAnswer, ChangesAnswer)
T = TypeVar("T")
R = TypeVar("R", LocalRead, LocalChanges)


async def all_of(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of all calls; if one fails, the others end too."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


class Wanted(NamedTuple):
    """A read of one shard."""

    shard: Shard
    read: ShardRead


@dataclass
class Refused:
    """No copy of a shard has the snapshot."""

    shard: Shard
    outcomes: set[str] = field(default_factory=set)
    """The outcomes that its copies have answered, or ``unreachable``."""


class Asker:
    """Asks this instance and its peers.

    Args:
        instance: The instance of this process.
        transport: How to ask the others.
        copies: Which instances to ask.
        in_thread: Runs what may take long.
    """

    def __init__(
        self,
        instance: QueriedInstance,
        transport: PeerTransport,
        copies: Copies,
        in_thread: InThread,
    ) -> None:
        self._instance = instance
        self._transport = transport
        self._copies = copies
        self._in_thread = in_thread
        self._records: dict[Token, SnapshotRecord] = {}
        self._background: set[asyncio.Task[LocalAnswer | None]] = set()

    async def read_at(
        self,
        token: Token,
        wanted: Sequence[Wanted],
        wait_ms: int,
        *,
        is_pinned: bool,
        cursor: str | None = None,
    ) -> list[ShardAnswer] | Refused:
        """Return the answer to each read, all of one snapshot; or a shard that has none.

        Args:
            token: The snapshot.
            wanted: The reads.
            wait_ms: How long a copy may wait for the snapshot.
            is_pinned: Whether copies may answer that are not ready.
            cursor: The open cursor that reads.
        """
        answers: dict[int, ShardAnswer] = {}
        asked: dict[Shard, set[str]] = {each.shard: set() for each in wanted}
        refused = {shard: Refused(shard) for shard in asked}
        while pending := {each.shard for i, each in enumerate(wanted) if i not in answers}:
            groups: dict[str, list[int]] = {}
            for shard in sorted(pending):
                order = self._copies.to_ask(
                    shard, token.history, token.snapshot, is_pinned=is_pinned
                )
                member = next((each for each in order if each not in asked[shard]), None)
                if member is None:
                    return refused[shard]
                asked[shard].add(member)
                group = groups.setdefault(member, [])
                group.extend(i for i, each in enumerate(wanted) if each.shard == shard)
            found = await all_of(
                self._read_of(
                    member,
                    LocalRead(
                        reads=tuple(wanted[i].read for i in group),
                        at=str(token),
                        wait_ms=wait_ms,
                        cursor=cursor,
                    ),
                )
                for member, group in groups.items()
            )
            for i, result in chain(*map(zip, groups.values(), found)):
                if isinstance(result, ShardAnswer) and result.outcome == "rows":
                    answers[i] = result
                else:
                    outcome = result if isinstance(result, str) else result.outcome
                    refused[wanted[i].shard].outcomes.add(outcome)
        return [answers[i] for i in range(len(wanted))]

    async def _read_of(self, member: str, read: LocalRead) -> Sequence[ShardAnswer | str]:
        """Return what one instance answers to each read; never rows of another snapshot."""
        answer = await self.read(member, read)
        if answer is None or len(answer.shards) != len(read.reads):
            return ["unreachable"] * len(read.reads)
        if answer.token not in (None, read.at):
            return ["gone"] * len(read.reads)
        return answer.shards

    async def read_newest(
        self, shard: Shard, reads: Sequence[ShardRead], minimum: Token, wait_ms: int
    ) -> tuple[Token, list[ShardAnswer]] | Refused:
        """Return the token and the answers of the first copy of a shard that is new enough."""
        refused = Refused(shard)
        for member in self._copies.to_ask(shard, minimum.history, minimum.snapshot):
            read = LocalRead(reads=tuple(reads), minimum=str(minimum), wait_ms=wait_ms)
            answer = await self.read(member, read)
            if answer is None or len(answer.shards) != len(reads):
                refused.outcomes.add("unreachable")
            elif answer.token is None or any(each.outcome != "rows" for each in answer.shards):
                refused.outcomes.update(each.outcome for each in answer.shards)
            else:
                token = token_from(answer.token)
                if token.history == minimum.history and token.snapshot >= minimum.snapshot:
                    return token, answer.shards
                refused.outcomes.add("gone")
        return refused

    async def record_at(self, token: Token) -> SnapshotRecord | None:
        """Return the record of a snapshot; None: no instance shows the snapshot."""
        record = self._known_record(token)
        if record is not None:
            return record
        for member in self._copies.peers():
            answer = await self.read(member, LocalRead(at=str(token), wants_record=True))
            record = None if answer is None else answer.record
            if record is not None and token_of(record) == token:
                self._remember(token, record)
                return record
        return None

    def _known_record(self, token: Token) -> SnapshotRecord | None:
        newest = self._instance.newest_record()
        if newest is not None:
            self._remember(token_of(newest), newest)
        record = self._records.get(token)
        if record is None:
            with suppress(QueryError):
                record = self._instance.snapshots.at(token).record
        return record

    def _remember(self, token: Token, record: SnapshotRecord) -> None:
        if token not in self._records and len(self._records) >= KNOWN_RECORDS:
            del self._records[next(iter(self._records))]
        self._records[token] = record

    def keep(
        self, token: Token, shards: Iterable[Shard], cursor: str, *, closes: bool = False
    ) -> None:
        """Make all copies of some shards keep the snapshot of a cursor, or no longer keep it.

        The peers do so in the background: the reader does not wait for them.
        """
        members = {
            member
            for shard in shards
            for member in self._copies.to_ask(
                shard, token.history, token.snapshot, is_pinned=closes
            )
        }
        if HERE in members:
            with suppress(QueryError):
                snapshots = self._instance.snapshots
                shown = snapshots.at(token)
                if closes:
                    shown.cursors.pop(cursor, None)
                else:
                    snapshots.use_cursor(shown, cursor)
        keeping = LocalRead(at=str(token), cursor=cursor, closes_cursor=closes)
        for member in sorted(members - {HERE}):
            task = asyncio.create_task(self.read(member, keeping))
            self._background.add(task)
            task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[LocalAnswer | None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # A copy that was not reached drops the snapshot when the cursor expires.
            _log.debug("A cursor was not noted: %s", task.exception())

    async def read(self, member: str, read: LocalRead) -> LocalAnswer | None:
        """Return the answer of an instance; None: it does not answer.

        Raises:
            QueryProblemError: Every copy would refuse the read.
        """
        if member == HERE:
            answer: LocalAnswer | None = await answer_locally(
                self._instance, read, has_status=False, in_thread=self._in_thread
            )
        else:
            answer = await self._ask(member, self._transport.read, read, read.wait_ms)
        return self._checked(answer)

    async def changes(self, member: str, request: LocalChanges) -> ChangesAnswer | None:
        """Return the changes of an instance; None: it does not answer.

        Raises:
            QueryProblemError: Every copy would refuse the request.
        """
        if member == HERE:
            answer: ChangesAnswer | None = await answer_changes(
                self._instance, request, has_status=False, in_thread=self._in_thread
            )
        else:
            answer = await self._ask(member, self._transport.changes, request, request.wait_ms)
        return self._checked(answer)

    async def _ask(
        self, member: str, send: Callable[[str, R], Awaitable[A]], request: R, wait_ms: int
    ) -> A | None:
        try:
            async with asyncio.timeout(wait_ms / 1_000 + ANSWER_SECONDS):
                answer = await send(member, request)
        except (PeerUnreachableError, TimeoutError):
            self._copies.note_failure(member)
            return None
        self._copies.note_answer(member, answer.status)
        return answer

    def _checked(self, answer: A | None) -> A | None:
        if answer is None or answer.problem is None:
            return answer
        error = answer.problem.to_error()
        if error.code in _SAME_EVERYWHERE:
            raise error
        return None
