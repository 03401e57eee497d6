"""An instance's copy of its shards: carries out what an applier decides, on a database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import msgspec

from headrace.queries.copy.actions import (
    Changes,
    CopyState,
    SavedCopy,
    ShardState,
    ShardWrite,
    Show,
    ThrowAway,
    Write,
)
from headrace.queries.copy.database import Database, SortedEntries, WriteBatch, prefix_end
from headrace.queries.copy.entry_maps import ChangedVersions
from headrace.queries.copy.keys import (
    CHANGED_KEYS,
    COPY_KEY,
    EVERYTHING,
    LATEST_SEGMENT,
    SHARD_KEYS,
    changed_prefix,
    database_key,
    entry_prefix,
    pack_header,
    segment_prefix,
    shard_from_key,
    shard_key,
)
from headrace.queries.copy.layout import CopyLayout, Shard, StoreLayout
from headrace.queries.copy.memory_database import MemoryDatabase
from headrace.queries.copy.views import KeptSnapshots, ShownSnapshot
from headrace.runtime.snapshots import SnapshotRecord
from headrace.state.maps import StoreBackend
from headrace.state.store_types.base import ChangelogRecord

WRITTEN_AT_ONCE = 500
"""Readers in other threads wait while the database writes so many entries: for about 1 ms."""

_encode = msgspec.json.Encoder().encode
_NONE = Changes.of(())


class LocalCopy:
    """The database of an instance, and the snapshots that it shows.

    Args:
        layout: The stores.
        database: The files of the instance.
        snapshots: Where readers find the snapshots.
        written_at_once: A write with more entries goes in parts: readers wait for each part.
    """

    def __init__(
        self,
        layout: CopyLayout,
        database: Database,
        snapshots: KeptSnapshots | None = None,
        *,
        written_at_once: int = WRITTEN_AT_ONCE,
    ) -> None:
        self._layout = layout
        self._database = database
        self._written_at_once = written_at_once
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

    def adopt(self, shard: Shard, state: ShardState, entries: SortedEntries) -> None:
        """Replace what the database has of a shard.

        The database takes over the new state together with the entries.
        """
        batch = WriteBatch(entries={shard_key(shard): None})
        for name in self._layout.partitions(shard):
            prefix = entry_prefix(name)
            batch.deleted_ranges.append((prefix, prefix_end(prefix)))
        self._database.write(batch)
        entries.add([(shard_key(shard), _encode(state))])
        self._database.take_over(entries)

    def _write(self, write: Write, now: int) -> None:
        batch, loose = WriteBatch(), WriteBatch()
        for number in self.snapshots.drop_old(now):
            prefix = changed_prefix(number)
            batch.deleted_ranges.append((prefix, prefix_end(prefix)))
        record = write.copy.record if write.copy else None
        for part in write.parts:
            self._add_part(batch, loose, part, record)
        if write.copy is not None:
            batch.entries[COPY_KEY] = _encode(write.copy)
        if len(loose.entries) > self._written_at_once:
            marks = self._marks(write.parts)
            if marks is not None:
                self._write_in_parts(batch, loose, marks)
                return
        batch.entries |= loose.entries
        self._database.write(batch)

    def _marks(self, parts: Sequence[ShardWrite]) -> dict[bytes, bytes | None] | None:
        """Return the states that mark the shards of a write, for the time in which a part is there.

        A shard with a mark catches up after a crash, from the offsets that it had: it applies the
        entries that are there once more. None: the write must not go in parts.
        """
        view = self._database.view()
        marks: dict[bytes, bytes | None] = {}
        for part in parts:
            data = view.get(shard_key(part.shard))
            if data is None or part.state is None or part.wipes:
                return None
            state = msgspec.json.decode(data, type=ShardState)
            marks[shard_key(part.shard)] = _encode(msgspec.structs.replace(state, snapshot=None))
        return marks

    def _write_in_parts(
        self, last: WriteBatch, loose: WriteBatch, marks: dict[bytes, bytes | None]
    ) -> None:
        self._database.write(WriteBatch(last.deleted_ranges, marks))
        entries = iter(loose.entries.items())
        while part := dict(islice(entries, self._written_at_once)):
            self._database.write(WriteBatch(entries=part))
        self._database.write(WriteBatch(entries=last.entries))

    def _add_part(
        self, batch: WriteBatch, loose: WriteBatch, part: ShardWrite, record: SnapshotRecord | None
    ) -> None:
        """Add the part of a shard.

        Args:
            batch: Gets the ranges, and the versions, because to apply a version twice may lose
                the one before it. The new states are in it.
            loose: Gets the entries that may be written earlier, under a mark.
            part: The part.
            record: The snapshot at which the shard is whole then.
        """
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
                expired = segment_prefix(prefix, store.first_segment(record.times(*name)))
                batch.deleted_ranges.append((prefix, expired))
            changes = part.changes.get(name, _NONE)
            if store.apply is None:
                _add_entries(loose, prefix, store, changes, expired, changed)
            elif changes.offsets:
                view = MemoryDatabase().view() if part.wipes else self._database.view()
                _add_versions(batch, ChangedVersions(view, prefix), store.apply, changes, expired)
                if changed is not None:
                    latest = changed + segment_prefix(prefix, LATEST_SEGMENT)
                    loose.entries.update((latest + key, b"") for key in changes.keys)
        batch.entries[shard_key(part.shard)] = None if part.state is None else _encode(part.state)


def _add_entries(
    batch: WriteBatch,
    prefix: bytes,
    store: StoreLayout,
    changes: Changes,
    expired: bytes,
    changed: bytes | None,
) -> None:
    """Add changes that replace entries, without those that have expired."""
    _, timestamps, keys, values = changes
    stored = [
        None if value is None else pack_header(timestamp, 1) + value
        for timestamp, value in zip(timestamps, values, strict=True)
    ]
    entries: Iterable[bytes] = map(prefix.__add__, keys)
    if store.segment is not None or store.entry_key is not None:
        entries = [
            database_key(prefix, store, key, timestamp)
            for timestamp, key in zip(timestamps, keys, strict=True)
        ]
    pairs = zip(entries, stored, strict=True)
    batch.entries.update(
        pairs if expired == prefix else (each for each in pairs if each[0] >= expired)
    )
    if changed is not None:
        entries = entries if isinstance(entries, list) else map(prefix.__add__, keys)
        batch.entries.update((changed + entry, b"") for entry in entries if entry >= expired)


def _add_versions(
    batch: WriteBatch,
    versions: ChangedVersions,
    apply: Callable[[Iterable[ChangelogRecord], StoreBackend], None],
    changes: Changes,
    expired: bytes,
) -> None:
    """Add what becomes of the versions of the changed keys, without those that have expired."""
    records = (ChangelogRecord(key, value, time) for _, time, key, value in changes.rows())
    apply(records, versions)
    batch.entries.update(each for each in versions.changes.items() if each[0] >= expired)
