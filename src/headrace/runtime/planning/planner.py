"""Decides what the next batch reads. Spark calls it on the driver, between batches.

Run `make nightly PART=model` and `make nightly PART=cuts` after a change here.
"""

from __future__ import annotations

import time

from headrace.brokers.log import TopicLog, TopicPartition
from headrace.config import StreamsConfig
from headrace.runtime.batches import Batch, BatchBoundary, digest
from headrace.runtime.checkpoint.checkpoint import Checkpoint
from headrace.runtime.checkpoint.files import create_first, read_first
from headrace.runtime.checkpoint.layout import CheckpointLayout, check_growth, write_layout
from headrace.runtime.exchange.packing import Split
from headrace.runtime.internal_topics import (
    ensure_marker_topic,
    grow_changelogs,
    writes_snapshots,
)
from headrace.runtime.leadership import check_leadership
from headrace.runtime.plan import ExecutionPlan
from headrace.runtime.planning.admission import Admission, TriggerInterval
from headrace.runtime.planning.batch_clock import BatchClock
from headrace.runtime.planning.batch_phases import BatchPhases
from headrace.runtime.planning.input_bounds import InputBounds
from headrace.runtime.planning.input_sync import InputSync
from headrace.runtime.planning.input_topics import InputTopics, first_offsets
from headrace.runtime.planning.progress import Progress
from headrace.runtime.planning.snapshot_writer import SnapshotWriter
from headrace.runtime.planning.splits import split_batch
from headrace.runtime.planning.status import StatusReport
from headrace.runtime.run_files import BatchResult, Control, RunFiles
from headrace.topology.naming import transactional_id

_POLL_SECONDS = 0.25
"""How long `next` waits for records. Then it returns ``start``, and Spark calls it again."""
_SHORTEST_PAUSE = 0.005
_LONGEST_PAUSE = 0.05


class Planner:
    """Plans batches: where each one ends, its clock, and what each Spark task reads.

    When an input topic grows, it adds tasks to the checkpoint layout. ``stages_run_once`` says that
    Spark runs in one process: it loses no executor, so it never repeats a finished stage.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        config: StreamsConfig,
        log: TopicLog,
        layout: CheckpointLayout,
        checkpoint: Checkpoint,
        run_files: RunFiles,
        *,
        leader_epoch: int,
        stages_run_once: bool,
    ) -> None:
        self._plan = plan
        self._config = config
        self._log = log
        self._layout = layout
        self._checkpoint = checkpoint
        self._run_files = run_files
        self._leader_epoch = leader_epoch
        self._stages_run_once = stages_run_once
        self._topics = InputTopics(plan, log)
        self._bounds = InputBounds(plan, config, log, self._topics)
        self._sync = InputSync(plan, layout, self._topics)
        self._admission = Admission(
            log, max_record_bytes=config.max_record_bytes, tables=plan.table_topics
        )
        self._interval = TriggerInterval(config.trigger)
        self._clock = BatchClock()
        self._progress = Progress(plan, log, checkpoint, self._sync, leader_epoch=leader_epoch)
        self._status = StatusReport(run_files, self._admission)
        self._phases = BatchPhases(run_files)
        self.snapshots = self._snapshot_writer()
        """Writes snapshot records; None if nobody reads them."""
        self._pause = _SHORTEST_PAUSE
        self._has_read_result = False
        """Whether a result was read. An earlier planner of this run may have left one."""
        self._planned: tuple[float, int] | None = None
        """When the running batch was planned, and its records. None while no batch runs."""
        self._last_end: BatchBoundary | None = None
        """The end of the last batch that this planner has planned."""
        self._may_have_written = True
        """Whether a batch may have run since `_await_own_records` was last called."""

    def _snapshot_writer(self) -> SnapshotWriter | None:
        if not writes_snapshots(self._plan, self._config):
            return None
        return SnapshotWriter(
            self._plan,
            self._config,
            self._log,
            self._layout,
            self._checkpoint,
            self._run_files,
            InputSync(self._plan, self._layout, self._topics),
            self._phases,
            leader_epoch=self._leader_epoch,
        )

    def first(self) -> BatchBoundary:
        """Return where the first batch of the application begins.

        Spark does not store the begin of the first batch, so the planner stores it. A replay must
        begin at the same offsets, even if records were written or deleted since.
        """
        first = read_first(self._plan.application_id, self._checkpoint.folder)
        if first is None:
            create_first(self._checkpoint.folder, self._new_first())
            first = read_first(self._plan.application_id, self._checkpoint.folder)
            assert first is not None, "create_first has just written it"
        return first

    def _new_first(self) -> BatchBoundary:
        offsets = first_offsets(self._plan, self._config, self._log, self._topics)
        load_ends: dict[str, list[int]] = {}
        for topic in self._plan.global_topics:
            partitions = [TopicPartition(topic, p) for p in range(self._topics.counts[topic])]
            ends = self._log.end_offsets(partitions)
            load_ends[topic] = [ends[partition] for partition in partitions]
        return BatchBoundary(offsets=offsets, clock=0, global_load_ends=load_ends)

    def stop_at_current_ends(self) -> None:
        """Plan no record that is written after this call.

        Topics that the application writes itself are the exception.
        """
        self._bounds.stop_at_current_ends()

    def next(self, start: BatchBoundary) -> BatchBoundary:
        """Return the end of the next batch; ``start`` itself if there is nothing to do.

        ``start`` is the end of the last batch, which is done.

        Raises:
            LeadershipLostError: Another process runs the application now.
        """
        self._phases.ended()
        self._check_leadership()
        self._learn()
        self._progress.commit(start)
        may_wait = self._config.trigger != "available_now"
        deadline = time.monotonic() + (_POLL_SECONDS if may_wait else 0.0)
        while True:
            control = self._run_files.read(Control)
            if control.stopping:
                self._drain_snapshots()
                self._status.write(start, self._bounds.ends, is_drained=True)
                return start
            may_plan = not control.paused and self._interval.is_over()
            if may_plan or self._status.is_due(start):
                self._phases.begin_plan()
                self._refresh(start)
                end = self._plan_end(start, control) if may_plan else None
                if end is not None:
                    self._last_end = end
                    return end
            if time.monotonic() >= deadline:
                if not (self._bounds.has_stop_offsets and control.paused):
                    if self._bounds.has_stop_offsets:
                        self._drain_snapshots()
                    return start
                # Spark ends this query when `next` returns ``start``. A paused one must wait.
                deadline = time.monotonic() + _POLL_SECONDS
                self._check_leadership()
            time.sleep(min(self._pause, self._interval.remaining() or self._pause))
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _must_call_all_tasks(self) -> bool:
        return self.snapshots is not None and self.snapshots.is_lost

    def _drain_snapshots(self) -> None:
        if self.snapshots is not None:
            self.snapshots.drain()

    def _check_leadership(self) -> None:
        check_leadership(self._log, self._plan.application_id, self._leader_epoch)

    def _learn(self) -> None:
        """Read the result of the last batch, once per batch and once at the start."""
        if self.snapshots is not None:
            self.snapshots.plans()
        if self._planned is None and self._has_read_result:
            return
        self._has_read_result = True
        reports = self._run_files.read(BatchResult).reports
        self._sync.learn(reports)
        if self._planned is not None:
            planned_at, records = self._planned
            self._planned = None
            self._status.seconds = time.monotonic() - planned_at
            read = sum(report.bytes_read for report in reports)
            # A step may make many records of one, and exchanges carry them, too.
            size = max(read, sum(report.bytes_written for report in reports))
            self._admission.learn(records, self._status.seconds, size)

    def _refresh(self, start: BatchBoundary) -> None:
        ends = self._bounds.refresh()
        if self._status.is_due(start):
            self._status.write(start, ends)

    def _plan_end(self, start: BatchBoundary, control: Control) -> BatchBoundary | None:
        if self._bounds.must_check_starts:
            self._add_tasks()
        overrides = self._bounds.start_overrides(start)
        begins = {
            partition: overrides.get(partition.topic, {}).get(
                str(partition.partition), start.offset(*partition)
            )
            for partition in self._bounds.ends
        }
        available = self._sync.limit_inputs_ahead(self._bounds.available(start, begins))
        if self._bounds.has_stop_offsets and not any(available.values()):
            # Every input is held back, because tasks wait for their idle time. This query must read
            # all its input before it ends, so it ignores the limit.
            available = self._bounds.available(start, begins)
        shares = self._admission.shares(begins, available)
        if not shares and self._await_own_records():
            self._refresh(start)
            return self._plan_end(start, control)
        clock = self._clock.read(start, control)
        calls_all_tasks = self._must_call_all_tasks()
        if not shares:
            if not (calls_all_tasks or self._is_call_due(start, clock)):
                return None
            if self._bounds.has_stop_offsets:
                # Otherwise schedules would be due after each batch, and the query would never end.
                self._clock.stop()
        offsets = self._end_offsets(start, begins, shares)
        partitions_with_more: dict[str, list[int]] = {}
        for partition in begins:
            end = offsets[partition.topic][partition.partition]
            if end < self._bounds.stop_offset(partition):
                partitions_with_more.setdefault(partition.topic, []).append(partition.partition)
        if partitions_with_more:
            self._interval.skip()
        self._note_planned(sum(shares.values()))
        return BatchBoundary(
            offsets,
            clock,
            partitions_with_more,
            overrides,
            start.global_load_ends,
            calls_all_tasks,
        )

    def _note_planned(self, records: int) -> None:
        self._pause = _SHORTEST_PAUSE
        self._phases.planned()
        self._planned = (time.monotonic(), records)
        self._may_have_written = True
        if self.snapshots is not None:
            self.snapshots.planned()

    def _end_offsets(
        self,
        start: BatchBoundary,
        begins: dict[TopicPartition, int],
        shares: dict[TopicPartition, int],
    ) -> dict[str, list[int]]:
        offsets: dict[str, list[int]] = {}
        for topic, count in self._topics.counts.items():
            partitions = (TopicPartition(topic, partition) for partition in range(count))
            offsets[topic] = [
                begins[partition] + shares.get(partition, 0) for partition in partitions
            ]
        # Stale metadata may lack a partition that batches have read. Keep its offset. Otherwise a
        # later batch takes the partition for a new one.
        for topic, read in start.offsets.items():
            known = offsets.get(topic, [])
            offsets[topic] = [*known, *read[len(known) :]]
        return offsets

    def _await_own_records(self) -> bool:
        """End the transactions of our producers, so that end offsets include all they wrote.

        A broker may take a moment for that, and a query that stops at the current ends would miss
        them. Returns whether the caller must read the end offsets again.
        """
        has_written, self._may_have_written = self._may_have_written, False
        must_wait = (
            has_written
            and self._bounds.has_stop_offsets
            and self._config.processing_guarantee == "exactly_once_v2"
            and not self._plan.written_topics.isdisjoint(self._topics.counts)
        )
        if must_wait:
            # If another process leads now, we would fence its producers.
            self._check_leadership()
            application_id = self._plan.application_id
            writers = range(self._layout.shuffle_partitions)
            self._log.fence_producers(transactional_id(application_id, w) for w in writers)
        return must_wait

    def _is_call_due(self, start: BatchBoundary, clock: int) -> bool:
        """Return whether tasks must run although there are no records for them."""
        if not any(subtopology.runs_every_batch for subtopology in self._plan.subtopologies):
            return False
        result = self._run_files.read(BatchResult)
        if result.batch < 0 or clock < start.clock:
            # No task has reported its next due time yet, or the clock was ahead then: run all.
            return True
        due = (report.next_due for report in result.reports if report.next_due is not None)
        return any(next_due <= clock for next_due in due)

    def _add_tasks(self) -> None:
        """Add tasks for new partitions, before a batch reads them.

        Raises:
            TopologyError: The new partitions would move keys to tasks that lack their state.
        """
        added = False
        for subtopology in self._plan.subtopologies:
            counts = {
                topic: self._topics.counts[topic]
                for topic, reader in self._topics.readers.items()
                if reader is subtopology
            }
            check_growth(self._layout, subtopology, counts)
            added |= self._layout.add_tasks(subtopology, max(counts.values(), default=0))
        if added:
            self._check_leadership()
            grow_changelogs(self._plan, self._layout, self._log)
            ensure_marker_topic(self._log, self._plan.application_id, len(self._layout.tasks))
            # The requests may have taken long. Do not overwrite the layout of another leader.
            self._check_leadership()
            # Last: at its start, an application expects the topics of every task in the layout.
            write_layout(self._checkpoint.folder, self._layout)

    def splits(self, start: BatchBoundary, end: BatchBoundary) -> list[Split]:
        """Return what each Spark task reads of a batch.

        A replay gets the same splits, except for `Batch.is_new`. That is True only if this planner
        has planned the batch, and no stage can run twice.
        """
        self._phases.runs()
        is_new = end == self._last_end and self._stages_run_once
        batch = Batch(end.clock, digest(start, end), is_new)
        if self.snapshots is not None:
            self.snapshots.runs(batch.digest, end)
        return split_batch(self._plan, self._layout, batch, start, end)
