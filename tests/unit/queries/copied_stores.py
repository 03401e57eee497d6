"""Copies of stores, as an instance makes them of a changelog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.brokers.log import TopicPartition
from headrace.queries.catalog import QueryableStore, layout_of
from headrace.queries.copy.actions import (
    Change,
    Changes,
    CopyState,
    ShardState,
    ShardWrite,
    Show,
    Write,
)
from headrace.queries.copy.database import Database
from headrace.queries.copy.layout import CopyLayout, Shard, ShardGroup
from headrace.queries.copy.local_copy import LocalCopy
from headrace.queries.copy.memory_database import MemoryDatabase
from headrace.queries.copy.views import ShownSnapshot
from headrace.state.specs import StoreBuilder
from headrace.state.store_types.base import ChangelogRecord
from tests.unit.queries.snapshot_records import make_record
from tests.unit.state.written_stores import Written

CHANGELOG = "app-s-changelog"
SHARD = Shard("0", 0)


class CopiedStore:
    """The copy of a store of one partition, and the snapshots that it shows."""

    def __init__(self, spec: StoreBuilder[Any], database: Database | None = None) -> None:
        self.store = QueryableStore("s", CHANGELOG, "0", is_global=False, builder=spec)
        group = ShardGroup("0", (layout_of(CHANGELOG, self.store.type),))
        self.layout = CopyLayout("layout", (group,))
        self._copy = LocalCopy(self.layout, database or MemoryDatabase())
        self._number = 0
        self.snapshots: list[ShownSnapshot] = []

    def apply(
        self, records: Sequence[ChangelogRecord], times: dict[str, int], *, wipes: bool = False
    ) -> ShownSnapshot:
        """Apply the records of one snapshot, and return it."""
        self._number += 1
        record = make_record(
            self._number, ends={CHANGELOG: [0]}, store_times={CHANGELOG: [times or None]}
        )
        changes = Changes.of(
            Change(offset, timestamp, key, value)
            for offset, (key, value, timestamp) in enumerate(records)
        )
        part = ShardWrite(
            SHARD,
            ShardState(self._number, {CHANGELOG: self._number}, 0),
            {TopicPartition(CHANGELOG, 0): changes},
            wipes=wipes,
            lists_changes=True,
        )
        topic_ids = {CHANGELOG: "id"}
        self._copy.carry_out(Write([part], CopyState("layout", topic_ids, record)), 0)
        self._copy.carry_out(Show(record, {SHARD: self._number - 1}), 0)
        self.snapshots.append([*self._copy.snapshots][-1])
        return self.snapshots[-1]


def copied(written: Written, database: Database | None = None) -> CopiedStore:
    """Return the copy of a store, with a snapshot after each of its commits."""
    copy, start = CopiedStore(written.spec, database), 0
    for end, times in written.commits:
        copy.apply(written.records[start:end], times)
        start = end
    return copy
