"""Takes a shard from another instance, in a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from headrace.queries.copy.actions import CopyIdentity, ShardState
from headrace.queries.copy.database import SortedEntries, UnsortedError, prefix_end
from headrace.queries.copy.keys import entry_prefix
from headrace.queries.copy.layout import CopyLayout, Shard
from headrace.queries.transfer.messages import (
    ShardHeader,
    TransferError,
    frames,
    header_of,
    part_of,
)

_log = logging.getLogger("headrace")


class ShardSource(Protocol):
    """Asks other instances for the bytes of shards. It belongs to no event loop."""

    def shard(self, member: str, shard: Shard, /) -> AbstractContextManager[Iterable[bytes]]:
        """Return the bytes that a member sends; any error: it does not, or not all."""
        ...


class ShardFetch:
    """One attempt to take a shard from a member.

    Args:
        source: Asks the member.
        member: Which instance.
        layout: The stores.
        shard: Which shard.
        identity: The identity of the copy of this instance.
        entries: Takes the entries; nobody else has it before the end.
    """

    def __init__(
        self,
        source: ShardSource,
        member: str,
        layout: CopyLayout,
        shard: Shard,
        identity: CopyIdentity,
        entries: SortedEntries,
    ) -> None:
        self.member, self.shard, self.identity = member, shard, identity
        self.entries = entries
        self.state: ShardState | None = None
        """The state of the shard after the end; None: it cannot be taken from the member."""
        self._source = source
        self._layout = layout
        self._is_cancelled = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"fetch-{member}", daemon=True)

    def start(self) -> None:
        """Fetch in the background."""
        self._thread.start()

    def is_running(self) -> bool:
        """Return whether it has not ended."""
        return self._thread.is_alive()

    def cancel(self) -> None:
        """Stop soon, and discard what was fetched."""
        self._is_cancelled.set()
        if not self._thread.is_alive():
            self.entries.discard()

    def join(self, seconds: float) -> None:
        """Wait for its end."""
        self._thread.join(seconds)

    def _run(self) -> None:
        state: ShardState | None = None
        try:
            with self._source.shard(self.member, self.shard) as chunks:
                state = self._fetch(chunks)
        except Exception as error:  # a peer may answer anything
            _log.warning(
                "Shard %s/%s does not come from instance %s: %s",
                *self.shard,
                self.member,
                error or type(error).__name__,
            )
        if state is None or self._is_cancelled.is_set():
            self.entries.discard()
        else:
            self.state = state

    def _fetch(self, chunks: Iterable[bytes]) -> ShardState | None:
        found = frames(chunks)
        first = next(found, None)
        if first is None:
            msg = "the answer is empty."
            raise TransferError(msg)
        state = self._checked(header_of(first))
        prefixes = sorted(map(entry_prefix, self._layout.partitions(self.shard)))
        count = 0
        for frame in found:
            if self._is_cancelled.is_set():
                return None
            part = part_of(frame)
            if isinstance(part, int):
                if part != count or next(found, None) is not None:
                    break
                return state
            if not part:
                break
            count += len(part)
            self._add(part, prefixes)
        msg = f"it ends after {count} entries, which are not all or too many."
        raise TransferError(msg)

    def _checked(self, header: ShardHeader) -> ShardState:
        """Return the state of the shard at the member."""
        if header.identity != self.identity:
            msg = "its copy is of another history, program or topic."
            raise TransferError(msg)
        names = {name.topic for name in self._layout.partitions(self.shard)}
        has_all = header.state.offsets.keys() == names
        if Shard(header.group, header.partition) != self.shard or not has_all:
            msg = "it sends another shard."
            raise TransferError(msg)
        return header.state

    def _add(self, part: list[tuple[bytes, bytes]], prefixes: list[bytes]) -> None:
        """Add entries of one changelog partition of the shard."""
        first, last = part[0][0], part[-1][0]
        if not any(prefix <= first and last < prefix_end(prefix) for prefix in prefixes):
            msg = "it sends entries of another shard."
            raise TransferError(msg)
        try:
            self.entries.add(part)
        except UnsortedError as error:
            msg = "its entries are not sorted."
            raise TransferError(msg) from error
