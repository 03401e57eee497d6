"""Puts the rows of several shards in one order, a part at a time."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class ShardItems(Generic[T]):
    """The items of one shard, in their order. The first part is there; others are fetched.

    Args:
        partition: The partition of the shard.
        items: The first part.
        is_complete: Whether there are no others.
        fetch: Returns the part behind an item, None for the first one, and whether it is the last.
    """

    def __init__(
        self,
        partition: int,
        items: Sequence[T],
        fetch: Callable[[T | None], Awaitable[tuple[Sequence[T], bool]]],
        *,
        is_complete: bool,
    ) -> None:
        self.partition = partition
        self.items = [*items]
        self.is_complete = is_complete
        self._fetch = fetch
        self._last = items[-1] if items else None

    @property
    def is_empty(self) -> bool:
        """Return whether the next item must be fetched."""
        return not self.items and not self.is_complete

    async def fill(self) -> None:
        """Fetch until there is an item, or none follows."""
        while self.is_empty:
            items, self.is_complete = await self._fetch(self._last)
            self.items = [*items]
            if items:
                self._last = items[-1]

    def take(self, count: int) -> list[T]:
        """Remove the first items."""
        taken, self.items = self.items[:count], self.items[count:]
        return taken


async def chained(shards: Sequence[ShardItems[T]]) -> AsyncIterator[list[tuple[int, T]]]:
    """Yield the items of one shard after the other, each with its partition."""
    for shard in shards:
        await shard.fill()
        while shard.items:
            yield [(shard.partition, item) for item in shard.take(len(shard.items))]
            await shard.fill()


async def merged(
    shards: Sequence[ShardItems[T]], key: Callable[[T], bytes], *, descending: bool = False
) -> AsyncIterator[list[tuple[int, T]]]:
    """Yield the items of all shards in the order of their keys, each with its partition.

    Items with the same key come in the order of their partitions.
    """
    open_shards = [*shards]
    while True:
        await asyncio.gather(*(shard.fill() for shard in open_shards if shard.is_empty))
        open_shards = [shard for shard in open_shards if shard.items]
        if not open_shards:
            return
        found = [
            (shard.partition, item)
            for shard, count in _safe_counts(open_shards, key, descending=descending)
            for item in shard.take(count)
        ]
        if len(open_shards) > 1:
            found.sort(key=lambda each: (key(each[1]), each[0]), reverse=descending)
        yield found


def _safe_counts(
    shards: Sequence[ShardItems[T]], key: Callable[[T], bytes], *, descending: bool
) -> list[tuple[ShardItems[T], int]]:
    """Return how many items of each shard no item can precede that is not fetched yet."""
    ends = [key(shard.items[-1]) for shard in shards if not shard.is_complete]
    if not ends:
        return [(shard, len(shard.items)) for shard in shards]
    if not descending:
        end = min(ends)
        return [(shard, bisect_right(shard.items, end, key=key)) for shard in shards]
    end = max(ends)
    return [
        (shard, len(shard.items) - bisect_left(shard.items[::-1], end, key=key)) for shard in shards
    ]
