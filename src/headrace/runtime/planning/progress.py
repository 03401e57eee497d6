"""Progress: commits how far the inputs are processed, and deletes records that are done with.

Run `make nightly PART=model` and `make nightly PART=cuts` after a change here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cached_property

from headrace.brokers.log import OffsetAndMetadata, TopicLog, TopicPartition
from headrace.brokers.offset_metadata import OWN_OFFSETS
from headrace.runtime.batches import BatchBoundary
from headrace.runtime.checkpoint.checkpoint import Checkpoint
from headrace.runtime.checkpoint.markers import renew_sentinel
from headrace.runtime.plan import ExecutionPlan
from headrace.runtime.planning.input_sync import InputSync

_COMMIT_SECONDS = 60.0
"""How often offsets are committed again although nothing was read. Kafka deletes old offsets, and a
previous leader may have committed older ones after its last batch."""
_PURGE_SECONDS = 30.0


class Progress:
    """Commits offsets to the consumer group of the application."""

    def __init__(
        self,
        plan: ExecutionPlan,
        log: TopicLog,
        checkpoint: Checkpoint,
        sync: InputSync,
        *,
        leader_epoch: int,
    ) -> None:
        self._plan = plan
        self._log = log
        self._checkpoint = checkpoint
        self._sync = sync
        self._leader_epoch = leader_epoch
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        """The offsets that were committed since the start."""
        self._committed_at = 0.0
        self._renewed_at = 0.0
        self._purged_at = time.monotonic()
        self._done: dict[TopicPartition, int | None] = {}
        """Up to where each partition was processed at the end of the last batch."""

    def commit(self, done: BatchBoundary) -> None:
        """Commit the end of the last batch, as far as its records are processed."""
        if time.monotonic() - self._renewed_at > _COMMIT_SECONDS:
            renew_sentinel(
                self._plan.application_id, self._log, self._checkpoint, self._leader_epoch
            )
            self._renewed_at = time.monotonic()
        if done.clock == 0:
            return  # no batch has run yet
        processed = self._sync.processed_offsets(done)
        offsets = dict(self._to_commit(processed))
        is_old = time.monotonic() - self._committed_at > _COMMIT_SECONDS
        if offsets and (is_old or not offsets.items() <= self._committed.items()):
            self._log.commit_offsets(self._plan.application_id, offsets)
            self._committed |= offsets
            self._committed_at = time.monotonic()
        before, self._done = self._done, processed
        if before != processed and time.monotonic() - self._purged_at > _PURGE_SECONDS:
            self._purged_at = time.monotonic()
            self._purge(before)

    def _to_commit(
        self, processed: dict[TopicPartition, int | None]
    ) -> Iterator[tuple[TopicPartition, OffsetAndMetadata]]:
        for partition, offset in processed.items():
            if offset is not None:
                yield partition, OffsetAndMetadata(offset, OWN_OFFSETS)
            elif last := self._committed.get(partition) or self._committed_before.get(partition):
                yield partition, last

    @cached_property
    def _committed_before(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets that the group had committed before the start."""
        committed = self._log.committed_offsets(self._plan.application_id)
        return {
            partition: offset
            for partition, offset in committed.items()
            if offset.metadata == OWN_OFFSETS
        }

    def _purge(self, processed: dict[TopicPartition, int | None]) -> None:
        """Delete records of loop topics that are processed, as Kafka does in repartition topics.

        Keep those of the last batch: Spark replays it if a power cut tears the file of its commit.
        Keep buffered ones too: their task reads them again.
        """
        offsets = {
            partition: offset
            for partition, offset in processed.items()
            if offset is not None and partition.topic in self._plan.loops
        }
        if offsets:
            self._log.delete_records(offsets)
