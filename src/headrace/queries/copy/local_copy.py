"""An instance's copy of its shards: carries out what an applier decides, on a database."""

from __future__ import annotations

import msgspec

from headrace.queries.copy.actions import (
    CopyState,
    SavedCopy,
    ShardState,
    ShardWrite,
    Show,
    ThrowAway,
    Write,
)
from headrace.queries.copy.database import Database, WriteBatch, prefix_end
from headrace.queries.copy.keys import (
    CHANGED_KEYS,
    COPY_KEY,
    EVERYTHING,
    SHARD_KEYS,
    changed_prefix,
    entry_bytes,
    entry_key,
    entry_prefix,
    segment_prefix,
    shard_from_key,
    shard_key,
)
from headrace.queries.copy.layout import CopyLayout
from headrace.queries.copy.views import KeptSnapshots, ShownSnapshot
from headrace.runtime.snapshots import SnapshotRecord

_encode = msgspec.json.Encoder().encode


class LocalCopy:
    """The database of an instance, and the snapshots that it shows.

    Args:
        layout: The stores.
        database: The files of the instance.
        snapshots: Where readers find the snapshots.
    """

    def __init__(
        self, layout: CopyLayout, database: Database, snapshots: KeptSnapshots | None = None
    ) -> None:
        self._layout = layout
        self._database = database
        self.snapshots = KeptSnapshots() if snapshots is None else snapshots
        # The snapshots that these keys are about are gone with the process that had them open.
        database.write(WriteBatch(deleted_ranges=[CHANGED_KEYS]))

    def saved(self) -> SavedCopy:
        """Return what the database has."""
        view = self._database.view()
        data = view.get(COPY_KEY)
        return SavedCopy(
            None if data is None else msgspec.json.decode(data, type=CopyState),
            {
                shard_from_key(key): msgspec.json.decode(state, type=ShardState)
                for key, state in view.scan(*SHARD_KEYS)
            },
        )

    def carry_out(self, action: Write | Show | ThrowAway, now: int) -> None:
        """Carry out an action of the applier."""
        match action:
            case Write():
                self._write(action, now)
            case Show():
                view = self._database.view()
                self.snapshots.add(ShownSnapshot(action.record, view, action.shards, now))
            case ThrowAway():
                self.snapshots.clear()
                self._database.write(WriteBatch(deleted_ranges=[EVERYTHING]))

    def _write(self, write: Write, now: int) -> None:
        batch = WriteBatch()
        for number in self.snapshots.drop_old(now):
            prefix = changed_prefix(number)
            batch.deleted_ranges.append((prefix, prefix_end(prefix)))
        record = write.copy.record if write.copy else None
        for part in write.parts:
            self._add_part(batch, part, record)
        if write.copy is not None:
            batch.entries[COPY_KEY] = _encode(write.copy)
        self._database.write(batch)

    def _add_part(self, batch: WriteBatch, part: ShardWrite, record: SnapshotRecord | None) -> None:
        is_whole = part.state is not None and part.state.snapshot is not None
        changed = changed_prefix(record.snapshot) if record and part.lists_changes else None
        for store, name in zip(
            self._layout.stores(part.shard), self._layout.partitions(part.shard), strict=True
        ):
            prefix = entry_prefix(name)
            if part.wipes:
                batch.deleted_ranges.append((prefix, prefix_end(prefix)))
            expired = prefix
            if store.first_segment is not None and is_whole and record is not None:
                expired = segment_prefix(name, store.first_segment(record.times(*name)))
                batch.deleted_ranges.append((prefix, expired))
            for _, timestamp, key, value in part.changes.get(name, ()):
                entry = entry_key(prefix, store, key, timestamp)
                if entry >= expired:
                    keeps = value is not None or store.keeps_versions
                    batch.entries[entry] = entry_bytes(timestamp, value) if keeps else None
                    if changed is not None:
                        batch.entries[changed + entry] = b""
        batch.entries[shard_key(part.shard)] = None if part.state is None else _encode(part.state)
