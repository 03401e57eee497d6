"""Decides which shards come from other instances, and hands them to the applier when they are here.

All of it happens in the thread of the applier, but for the transfers themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from headrace.queries.copy.database import Database
from headrace.queries.copy.layout import CopyLayout, Shard
from headrace.queries.copy.reader import CopyReader
from headrace.queries.transfer.fetching import ShardFetch, ShardSource

_CLOSE_SECONDS = 5.0

_log = logging.getLogger("headrace")


class ShardImports:
    """The shards that wait for a copy of another instance, one transfer at a time.

    Args:
        source: Asks other instances.
        holders: Returns the instances that have a ready copy of a shard, the best first; None: it
            is not known yet.
        layout: The stores.
        reader: The copy of this instance.
        database: Its database.
    """

    def __init__(
        self,
        source: ShardSource,
        holders: Callable[[Shard], Sequence[str] | None],
        layout: CopyLayout,
        reader: CopyReader,
        database: Database,
    ) -> None:
        self._source = source
        self._holders = holders
        self._layout = layout
        self._reader = reader
        self._database = database
        self._fetch: ShardFetch | None = None
        self._failed: dict[Shard, set[str]] = {}
        """The instances that a shard could not be taken from."""

    def hold_back(self, shards: Collection[Shard]) -> set[Shard]:
        """Return which of some new shards wait; the applier reads all others.

        New shards are those that the applier should keep and does not keep yet.
        """
        applier = self._reader.applier
        wanted = {shard for shard in shards if applier.begins_at_nothing(shard)}
        self._failed = {shard: self._failed.get(shard, set()) for shard in wanted}
        if self._fetch is not None:
            self._end(self._fetch, wanted)
        waiting = set()
        for shard in sorted(wanted):
            if applier.begins_at_nothing(shard) and self._waits(shard):
                waiting.add(shard)
        return waiting

    def close(self) -> None:
        """Stop the transfer."""
        if self._fetch is not None:
            self._fetch.cancel()
            self._fetch.join(_CLOSE_SECONDS)

    def _end(self, fetch: ShardFetch, wanted: Collection[Shard]) -> None:
        """Use a transfer that has ended; cancel one that nobody needs."""
        if fetch.shard not in wanted:
            fetch.cancel()
        elif fetch.is_running():
            return
        elif fetch.state is None:
            self._failed[fetch.shard].add(fetch.member)
        elif self._reader.applier.identity != fetch.identity:
            fetch.cancel()
        else:
            self._reader.adopt(fetch.shard, fetch.state, fetch.entries)
            _log.info("Shard %s/%s came from instance %s.", *fetch.shard, fetch.member)
        self._fetch = None

    def _waits(self, shard: Shard) -> bool:
        """Return whether a shard waits; begin to fetch it if nothing else is fetched."""
        if self._fetch is not None and self._fetch.shard == shard:
            return True
        holders, identity = self._holders(shard), self._reader.applier.identity
        if holders is None or identity is None:
            return True
        member = next((each for each in holders if each not in self._failed[shard]), None)
        if member is None:
            return False
        if self._fetch is None:
            self._fetch = ShardFetch(
                self._source,
                member,
                self._layout,
                shard,
                identity,
                self._database.new_entries(),
            )
            self._fetch.start()
        return True
