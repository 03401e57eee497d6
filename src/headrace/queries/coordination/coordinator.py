"""The coordinator: answers for the whole application, each time from one snapshot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple, Protocol

import msgspec

from headrace.queries.catalog import QueryableStore
from headrace.queries.coordination.answers import (
    NEWEST,
    Answer,
    Answers,
    Bound,
    Change,
    EventId,
    Heartbeat,
    Page,
    Reset,
)
from headrace.queries.coordination.asking import Asker, Wanted
from headrace.queries.coordination.copies import Copies
from headrace.queries.coordination.cursors import Cursor, OpenCursors, decode_cursor, encode_cursor
from headrace.queries.coordination.gathering import Gathered, Gatherer
from headrace.queries.coordination.local_answers import InThread, token_from
from headrace.queries.coordination.local_reads import PeerTransport, ShardAnswer
from headrace.queries.coordination.merging import ShardItems, chained, merged
from headrace.queries.coordination.queried_instance import QueriedInstance
from headrace.queries.coordination.read_plans import ReadPlan
from headrace.queries.coordination.watching import EventBuffer, Watch, Watched, watch_store
from headrace.queries.copy.layout import Shard
from headrace.queries.copy.views import ShownSnapshot
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.reads import GetKey, Operation, Row, ScanKeys, whole_read
from headrace.queries.store_views import get_entry
from headrace.queries.tokens import Token, token_of
from headrace.runtime.snapshots import SnapshotRecord

CHUNK_ROWS = 500
"""How many rows of a shard one request of a stream asks for."""


class Pinned(NamedTuple):
    """A snapshot that copies keep."""

    token: Token
    record: SnapshotRecord
    kept: tuple[str, frozenset[Shard]]
    """The cursor that keeps it, and the shards."""


class Coordinator:
    """Answers reads of all shards, wherever they are. Every refusal is a `QueryProblemError`.

    Args:
        instance: The instance of this process.
        transport: How to ask the others.
        clock: The time in seconds.
        in_thread: Runs what may take long, beside the event loop.
    """

    def __init__(
        self,
        instance: QueriedInstance,
        transport: PeerTransport,
        *,
        clock: Callable[[], float] = time.monotonic,
        in_thread: InThread = asyncio.to_thread,
    ) -> None:
        self._instance = instance
        self._copies = Copies(instance, clock)
        self._asker = Asker(instance, transport, self._copies, in_thread)
        self._gatherer = Gatherer(instance, self._asker, self._copies, clock)
        self._cursors = OpenCursors(self._asker, clock)

    def newest_local(
        self, store: str, key: bytes
    ) -> tuple[bytes | None, int | None, ShownSnapshot] | None:
        """Return value, timestamp and snapshot of a key if this instance has a ready copy of it.

        The value is None if the store does not have the key. None in place of all three: ask
        `read_key`.
        """
        instance = self._instance
        record = instance.newest_record()
        if record is None:
            return None
        found = instance.catalog.store(store)
        shard = instance.catalog.shard_of_key(found, key, record)
        if shard is None or not instance.is_shard_ready(shard):
            return None
        shown = instance.snapshots.newest_of(shard)
        if shown is None or not self._copies.passes_floor(shard, shown.record):
            return None
        entry = get_entry(shown, found, shard.partition, key)
        return (None, None, shown) if entry is None else (*entry, shown)

    async def read_key(
        self, store: str, key: bytes, bound: Bound = NEWEST, operation: Operation | None = None
    ) -> Answer:
        """Return the rows of one key; by default its value, of a key-value store."""
        if operation is None and bound.at is None and not bound.position:
            here = self._read_here(store, key, bound.minimum)
            if here is not None:
                return here
        answers = await self.read_many([(store, operation or GetKey(key))], bound)
        return Answer(answers.rows[0], answers.token, answers.record)

    def _read_here(self, store: str, key: bytes, minimum: Token | None) -> Answer | None:
        """Return the value of a key if the copy of this instance is new enough."""
        found = self.newest_local(store, key)
        if found is None or self._instance.problem() is not None:
            return None
        value, timestamp, shown = found
        token = token_of(shown.record)
        if minimum is not None and (
            minimum.history != token.history or minimum.snapshot > token.snapshot
        ):
            return None
        is_versioned = self._instance.catalog.store(store).type.is_versioned
        start = timestamp if is_versioned else None
        rows = [] if value is None else [Row(key, value, timestamp, start, None, key)]
        return Answer(rows, token, shown.record)

    async def read_many(
        self,
        reads: Sequence[tuple[str, Operation]],
        bound: Bound = NEWEST,
        *,
        limit: int = 1_000,
    ) -> Answers:
        """Return the rows of several reads, of store and operation, all of one snapshot.

        A read with more rows than the limit is refused.
        """
        known = [(self._instance.catalog.store(name), operation) for name, operation in reads]
        plans = [ReadPlan(self._instance, store, each, limit + 1) for store, each in known]

        def plan(record: SnapshotRecord) -> list[Wanted]:
            return [wanted for each in plans for wanted in each(record)]

        gathered = await self._gatherer.gather(plan, bound)
        answers = iter(zip(gathered.wanted, gathered.answers, strict=True))
        rows = []
        for each in plans:
            parts = [*islice(answers, len(each(gathered.record)))]
            rows.append(await self._all_rows(each, gathered.token, parts, limit))
        return Answers(rows, gathered.token, gathered.record)

    async def _all_rows(
        self,
        plan: ReadPlan,
        token: Token,
        parts: Sequence[tuple[Wanted, ShardAnswer]],
        limit: int,
    ) -> list[Row]:
        rows: list[Row] = []
        async for batch in self._batches(plan, token, parts, limit):
            rows.extend(row for _, row in batch)
            if len(rows) > limit:
                msg = f"A read has more than {limit} rows. Narrow its range, or page through it."
                raise QueryProblemError(ProblemCode.LIMIT_TOO_LARGE, msg)
        return rows

    async def page(
        self,
        store: str,
        operation: Operation | None,
        bound: Bound = NEWEST,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        """Return a page of a read over all shards. With a cursor the operation may be None."""
        found = self._instance.catalog.store(store)
        behind = None if cursor is None else _checked_cursor(cursor, store, operation)
        if behind is not None:
            operation, bound = behind.operation, Bound(at=token_from(behind.token))
        if operation is None or limit < 1:
            msg = "A page needs an operation or a cursor, and a limit of 1 or more."
            raise QueryProblemError(ProblemCode.BAD_REQUEST, msg)
        plan = ReadPlan(self._instance, found, operation, limit + 1, behind)
        cursor_id = behind.id if behind is not None and behind.id else None
        gathered = await self._gather_page(plan, bound, behind)
        token, record = gathered.token, gathered.record
        rows: list[tuple[int, Row]] = []
        parts = [*zip(gathered.wanted, gathered.answers, strict=True)]
        async for batch in self._batches(plan, token, parts, limit + 1, cursor_id):
            rows.extend(batch)
            if len(rows) > limit:
                break
        page = [row for _, row in rows[:limit]]
        # A page that is not the first may need fewer shards, but its cursor is open on all.
        shards = {each.shard for each in ReadPlan(self._instance, found, operation, 0)(record)}
        if len(rows) <= limit:
            if cursor_id is not None:
                self._cursors.close(token, shards, cursor_id)
            return Page(page, None, token, record)
        if cursor_id is None:
            cursor_id = self._cursors.open(token, shards)
        else:
            self._cursors.renew(token, shards, cursor_id)
        partition, last = rows[limit - 1]
        following = Cursor(str(token), store, operation, partition, last.position, cursor_id)
        return Page(page, encode_cursor(following), token, record)

    async def _gather_page(self, plan: ReadPlan, bound: Bound, behind: Cursor | None) -> Gathered:
        try:
            return await self._gatherer.gather(plan, bound, behind.id or None if behind else None)
        except QueryProblemError as error:
            if behind is not None and error.code is ProblemCode.SNAPSHOT_GONE:
                msg = "The snapshot of the cursor is gone. Begin again with the first page."
                raise QueryProblemError(ProblemCode.CURSOR_EXPIRED, msg) from error
            raise

    async def rows(
        self, store: str, operation: Operation, bound: Bound = NEWEST
    ) -> tuple[Token, SnapshotRecord, AsyncIterator[Row]]:
        """Return the token, the record and all rows of a read over all shards.

        The copies keep the snapshot as long as rows are taken, up to 15 minutes.
        """
        token, record, batches = await self.row_batches(store, operation, bound)

        async def rows() -> AsyncIterator[Row]:
            async for batch in batches:
                for row in batch:
                    yield row

        return token, record, rows()

    async def row_batches(
        self, store: str, operation: Operation, bound: Bound = NEWEST
    ) -> tuple[Token, SnapshotRecord, AsyncIterator[list[Row]]]:
        """Return the same as `rows`, with the rows in lists."""
        found = self._instance.catalog.store(store)
        plan = ReadPlan(self._instance, found, operation, CHUNK_ROWS)
        gathered = await self._gatherer.gather(plan, bound)
        token, shards = gathered.token, {each.shard for each in gathered.wanted}
        is_complete = all(each.is_complete for each in gathered.answers)
        cursor = None if is_complete else self._cursors.open(token, shards)

        async def batches() -> AsyncIterator[list[Row]]:
            parts = [*zip(gathered.wanted, gathered.answers, strict=True)]
            try:
                async for batch in self._batches(plan, token, parts, CHUNK_ROWS, cursor):
                    if cursor is not None:
                        self._cursors.renew(token, shards, cursor)
                    yield [row for _, row in batch]
            finally:
                if cursor is not None:
                    self._cursors.close(token, shards, cursor)

        return gathered.token, gathered.record, batches()

    async def pin(
        self, stores: Sequence[str], bound: Bound = NEWEST
    ) -> tuple[Token, SnapshotRecord]:
        """Return a snapshot that all shards of some stores have, and keep it for 60 s."""
        token, record, _ = await self.pin_until_closed(stores, bound)
        return token, record

    async def pin_until_closed(self, stores: Sequence[str], bound: Bound = NEWEST) -> Pinned:
        """Return the same, and the cursor that keeps the snapshot: close it with `unpin`."""
        here = self._newest_here(stores, bound)
        if here is not None:
            token, record, shards = here
            return Pinned(token, record, (self._cursors.open(token, shards), shards))
        found = [self._instance.catalog.store(name) for name in stores]
        plans = [ReadPlan(self._instance, store, ScanKeys(), 0) for store in found]

        def plan(record: SnapshotRecord) -> list[Wanted]:
            return [wanted for each in plans for wanted in each(record)]

        gathered = await self._gatherer.gather(plan, bound)
        shards = frozenset(each.shard for each in gathered.wanted)
        cursor = self._cursors.open(gathered.token, shards)
        return Pinned(gathered.token, gathered.record, (cursor, shards))

    def unpin(self, pinned: Pinned) -> None:
        """Keep a snapshot no longer."""
        cursor, shards = pinned.kept
        self._cursors.close(pinned.token, shards, cursor)

    def pin_here(
        self, stores: Sequence[str], bound: Bound = NEWEST
    ) -> tuple[Token, SnapshotRecord] | None:
        """Return the newest snapshot of this instance's own copy, if it has all shards.

        It is for reads that nothing interrupts: no cursor keeps it.
        """
        here = self._newest_here(stores, bound)
        return None if here is None else here[:2]

    def _newest_here(
        self, stores: Sequence[str], bound: Bound
    ) -> tuple[Token, SnapshotRecord, frozenset[Shard]] | None:
        instance, record = self._instance, self._instance.newest_record()
        found = [instance.catalog.store(name) for name in stores]
        if record is None or bound.at is not None or bound.position or instance.problem():
            return None
        shards = {shard for each in found for shard in instance.catalog.shards(each, record)}
        shown = instance.snapshots.newest_with(shards)
        if shown is None or not all(map(instance.is_shard_ready, shards)):
            return None
        then = {shard for each in found for shard in instance.catalog.shards(each, shown.record)}
        token, minimum = token_of(shown.record), bound.minimum
        is_old = self._copies.floor(shards, token.history) > token.snapshot or (
            minimum is not None
            and (minimum.history != token.history or minimum.snapshot > token.snapshot)
        )
        if then != shards or is_old:
            return None
        self._copies.raise_floors(shards, token)
        return token, shown.record, frozenset(shards)

    def watch(
        self,
        store: str,
        *,
        key: bytes | None = None,
        prefix: bytes | None = None,
        since: EventId | None = None,
    ) -> AsyncIterator[Change | Reset | Heartbeat]:
        """Yield the changes of a store, snapshot by snapshot, in the order of their bytes.

        Args:
            store: The store.
            key: Only the changes of this key.
            prefix: Only the changes of keys with this prefix.
            since: The reader has everything up to here; None: it begins at the newest snapshot,
                and the first event has its token.
        """
        found = self._instance.catalog.store(store)
        watched = Watched(found, key, prefix)
        events = EventBuffer()
        watch = Watch(self._instance, self._asker, self._copies, self.pin, watched, events)
        return watch_store(watch, since)

    def _batches(
        self,
        plan: ReadPlan,
        token: Token,
        parts: Sequence[tuple[Wanted, ShardAnswer]],
        limit: int,
        cursor: str | None = None,
    ) -> AsyncIterator[list[tuple[int, Row]]]:
        """Return all rows of a read at a token, in its order, with their partitions."""
        shards: dict[int, ShardItems[Row]] = {}
        for wanted, answer in parts:
            first = shards.get(wanted.shard.partition)
            rows = [*first.items, *answer.rows] if first else answer.rows
            shards[wanted.shard.partition] = ShardItems(
                wanted.shard.partition,
                rows,
                self._fetch(token, wanted, limit, cursor),
                is_complete=answer.is_complete,
            )
        if isinstance(plan.operation, ScanKeys):
            descending = plan.operation.descending
            return merged([*shards.values()], lambda row: row.key, descending=descending)
        return chained([*shards.values()])

    def _fetch(
        self, token: Token, wanted: Wanted, limit: int, cursor: str | None
    ) -> Callable[[Row | None], Awaitable[tuple[Sequence[Row], bool]]]:
        async def fetch(last: Row | None) -> tuple[Sequence[Row], bool]:
            after = wanted.read.after if last is None else last.position
            read = msgspec.structs.replace(wanted.read, after=after, limit=limit)

            def plan(_record: SnapshotRecord) -> list[Wanted]:
                return [Wanted(wanted.shard, read)]

            gathered = await self._gatherer.gather(plan, Bound(at=token), cursor)
            return gathered.answers[0].rows, gathered.answers[0].is_complete

        return fetch


def _checked_cursor(text: str, store: str, operation: Operation | None) -> Cursor:
    cursor = decode_cursor(text)
    if cursor.store != store or operation not in (None, cursor.operation):
        msg = "The cursor is of another read. Send it with the store and the range of its page."
        raise QueryProblemError(ProblemCode.BAD_REQUEST, msg)
    return cursor


class ClosableTransport(PeerTransport, Protocol):
    """Asks instances, in one event loop."""

    async def close(self) -> None:
        """Close the connections."""


def read_whole_store(
    instance: QueriedInstance, transport: ClosableTransport, name: str
) -> tuple[QueryableStore, list[Row]]:
    """Return a store and all its rows, of one snapshot, wherever its shards are.

    ``transport`` asks the other instances, and is closed then.

    Raises:
        QueryProblemError: There is no such store, or no snapshot that all shards have.
    """
    # The caller may have an event loop of its own, as in a notebook.
    with ThreadPoolExecutor(1, "headrace-whole-store") as thread:
        return thread.submit(asyncio.run, _read_rows(instance, transport, name)).result()


async def _read_rows(
    instance: QueriedInstance, transport: ClosableTransport, name: str
) -> tuple[QueryableStore, list[Row]]:
    try:
        store = instance.catalog.store(name)
        coordinator = Coordinator(instance, transport)
        _, _, batches = await coordinator.row_batches(name, whole_read(store.type))
        return store, [row async for batch in batches for row in batch]
    finally:
        await transport.close()
