"""Watches: the changes of a store, snapshot by snapshot, over all its shards."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

import msgspec

from headrace.queries.catalog import QueryableStore
from headrace.queries.coordination.answers import Change, EventId, Heartbeat, Reset
from headrace.queries.coordination.asking import Asker, all_of
from headrace.queries.coordination.copies import Copies
from headrace.queries.coordination.local_answers import token_from
from headrace.queries.coordination.local_reads import ChangedRow, LocalChanges, ShardChanges
from headrace.queries.coordination.merging import ShardItems, merged
from headrace.queries.coordination.queried_instance import QueriedInstance
from headrace.queries.copy.layout import Shard
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.tokens import Token, token_of
from headrace.runtime.snapshots import SnapshotRecord

QUEUED_EVENTS = 1_000
"""How many events wait for a reader at most."""
QUEUED_BYTES = 8 << 20
"""How many bytes of keys and values wait for a reader at most, unless one event has more."""
SLOW_SECONDS = 10.0
"""A reader that takes no event for this time while so many wait is cut off."""
HEARTBEAT_SECONDS = 5.0
POLL_MS = 1_000
"""How long one request waits for the next snapshot."""
CHUNK_CHANGES = 500
"""How many changes of a shard one request asks for."""
_PAUSE_SECONDS = 0.1
_NOBODY: Mapping[str, str] = {}

Event: TypeAlias = Change | Reset | Heartbeat


class Watched(NamedTuple):
    """A store, or some keys of it, that a reader watches."""

    store: QueryableStore
    key: bytes | None = None
    prefix: bytes | None = None


class EventBuffer:
    """The events that wait for a reader; a slow one is cut off.

    Args:
        size: How many events wait at most.
        most_bytes: How many bytes of keys and values they have at most.
        slow_seconds: How long a full buffer waits for its reader.
    """

    def __init__(
        self,
        size: int = QUEUED_EVENTS,
        most_bytes: int = QUEUED_BYTES,
        slow_seconds: float = SLOW_SECONDS,
    ) -> None:
        self._size = size
        self._most_bytes = most_bytes
        self._bytes = 0
        self._slow_seconds = slow_seconds
        self._events: deque[Event] = deque()
        self._arrived, self._taken = asyncio.Event(), asyncio.Event()
        self.failure: BaseException | None = None
        """Why no events follow."""

    async def put(self, event: Event) -> None:
        """Add an event.

        Raises:
            QueryProblemError: The reader has taken nothing for too long.
        """
        try:
            async with asyncio.timeout(self._slow_seconds):
                while self._is_full(event):
                    self._taken.clear()
                    await self._taken.wait()
        except TimeoutError:
            msg = "The reader of the watch is too slow. Resume behind its last event."
            raise QueryProblemError(ProblemCode.TIMEOUT, msg) from None
        self._events.append(event)
        self._bytes += _size_of(event)
        self._arrived.set()

    def _is_full(self, event: Event) -> bool:
        is_over = len(self._events) > 0 and self._bytes + _size_of(event) > self._most_bytes
        return is_over or len(self._events) >= self._size

    def close(self, failure: BaseException) -> None:
        """End the events."""
        self.failure = failure
        self._arrived.set()

    async def take(self, seconds: float) -> Event | None:
        """Return the next event; None: there is none in time."""
        if not self._events and self.failure is None:
            self._arrived.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._arrived.wait()
        if self._events:
            self._taken.set()
            event = self._events.popleft()
            self._bytes -= _size_of(event)
            return event
        if self.failure is not None:
            raise self.failure
        return None


def _size_of(event: Event) -> int:
    if not isinstance(event, Change):
        return 0
    return len(event.key) + len(event.event_id.position) + len(event.value or b"")


async def watch_store(
    watch: Watch, since: EventId | None, *, heartbeat_seconds: float = HEARTBEAT_SECONDS
) -> AsyncIterator[Event]:
    """Yield the events of a watch until the reader stops.

    Raises:
        QueryProblemError: The store is not ready at the start, or the reader is too slow.
    """
    producer = asyncio.create_task(watch.produce(since))
    try:
        while True:
            event = await watch.events.take(heartbeat_seconds)
            if event is not None:
                yield event
            elif watch.reached is not None:
                yield Heartbeat(watch.reached)
    finally:
        producer.cancel()
        await asyncio.gather(producer, return_exceptions=True)


class _GapError(Exception):
    """No copy knows the changes behind a token."""


class _NoCopyError(Exception):
    """No copy of a shard answers at present."""


class _Found(NamedTuple):
    """The next snapshot of a shard."""

    shard: Shard
    token: str
    changes: ShardChanges


class Watch:
    """Collects the changes of a store for one reader.

    Args:
        instance: The instance of this process.
        asker: Asks the copies.
        copies: Which instances have which shards.
        pin: Returns the newest snapshot that all shards of some stores have.
        watched: The store and the keys that the reader watches.
        events: Where the events wait for the reader.
    """

    def __init__(
        self,
        instance: QueriedInstance,
        asker: Asker,
        copies: Copies,
        pin: Callable[[Sequence[str]], Awaitable[tuple[Token, SnapshotRecord]]],
        watched: Watched,
        events: EventBuffer,
    ) -> None:
        self._instance = instance
        self._asker = asker
        self._copies = copies
        self._pin = pin
        self._watched = watched
        self.events = events
        self.reached: EventId | None = None
        """A reader that has taken all events has everything up to here."""

    async def produce(self, since: EventId | None) -> None:
        """Add the changes behind an event to the buffer, for ever."""
        try:
            if since is None:
                token, _ = await self._pin([self._watched.store.name])
                since = EventId(token)
            await self.events.put(Heartbeat(since))
            self.reached = since
            while True:
                try:
                    self.reached = await self._follow(self.reached)
                except _GapError:
                    self.reached = await self._reset()
                except _NoCopyError:
                    await asyncio.sleep(_PAUSE_SECONDS)
        except BaseException as error:
            self.events.close(error)
            raise

    async def _reset(self) -> EventId:
        while True:
            try:
                token, _ = await self._pin([self._watched.store.name])
            except QueryProblemError:
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                await self.events.put(Reset(token))
                return EventId(token)

    async def _follow(self, at: EventId) -> EventId:
        """Add the changes of the next snapshot, or the rest of one; return where that ends."""
        record = self._instance.newest_record()
        if record is None:
            raise _NoCopyError
        shards = self._shards(record)
        if token_of(record).history != at.token.history or not shards:
            raise _GapError
        found = await self._next(shards, self._request(at, shards))
        tokens = {token for _, token, _ in found}
        if len(tokens) != 1:
            raise _GapError
        token = token_from(tokens.pop())
        shown = await self._asker.record_at(token)
        # A store with new partitions begins again: their first snapshot lists no changes.
        if shown is None or self._shards(shown) != shards:
            raise _GapError
        items = [self._items(token, shard, changes) for shard, _, changes in found]
        async for batch in merged(items, lambda row: row.position):
            for partition, row in batch:
                event_id = EventId(token, partition, row.position)
                await self.events.put(
                    Change(event_id, row.key, row.value, row.timestamp, row.start, row.end)
                )
                self.reached = event_id
        return EventId(token)

    def _shards(self, record: SnapshotRecord) -> list[Shard]:
        store, key, _ = self._watched
        catalog = self._instance.catalog
        shard = None if key is None else catalog.shard_of_key(store, key, record)
        return catalog.shards(store, record) if shard is None else [shard]

    def _request(self, at: EventId, shards: Sequence[Shard]) -> LocalChanges:
        request = LocalChanges(
            store=self._watched.store.name,
            partitions=(),
            after=str(at.token),
            key=self._watched.key,
            prefix=self._watched.prefix,
            limit=CHUNK_CHANGES,
            wait_ms=POLL_MS,
        )
        if at.partition is None:
            return request
        positions = tuple((each, at.position, each > at.partition) for _, each in shards)
        return msgspec.structs.replace(request, at=str(at.token), positions=positions)

    async def _next(
        self, shards: Sequence[Shard], request: LocalChanges, asked: Mapping[str, str] = _NOBODY
    ) -> list[_Found]:
        """Return for each shard its next snapshot, from the first copies that know it."""
        groups: dict[str, list[Shard]] = {}
        history, number = _wanted(request)
        for shard in shards:
            order = self._copies.to_ask(shard, history, number)
            member = next((each for each in order if each not in asked), None)
            if member is None:
                raise _GapError if "gap" in asked.values() else _NoCopyError
            groups.setdefault(member, []).append(shard)
        found = await all_of(
            self._next_of(member, group, request, asked) for member, group in groups.items()
        )
        return sorted(each for group in found for each in group)

    async def _next_of(
        self,
        member: str,
        shards: Sequence[Shard],
        request: LocalChanges,
        asked: Mapping[str, str],
    ) -> list[_Found]:
        history, number = _wanted(request)
        partitions = tuple(shard.partition for shard in shards)
        group = msgspec.structs.replace(request, partitions=partitions)
        while True:
            answer = await self._asker.changes(member, group)
            outcome = "unreachable" if answer is None else answer.outcome
            if answer is not None and answer.token is not None:
                return [
                    _Found(shard, answer.token, changes)
                    for shard, changes in zip(shards, answer.shards, strict=True)
                ]
            # A copy that is cut off from the log has nothing new for ever.
            if outcome != "none" or any(
                self._copies.is_newer_elsewhere(shard, history, number, member) for shard in shards
            ):
                return await self._next(shards, request, {**asked, member: outcome})

    def _items(self, token: Token, shard: Shard, changes: ShardChanges) -> ShardItems[ChangedRow]:
        async def fetch(last: ChangedRow | None) -> tuple[Sequence[ChangedRow], bool]:
            position = b"" if last is None else last.position
            at = EventId(token, shard.partition, position)
            [(_, _, more)] = await self._next([shard], self._request(at, [shard]))
            return more.rows, more.is_complete

        return ShardItems(shard.partition, changes.rows, fetch, is_complete=changes.is_complete)


def _wanted(request: LocalChanges) -> tuple[str, int]:
    """Return the history and the first number of the snapshots that can answer a request."""
    after = token_from(request.after)
    return after.history, after.snapshot + (request.at is None)
