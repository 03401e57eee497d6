"""Write the output of the tasks of one Spark partition and batch, once.

A partition writes one transaction per batch: the records of all its tasks, and a marker for each of
them. A marker is an offset of the group ``<application.id>-markers``: the batch number plus one.
Its metadata name the checkpoint and the batch. A replay finds the markers and writes only the tasks
that have none.

Run `make nightly PART=model` and `make nightly PART=cuts` after a change here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from headrace.brokers.log import OffsetAndMetadata, TopicPartition
from headrace.brokers.sessions import Broker
from headrace.engine.record_failures import FirstFailure
from headrace.errors import (
    CheckpointError,
    LeadershipLostError,
    RecordRefusedError,
    UnstableOffsetsError,
)
from headrace.metrics import BATCH_SECONDS, Histogram
from headrace.runtime.checkpoint.checks import check_markers_intact
from headrace.runtime.checkpoint.markers import Marker, parse_marker
from headrace.runtime.exchange.output_buffer import OutputBuffer
from headrace.runtime.exchange.packing import TaskReport
from headrace.runtime.leadership import check_leadership
from headrace.runtime.output.refused_records import AnyOutputs, Records, RefusedRecords
from headrace.runtime.program import Program
from headrace.runtime.run_files import BatchResult
from headrace.topology.naming import markers_name, transactional_id

_log = logging.getLogger("headrace")

COMMITTED, ABORTED = "commit", "abort"
_WRITTEN_AT_ONCE = 32 << 20
"""How many bytes are written together without a transaction."""


def now_ms() -> int:
    """Return the time in milliseconds."""
    return time.time_ns() // 1_000_000


@dataclass
class PartitionResult:
    """The result of one Spark partition."""

    reports: list[TaskReport] = field(default_factory=list)
    written: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    failures: list[FirstFailure] = field(default_factory=list)
    """The first refused record of each sink that the production handler skipped."""
    digest: str = ""
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    """The offsets behind the last records of the changelogs that the batch has changed."""
    latencies: dict[str, Histogram] = field(default_factory=dict)
    """The seconds from the timestamps of records until they were written, by topic."""
    transactions: dict[str, int] = field(default_factory=dict)
    """How many transactions there were, by their end: `COMMITTED` or `ABORTED`."""
    commit_seconds: float | None = None
    """How long the commit of the transaction took."""

    def add(self, written: Mapping[str, int], refused: Mapping[str, int]) -> None:
        """Count written and refused records, by topic."""
        for counts, added in ((self.written, written), (self.refused, refused)):
            for topic, records in added.items():
                counts[topic] = counts.get(topic, 0) + records


def batch_result(last: BatchResult, batch: int, results: Iterable[PartitionResult]) -> BatchResult:
    """Return the result of a batch, with the totals of the run up to the last one."""
    totals, reports, digest = last.totals, [], ""
    ends: dict[str, dict[int, int]] = {}
    totals.batches += 1
    commits = []
    for result in results:
        totals.add_transactions(result.transactions, result.latencies)
        if result.commit_seconds is not None:
            commits.append(result.commit_seconds)
        reports += result.reports
        totals.add_written(result.written, result.refused)
        totals.add_failures(result.failures)
        digest = digest or result.digest
        for (topic, partition), end in result.ends.items():
            ends.setdefault(topic, {})[partition] = end
    totals.add(reports)
    if commits:
        # They run beside each other, so the batch waits for the longest.
        totals.commit_seconds.add([max(commits)], BATCH_SECONDS)
    return BatchResult(batch, reports, totals, digest, ends)


class BatchWriter:
    """Writes the outputs of one batch and Spark partition to a log.

    ``query`` is Spark's id of the query, ``attempt`` how often Spark has run this task before.
    Output that exceeds the memory goes to a file in ``buffer_folder``, or in the system's folder.
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
        buffer_folder: Path | None = None,
        now: Callable[[], int] = now_ms,
    ) -> None:
        self._now = now
        self._program = program
        self._log = log
        self._batch = batch
        self._query = query
        self._attempt = attempt
        self._buffer_folder = buffer_folder
        self._exactly_once = program.config.processing_guarantee == "exactly_once_v2"
        self._marker_group = markers_name(program.plan.application_id)
        self._transactional_id = transactional_id(program.plan.application_id, partition)

    def write(self, payloads: Iterable[bytes]) -> PartitionResult:
        """Write the packed outputs that are not written yet.

        All of them are read before a transaction begins.
        """
        with OutputBuffer(payloads, folder=self._buffer_folder) as outputs:
            result = PartitionResult(outputs.reports, digest=outputs.digest)
            if not self._exactly_once:
                for chunk in outputs.chunks(_WRITTEN_AT_ONCE):
                    append = partial(self._append, chunk)
                    self._write_accepted(chunk, outputs.digest, result, append)
                if changed := _changed(outputs.reports, outputs.tasks.values()):
                    result.ends = self._log.uncommitted_ends(changed)
            elif outputs.tasks:
                write = partial(self._write_once, outputs, result)
                self._write_accepted(outputs.tasks, outputs.digest, result, write)
            return result

    def _write_accepted(
        self,
        tasks: Mapping[int, AnyOutputs],
        digest: str,
        result: PartitionResult,
        write: Callable[[Records], object],
    ) -> None:
        """Write outputs, and again without refused records that the production handler skips."""
        refused = RefusedRecords(
            self._program, self._log, self._transactional_id, digest, self._check_leadership
        )
        while True:
            # Opening a producer fences the leader's, so check before that.
            self._check_leadership()
            records = Records(refused)
            try:
                write(records)
            except RecordRefusedError as error:
                self._attempt += 1
                if self._exactly_once:
                    result.transactions[ABORTED] = result.transactions.get(ABORTED, 0) + 1
                refused.skip_written(error.taken, tasks)
                refused.decide(error, tasks)
            else:
                result.add(records.counts, refused.counts)
                self._add_latencies(result, records)
                result.failures += refused.first.values()
                return

    def _add_latencies(self, result: PartitionResult, records: Records) -> None:
        changelogs = self._program.plan.changelogs
        for topic, latencies in records.latencies.histograms(self._now()).items():
            if topic not in changelogs:
                result.latencies.setdefault(topic, Histogram()).merge(latencies)

    def _append(self, tasks: Mapping[int, AnyOutputs], records: Records) -> None:
        self._log.append(list(records.of(tasks)))

    def _write_once(self, outputs: OutputBuffer, result: PartitionResult, records: Records) -> None:
        marker = Marker(self._query, outputs.digest, self._program.leader_epoch)
        began = time.monotonic()
        with self._log.transaction(self._transactional_id, size=outputs.size) as transaction:
            self._check_leadership()
            try:
                written_tasks = self._written_tasks(outputs.tasks, marker)
            except UnstableOffsetsError as error:
                if self._attempt > 0 or not outputs.is_new:
                    raise
                # This is the first attempt, so the markers are those of an earlier batch, which
                # Spark has committed. A broker that lost the end of that transaction ends it with
                # the next one.
                _log.warning(
                    "Batch %d is written without checking its markers: %s", self._batch, error
                )
                written_tasks = set()
            missing = {
                task_number: task_outputs
                for task_number, task_outputs in outputs.tasks.items()
                if task_number not in written_tasks
            }
            if missing:
                if self._attempt > 0 or not outputs.is_new:
                    self._check_markers_intact()
                transaction.append(records.of(missing))
                if changed := _changed(outputs.reports, missing.values()):
                    result.ends = transaction.ask_ends(changed)
                offset = OffsetAndMetadata(self._batch + 1, msgspec.json.encode(marker).decode())
                partitions = [TopicPartition(self._marker_group, task) for task in missing]
                transaction.commit_offsets(self._marker_group, dict.fromkeys(partitions, offset))
            began = time.monotonic()  # the commit is next
        if missing:
            result.transactions[COMMITTED] = 1
            result.commit_seconds = time.monotonic() - began
        done = (outputs.tasks[task_number] for task_number in written_tasks)
        if changed := _changed(outputs.reports, done):
            # The end of their transaction may count, because no other process writes there now.
            result.ends = result.ends | self._log.uncommitted_ends(changed)

    def _check_markers_intact(self) -> None:
        """Check that tasks have no marker because they were not written."""
        program = self._program
        if program.marker_topic_id:
            application_id = program.plan.application_id
            check_markers_intact(application_id, self._log, program.marker_topic_id, self._batch)

    def _check_leadership(self) -> None:
        application_id = self._program.plan.application_id
        check_leadership(self._log, application_id, self._program.leader_epoch)

    def _written_tasks(self, task_numbers: Iterable[int], own: Marker) -> set[int]:
        """Return the tasks whose outputs of this batch are written already."""
        application_id = self._program.plan.application_id
        partitions = [TopicPartition(self._marker_group, number) for number in task_numbers]
        written: set[int] = set()
        committed = self._log.committed_offsets(self._marker_group, partitions)
        for partition, offset in committed.items():
            marker = parse_marker(offset, application_id)
            if marker.query != own.query:
                continue
            if marker.leader_epoch > own.leader_epoch:
                raise LeadershipLostError(application_id)
            if offset.offset <= self._batch:
                continue
            if offset.offset > self._batch + 1 or marker.digest != own.digest:
                msg = (
                    f"Batch {self._batch} of task {partition.partition} was written from other "
                    "offsets than this checkpoint has: it is an older copy. Restore the newest "
                    f"one, or start again with `headrace reset {application_id}`."
                )
                raise CheckpointError(msg)
            written.add(partition.partition)
        return written


def _changed(reports: Iterable[TaskReport], tasks: Iterable[AnyOutputs]) -> list[TopicPartition]:
    """Return the changelog partitions that tasks change in a batch."""
    names = {outputs.task for outputs in tasks}
    return [
        TopicPartition(topic, report.partition)
        for report in reports
        if report.task in names
        for topic, store in report.stores.items()
        if store.changes
    ]
