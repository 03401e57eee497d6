"""Shards that an instance of the model takes from its peers, in messages that may be cut off."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from random import Random
from typing import TYPE_CHECKING

from chaos.queries_model.stores import LAYOUT
from headrace.queries.copy.actions import CopyIdentity, ShardState
from headrace.queries.copy.database import Database, SortedEntries
from headrace.queries.copy.layout import Shard
from headrace.queries.transfer.exporting import export_shard
from headrace.queries.transfer.fetching import ShardFetch
from headrace.queries.transfer.messages import TransferError

if TYPE_CHECKING:
    from chaos.queries_model.instance import Instance

_ATTEMPTS = 3


class Transfers:
    """The shards that wait for a peer. Each comes as of the newest snapshot of the peer.

    The peer may be ahead or behind, and the application writes on until the bytes are here.

    Args:
        random: Decides what happens.
        shards: The shards that begin at nothing.
    """

    def __init__(self, random: Random, shards: Collection[Shard]) -> None:
        self.waiting = [*shards]
        self._random = random
        self._attempts = 0
        self._under_way: tuple[Shard, CopyIdentity, bytes] | None = None

    def step(
        self, own: Instance, peers: Sequence[Instance], database: Database
    ) -> tuple[Shard, ShardState, SortedEntries] | None:
        """Begin or end a transfer; return a shard that is here, which no longer waits."""
        shard, identity = self.waiting[0], own.applier.identity
        self._attempts += 1
        if self._under_way is not None:
            shard, asked, data = self._under_way
            self._under_way = None
            found = self._taken(shard, asked, data, database)
            if found is not None and identity == asked:
                self._give_up()
                return shard, *found
        elif identity is not None and peers:
            sent = _exported(self._random.choice(peers), shard)
            if sent is not None:
                self._under_way = shard, identity, sent
        if self._attempts >= _ATTEMPTS and self._under_way is None:
            self._give_up()
        return None

    def _give_up(self) -> None:
        self._attempts = 0
        del self.waiting[0]

    def _taken(
        self, shard: Shard, identity: CopyIdentity, data: bytes, database: Database
    ) -> tuple[ShardState, SortedEntries] | None:
        if self._random.random() < 0.3:
            data = data[: self._random.randrange(len(data))]
        entries = database.new_entries()
        fetch = ShardFetch(_Source(), "peer", LAYOUT, shard, identity, entries)
        try:
            state = fetch._fetch([data])  # noqa: SLF001  # as its thread does
        except TransferError:
            state = None
        return None if state is None else (state, entries)


class _Source:
    """Is never called: the bytes are here."""

    def shard(self, _member: str, _shard: Shard, /) -> AbstractContextManager[Iterable[bytes]]:
        raise AssertionError


def _exported(peer: Instance, shard: Shard) -> bytes | None:
    """Return the bytes of a shard, as a peer sends them now."""
    shown = peer.copy.snapshots.newest_of(shard)
    try:
        return None if shown is None else b"".join(export_shard(LAYOUT, shown, shard))
    except TransferError:
        return None
