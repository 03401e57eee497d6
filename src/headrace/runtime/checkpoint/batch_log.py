"""The batch log: which batches of a checkpoint are planned, and which are committed.

Run `make nightly PART=model` and `make nightly PART=cuts` after a change here.
"""

from __future__ import annotations

from typing import Protocol

from headrace.runtime.batches import BatchBoundary, digest


class BatchLog(Protocol):
    """The write-ahead log of the process that runs the batches.

    A batch is planned before it runs, and committed after all its output is written. A replay of a
    planned batch reads the same records.
    """

    def query_id(self) -> str | None:
        """Return the id of the query; None before its first start.

        Raises `CheckpointError` if it cannot be read.
        """
        ...

    def plan(self, batch: int, end: BatchBoundary) -> None:
        """Record where a batch ends; a host that writes its own log has done so already."""
        ...

    def commit(self, batch: int) -> None:
        """Record that a batch is written; a host that writes its own log has done so already."""
        ...

    def last_planned(self) -> int:
        """Return the number of the last planned batch; -1 before the first."""
        ...

    def is_committed(self, batch: int) -> bool:
        """Return whether a planned batch is committed."""
        ...

    def end_of(self, batch: int) -> BatchBoundary | None:
        """Return where a batch ends; None if the log lacks it, or has it in an unknown form."""
        ...

    def check(self) -> None:
        """Raise `CheckpointError` if a part of the last batch is torn or missing."""
        ...


def unfinished_batch(batch_log: BatchLog) -> int | None:
    """Return the batch that is planned and not committed; None if there is none."""
    last = batch_log.last_planned()
    return None if last < 0 or batch_log.is_committed(last) else last


def digest_of(batch_log: BatchLog, batch: int) -> str | None:
    """Return the digest of a batch; None if the log no longer has its boundaries."""
    start, end = batch_log.end_of(batch - 1), batch_log.end_of(batch)
    return None if start is None or end is None else digest(start, end)


class MemoryBatchLog:
    """A `BatchLog` in memory, for a query that runs in this process."""

    def __init__(self, query_id: str) -> None:
        self._query_id = query_id
        self._ends: list[BatchBoundary] = []
        self._committed = -1

    def plan(self, batch: int, end: BatchBoundary) -> None:
        # A replay of the last batch plans it again.
        self._ends[batch:] = [end]

    def commit(self, batch: int) -> None:
        self._committed = batch

    def query_id(self) -> str | None:
        return self._query_id

    def last_planned(self) -> int:
        return len(self._ends) - 1

    def is_committed(self, batch: int) -> bool:
        return batch <= self._committed

    def end_of(self, batch: int) -> BatchBoundary | None:
        return self._ends[batch] if 0 <= batch < len(self._ends) else None

    def check(self) -> None:
        pass
