"""The snapshot records that an instance has read and that count."""

from __future__ import annotations

from bisect import bisect_right

import msgspec

from headrace.runtime.snapshots import SnapshotRecord, newest_record

_MOST_RECORDS = 300


class SnapshotLog:
    """Records of one history with rising numbers.

    Records of earlier leaders do not count, nor those about other topics of the same names: a
    leader from before a reset may still write.

    Until the topic was read to its end once, records are only gathered: the first that is read may
    be one that does not count.

    Args:
        layout: The digest of the program's stores.
        first: The record that the copy already has.
        now: When it was read.
    """

    def __init__(self, layout: str, first: SnapshotRecord | None = None, now: int = 0) -> None:
        self._layout = layout
        self._records: list[SnapshotRecord] = [] if first is None else [first]
        self._arrivals: dict[int, int] = {} if first is None else {first.snapshot: now}
        self._gathered: list[SnapshotRecord] = []
        self._leader_epoch = -1
        self.topics = ""
        self.is_live = False
        """Whether the topic was read to its end."""
        self.problem: str | None = None
        """Why the newest record cannot be used."""

    @property
    def newest(self) -> SnapshotRecord | None:
        """Return the newest record; None: there is none, or it cannot be used."""
        return self._records[-1] if self._records else None

    def restart(self, topics: str) -> None:
        """Gather records again: the topic is another one, or was not read yet.

        ``topics`` is the digest of the ids of the changelogs.
        """
        self.topics = topics
        self._gathered = []
        self._leader_epoch = -1
        self.is_live = False

    def add(self, record: SnapshotRecord, now: int) -> None:
        """Add a record of the topic."""
        if record.topics != self.topics:
            return
        if not self.is_live:
            self._gathered.append(record)
        elif record.leader_epoch >= self._leader_epoch:
            self._leader_epoch = record.leader_epoch
            self._use(record, now)

    def go_live(self, now: int) -> None:
        """Use what was gathered."""
        self.is_live = True
        newest = newest_record(self._gathered)
        if newest is not None:
            for record in sorted(
                self._gathered, key=lambda each: (each.snapshot, each.leader_epoch)
            ):
                if record.history == newest.history and record.snapshot <= newest.snapshot:
                    self._use(record, now)
            self._leader_epoch = newest.leader_epoch
        self._gathered = []

    def _use(self, record: SnapshotRecord, now: int) -> None:
        if record.layout != self._layout:
            self._records, self._arrivals = [], {}
            self.problem = (
                f"The application has the store layout {record.layout}, and this instance has "
                f"{self._layout}. Start the instance with the program of the application."
            )
            return
        self.problem = None
        newest = self.newest
        if newest is not None and newest.history != record.history:
            self._records, self._arrivals, newest = [], {}, None
        if newest is None or record.snapshot > newest.snapshot:
            self._records.append(record)
            self._arrivals[record.snapshot] = now
            for old in self._records[:-_MOST_RECORDS]:
                del self._arrivals[old.snapshot]
            del self._records[:-_MOST_RECORDS]
        elif record.snapshot == newest.snapshot:
            # The same stores. Its ends may lie behind a marker, which is slower to reach.
            self._records[-1] = msgspec.structs.replace(newest, at=record.at)

    def after(self, snapshot: int) -> SnapshotRecord | None:
        """Return the first record with a higher number."""
        index = bisect_right(self._records, snapshot, key=lambda each: each.snapshot)
        return self._records[index] if index < len(self._records) else None

    def written_at(self, record: SnapshotRecord) -> int:
        """Return when a snapshot was last known to be the newest state."""
        newest = self.newest
        return newest.at if newest and newest.snapshot == record.snapshot else record.at

    def arrival(self, record: SnapshotRecord) -> int:
        """Return when a record was read."""
        return self._arrivals[record.snapshot]

    def arrivals_after(self, snapshot: int) -> list[int]:
        """Return when each record with a higher number was read."""
        return [at for number, at in self._arrivals.items() if number > snapshot]
