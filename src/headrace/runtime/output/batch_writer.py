"""Writes what the tasks of one partition put out in a batch, once.

A partition writes one transaction per batch: the records of all its tasks, and a marker for each of
them. A marker is an offset of the group ``<application.id>-markers``: the batch number plus one,
with metadata that say which checkpoint and which batch it belongs to. A replayed batch finds the
markers and writes only what is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec

from headrace.brokers.log import OffsetAndMetadata, TopicPartition
from headrace.brokers.sessions import Broker
from headrace.errors import (
    CheckpointError,
    LeadershipLostError,
    RecordRefusedError,
    UnstableOffsetsError,
)
from headrace.runtime.checkpoint.checks import check_markers_intact
from headrace.runtime.checkpoint.markers import Marker, parse_marker
from headrace.runtime.exchange.output_buffer import OutputBuffer
from headrace.runtime.exchange.packing import TaskReport
from headrace.runtime.leadership import check_leadership
from headrace.runtime.output.refused_records import AnyOutputs, Records, RefusedRecords
from headrace.runtime.program import Program
from headrace.topology.naming import markers_name, transactional_id

_log = logging.getLogger("headrace")

_WRITTEN_AT_ONCE = 32 << 20
"""How many bytes are written together without a transaction."""


@dataclass
class PartitionResult:
    """What one Spark partition wrote."""

    reports: list[TaskReport] = field(default_factory=list)
    written: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)

    def add(self, written: Mapping[str, int], refused: Mapping[str, int]) -> None:
        """Count what went to topics, and what did not."""
        for counts, more in ((self.written, written), (self.refused, refused)):
            for topic, records in more.items():
                counts[topic] = counts.get(topic, 0) + records


class BatchWriter:
    """Writes the outputs of one batch and Spark partition to a log.

    Args:
        program: What runs.
        log: Where to write.
        partition: The Spark partition.
        batch: The number of the batch.
        query: Spark's id of the query.
        attempt: How often this batch and partition were tried before.
    """

    def __init__(
        self,
        program: Program,
        log: Broker,
        *,
        partition: int,
        batch: int,
        query: str,
        attempt: int = 0,
    ) -> None:
        self._program = program
        self._log = log
        self._batch = batch
        self._query = query
        self._attempt = attempt
        self._exactly_once = program.config.processing_guarantee == "exactly_once_v2"
        self._marker_group = markers_name(program.plan.application_id)
        self._transactional_id = transactional_id(program.plan.application_id, partition)

    def write(self, payloads: Iterable[bytes]) -> PartitionResult:
        """Write what is not yet written, and return what was done.

        Args:
            payloads: The packed outputs of tasks. All are at hand before a transaction begins.
        """
        with OutputBuffer(payloads) as outputs:
            note = PartitionResult(outputs.reports)
            if not self._exactly_once:
                # They are in memory while they are written.
                for some in outputs.chunks(_WRITTEN_AT_ONCE):
                    append = partial(self._append, some)
                    self._write_what_is_taken(some, outputs.digest, note, append)
            elif outputs.tasks:
                write = partial(self._write_once, outputs)
                self._write_what_is_taken(outputs.tasks, outputs.digest, note, write)
            return note

    def _write_what_is_taken(
        self,
        tasks: Mapping[int, AnyOutputs],
        digest: str,
        note: PartitionResult,
        write: Callable[[Records], object],
    ) -> None:
        """Write outputs; again without a record that is refused, if the application says so."""
        refused = RefusedRecords(
            self._program, self._log, self._transactional_id, digest, self._check_leadership
        )
        while True:
            # Before a producer is opened, which would put out that of the leader.
            self._check_leadership()
            records = Records(refused)
            try:
                write(records)
            except RecordRefusedError as error:
                self._attempt += 1
                refused.skip_written(error.taken, tasks)
                refused.decide(error, tasks)
            else:
                note.add(records.counts, refused.counts)
                return

    def _append(self, tasks: Mapping[int, AnyOutputs], records: Records) -> None:
        self._log.append(list(records.of(tasks)))

    def _write_once(self, outputs: OutputBuffer, records: Records) -> None:
        marker = Marker(self._query, outputs.digest, self._program.leader_epoch)
        with self._log.transaction(self._transactional_id, size=outputs.size) as transaction:
            self._check_leadership()
            try:
                done = self._done(outputs.tasks, marker)
            except UnstableOffsetsError as error:
                if self._attempt > 0 or not outputs.is_new:
                    raise
                # Only a batch before this one can have written markers, and Spark has committed
                # that: a broker that lost the end of its transaction writes it with the next one.
                _log.warning("Batch %d is written without its markers: %s", self._batch, error)
                done = set()
            missing = {task: each for task, each in outputs.tasks.items() if task not in done}
            if missing:
                if self._attempt > 0 or not outputs.is_new:
                    self._check_unwritten()
                transaction.append(records.of(missing))
                written = OffsetAndMetadata(self._batch + 1, msgspec.json.encode(marker).decode())
                names = [TopicPartition(self._marker_group, task) for task in missing]
                transaction.commit_offsets(self._marker_group, dict.fromkeys(names, written))

    def _check_unwritten(self) -> None:
        """Make sure that what has no marker was not written."""
        program = self._program
        if program.marker_topic_id:
            application_id = program.plan.application_id
            check_markers_intact(application_id, self._log, program.marker_topic_id, self._batch)

    def _check_leadership(self) -> None:
        application_id = self._program.plan.application_id
        check_leadership(self._log, application_id, self._program.leader_epoch)

    def _done(self, tasks: Iterable[int], own: Marker) -> set[int]:
        """Return the tasks whose outputs of this batch are written already."""
        application_id = self._program.plan.application_id
        names = {TopicPartition(self._marker_group, task): task for task in tasks}
        done: set[int] = set()
        for name, found in self._log.committed_offsets(self._marker_group, names).items():
            kept = parse_marker(found, application_id)
            if kept.query != own.query:
                continue
            if kept.leader_epoch > own.leader_epoch:
                raise LeadershipLostError(application_id)
            if found.offset <= self._batch:
                continue
            if found.offset > self._batch + 1 or kept.digest != own.digest:
                msg = (
                    f"Batch {self._batch} of task {name.partition} was written from other offsets "
                    "than this checkpoint says: it is an older copy. Restore the newest one, or "
                    f"start again with `headrace reset {application_id}`."
                )
                raise CheckpointError(msg)
            done.add(names[name])
        return done
