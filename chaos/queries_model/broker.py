"""The broker of the model: partitions with transactions, markers and compaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from random import Random

from headrace.brokers.log import TopicPartition
from headrace.queries.copy.actions import Change


@dataclass(slots=True)
class LogEntry:
    """A record, or the marker at the end of a transaction."""

    change: Change | None
    """None: a marker."""
    written_at: int
    transaction: int | None = None
    """The open transaction of the record."""
    is_visible: bool = False
    alone_since: int | None = None
    """When compaction found no earlier record of its key; None: it did not."""


@dataclass
class ModelPartition:
    """A partition. Offsets have holes where records were compacted."""

    entries: dict[int, LogEntry] = field(default_factory=dict)
    end: int = 0
    beginning: int = 0
    _open: dict[int, int] = field(default_factory=dict)
    """The first offset of each open transaction."""

    def append(
        self,
        at: int,
        key: bytes,
        value: bytes | None,
        transaction: int | None = None,
        *,
        timestamp: int | None = None,
    ) -> None:
        """Append a record, in a transaction or visible at once."""
        change = Change(self.end, at if timestamp is None else timestamp, key, value)
        if transaction is not None:
            self._open.setdefault(transaction, self.end)
        self.entries[self.end] = LogEntry(change, at, transaction, transaction is None)
        self.end += 1

    def end_transaction(self, transaction: int, at: int, *, commits: bool) -> None:
        """Write the marker of a transaction that has records here."""
        if self._open.pop(transaction, None) is None:
            return
        for entry in self.entries.values():
            if entry.transaction == transaction:
                entry.transaction, entry.is_visible = None, commits
        self.entries[self.end] = LogEntry(None, at)
        self.end += 1

    def abort_open(self, at: int) -> None:
        """Abort all open transactions, as the fence of a new leader does."""
        for transaction in [*self._open]:
            self.end_transaction(transaction, at, commits=False)

    @property
    def stable_end(self) -> int:
        """Return the last stable offset."""
        return min(self._open.values(), default=self.end)

    def read(self, start: int, limit: int) -> list[Change]:
        """Return committed records from an offset on."""
        return [*islice(self._visible(start), limit)]

    def _visible(self, start: int = 0) -> Iterator[Change]:
        stable_end = self.stable_end
        for offset, entry in self.entries.items():
            if start <= offset < stable_end and entry.is_visible and entry.change is not None:
                yield entry.change

    def compact(self, random: Random, now: int, delete_retention_ms: int) -> None:
        """Remove some records that have a successor, and deletions that are old enough."""
        last: dict[bytes, int] = {}
        counts: Counter[bytes] = Counter()
        for change in self._visible():
            last[change.key] = change.offset
            counts[change.key] += 1
        share = random.choice((0.5, 1.0))
        for change in [*self._visible()]:
            entry = self.entries[change.offset]
            # A reader of a removed record has so long to read the deletion, too.
            is_old_deletion = (
                entry.alone_since is not None and now - entry.alone_since >= delete_retention_ms
            )
            is_replaced = change.offset < last[change.key]
            if (is_replaced or is_old_deletion) and random.random() < share:
                del self.entries[change.offset]
                counts[change.key] -= 1
            elif change.value is None and counts[change.key] == 1 and entry.alone_since is None:
                entry.alone_since = now

    def cut(self, end: int) -> None:
        """Delete all records below an offset."""
        self.beginning = max(self.beginning, end)
        for offset in [offset for offset in self.entries if offset < end]:
            del self.entries[offset]


class ModelBroker:
    """Topics with their ids."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.topics: dict[str, list[ModelPartition]] = {}
        self.ids: dict[str, str] = {}

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic, if there is none of its name."""
        if topic not in self.topics:
            self.topics[topic] = [ModelPartition() for _ in range(partitions)]
            self.ids[topic] = f"{self._random.getrandbits(64):016x}"

    def delete(self, topic: str) -> None:
        """Delete a topic, if it exists."""
        self.topics.pop(topic, None)
        self.ids.pop(topic, None)

    def partition(self, name: TopicPartition) -> ModelPartition | None:
        """Return a partition; None: there is no such topic."""
        partitions = self.topics.get(name.topic)
        return None if partitions is None else partitions[name.partition]
