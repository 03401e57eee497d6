"""Sends a shard of this instance to another one, at a snapshot that readers see."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec

from headrace.queries.copy.actions import CopyIdentity, CopyState, ShardState
from headrace.queries.copy.database import prefix_end
from headrace.queries.copy.keys import COPY_KEY, entry_prefix, shard_key
from headrace.queries.copy.layout import CopyLayout, Shard
from headrace.queries.copy.views import ShownSnapshot
from headrace.queries.transfer.messages import FORMAT, ShardHeader, TransferError, frame_of

_ENTRIES = 256
"""How many entries a message has at most."""
_CHUNK_BYTES = 256 << 10
"""How many bytes are sent at once at least, but for the last."""


def export_shard(layout: CopyLayout, shown: ShownSnapshot, shard: Shard) -> Iterator[bytes]:
    """Yield the bytes of a shard at a snapshot. They hold the view until they end.

    Raises:
        TransferError: The view does not have the shard at its snapshot.
    """
    header = _header(layout, shown, shard)
    return _joined(_frames(layout, shown, header))


def _header(layout: CopyLayout, shown: ShownSnapshot, shard: Shard) -> ShardHeader:
    saved, data = shown.view.get(COPY_KEY), shown.view.get(shard_key(shard))
    state = None if data is None else msgspec.json.decode(data, type=ShardState)
    if saved is None or state is None or state.snapshot != shown.record.snapshot:
        msg = f"Shard {shard.partition} of {shard.group!r} is not whole."
        raise TransferError(msg)
    copy = msgspec.json.decode(saved, type=CopyState)
    topic_ids = {each: copy.topic_ids[each] for each in layout.changelogs()}
    identity = CopyIdentity(copy.layout, shown.record.history, topic_ids)
    return ShardHeader(FORMAT, identity, shard.group, shard.partition, state)


def _frames(layout: CopyLayout, shown: ShownSnapshot, header: ShardHeader) -> Iterator[bytes]:
    yield frame_of(header)
    count = 0
    shard = Shard(header.group, header.partition)
    for prefix in sorted(map(entry_prefix, layout.partitions(shard))):
        entries = iter(shown.view.scan(prefix, prefix_end(prefix)))
        while part := [*islice(entries, _ENTRIES)]:
            count += len(part)
            yield frame_of(part)
    yield frame_of(count)


def _joined(frames: Iterator[bytes]) -> Iterator[bytes]:
    """Yield frames in larger chunks."""
    waiting: list[bytes] = []
    size = 0
    for frame in frames:
        waiting.append(frame)
        size += len(frame)
        if size >= _CHUNK_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)
