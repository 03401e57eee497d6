"""Decide what the next batch reads. Runs on the driver, between batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cached_property

from headrace.brokers.log import OffsetAndMetadata, TopicLog, TopicPartition
from headrace.brokers.offset_metadata import OWN_OFFSETS
from headrace.config import StreamsConfig
from headrace.errors import CheckpointError, OffsetOutOfRangeError
from headrace.runtime.batches import (
    Batch,
    BatchBoundary,
    Range,
    digest,
    lost_ranges,
    ranges,
)
from headrace.runtime.checkpoint.checkpoint import Checkpoint
from headrace.runtime.checkpoint.files import create_first, read_first
from headrace.runtime.checkpoint.layout import CheckpointLayout, check_growth, write_layout
from headrace.runtime.checkpoint.markers import renew_sentinel
from headrace.runtime.exchange.packing import Split, TaskCall, TaskReport
from headrace.runtime.internal_topics import ensure_marker_topic, grow_changelogs
from headrace.runtime.leadership import check_leadership
from headrace.runtime.plan import ExecutionPlan
from headrace.runtime.planning.admission import Admission
from headrace.runtime.planning.input_sync import limit_inputs_ahead, subtopologies_with_buffers
from headrace.runtime.planning.input_topics import Subscriptions, first_offsets
from headrace.runtime.planning.interval import Interval
from headrace.runtime.planning.probing import Probing
from headrace.runtime.run_files import BatchResult, Control, PlannerStatus, RunFiles
from headrace.topology.naming import transactional_id

_REFRESH_SECONDS = 5.0
_PATIENCE_SECONDS = 0.25
_SHORTEST_PAUSE = 0.005
_LONGEST_PAUSE = 0.05
_PURGE_SECONDS = 30.0
_COMMIT_SECONDS = 60.0
"""After this time offsets are committed again although nothing was read: Kafka forgets old ones,
and who led before may have been about to commit older ones when it was taken over."""
_SHORT_SECONDS = 10.0
_SMALL_BATCH = 20_000
_NOTE_SECONDS = 0.5


class Planner:
    """Plans batches: offsets, the clock, and what each Spark task reads.

    Args:
        plan: What runs.
        config: How.
        log: Where the topics are.
        layout: The tasks there are; new ones are added and written to the checkpoint.
        checkpoint: Its checkpoint.
        notes: What the other processes of the driver say.
        generation: The leader that it plans for.
        stages_run_once: Whether Spark never runs a stage again that has ended: no executor can be
            lost, so no output of a stage can.
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
        self._admission = Admission(tables=plan.table_topics)
        self._interval = Interval(config.trigger)
        self._subscriptions = Subscriptions(plan, log)
        self._refreshed = time.monotonic()
        self._checked_beginnings = False
        self._start_overrides: dict[str, dict[str, int]] = {}
        self._start_overrides_for: BatchBoundary | None = None
        self._until: dict[TopicPartition, int] | None = None
        self._planned: tuple[float, int] | None = None
        self._newest: BatchBoundary | None = None
        """Where the last batch ends that was planned here."""
        self._seconds = 0.0
        self._reports: list[TaskReport] = []
        """What tasks did in the last batch."""
        self._waiting: dict[str, dict[str, int]] = {}
        """What waits for another input, by the tasks that have run since the start."""
        self._has_asked = False
        self._done: dict[str, list[int]] = {}
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        """What was committed since the start."""
        self._committed_at = 0.0
        self._sealed_at = 0.0
        self._ends: dict[TopicPartition, int] = {}
        self._start: BatchBoundary | None = None
        self._noted = 0.0
        self._pause = _SHORTEST_PAUSE
        self._purged = time.monotonic()
        self._probing = Probing(log)
        self._short_since: dict[TopicPartition, float] = {}
        self._needs_wake = any(subtopology.runs_every_batch for subtopology in plan.subtopologies)
        self._time_stands_still = False
        self._may_have_written = False
        self._stages_run_once = stages_run_once

    def first(self) -> BatchBoundary:
        """Return where the application started, or starts now.

        Spark does not write down where its first batch begins, so it is done here: a replay of that
        batch must begin at the same place, whatever was written or deleted since.
        """
        kept = read_first(self._plan.application_id, self._checkpoint.folder)
        if kept is None:
            create_first(self._checkpoint.folder, self._new_first())
            kept = read_first(self._plan.application_id, self._checkpoint.folder)
            assert kept is not None, "it was written"
        return kept

    def _new_first(self) -> BatchBoundary:
        offsets = first_offsets(self._plan, self._config, self._log, self._subscriptions)
        until: dict[str, list[int]] = {}
        for topic in self._plan.global_topics:
            names = [TopicPartition(topic, p) for p in range(self._subscriptions.counts[topic])]
            ends = self._log.end_offsets(names)
            until[topic] = [ends[name] for name in names]
        return BatchBoundary(offsets=offsets, clock=0, global_load_ends=until)

    def stop_at_current_ends(self) -> None:
        """Plan no records that are written after this call, except by the application itself."""
        self._until = self._log.end_offsets(list(self._subscriptions.partitions()))

    def next(self, start: BatchBoundary) -> BatchBoundary:
        """Return the end of the next batch; ``start`` itself if there is nothing to do.

        Raises:
            LeadershipLostError: Another process runs the application now.
        """
        check_leadership(self._log, self._plan.application_id, self._leader_epoch)
        self._learn()
        self._commit(start)
        give_up = time.monotonic() + self._patience
        while True:
            control = self._run_files.read(Control)
            if control.stopping:
                self._note(start, self._ends, is_drained=True)
                return start
            may_plan = not control.paused and self._interval.is_over()
            if may_plan or self._has_news(start):
                ends = self._look(start)
                end = self._planned_end(start, ends, control) if may_plan else None
                if end is not None:
                    self._newest = end
                    return end
            if time.monotonic() >= give_up:
                if self._until is None or not control.paused:
                    return start
                # Spark would end the query, and leave unread what was available.
                give_up = time.monotonic() + _PATIENCE_SECONDS
                check_leadership(self._log, self._plan.application_id, self._leader_epoch)
            time.sleep(min(self._pause, self._interval.left() or self._pause))
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _note(
        self, start: BatchBoundary, ends: dict[TopicPartition, int], *, is_drained: bool = False
    ) -> None:
        self._noted = time.monotonic()
        self._run_files.write(
            PlannerStatus(
                is_drained=is_drained,
                offsets=start.offsets,
                ends=_by_topic(ends),
                limit=self._admission.limit,
                seconds=self._seconds,
            )
        )

    def _commit(self, done: BatchBoundary) -> None:
        """Let the group of the application show how far it has come."""
        if time.monotonic() - self._sealed_at > _COMMIT_SECONDS:
            application_id = self._plan.application_id
            renew_sentinel(application_id, self._log, self._checkpoint, self._leader_epoch)
            self._sealed_at = time.monotonic()
        if done.clock == 0:
            return
        offsets = dict(self._processed(done))
        is_old = time.monotonic() - self._committed_at > _COMMIT_SECONDS
        if offsets and (is_old or not offsets.items() <= self._committed.items()):
            self._log.commit_offsets(self._plan.application_id, offsets)
            self._committed |= offsets
            self._committed_at = time.monotonic()
        before, self._done = self._done, done.offsets
        if before != done.offsets and time.monotonic() - self._purged > _PURGE_SECONDS:
            self._purged = time.monotonic()
            self._purge(before)

    def _processed(self, done: BatchBoundary) -> Iterator[tuple[TopicPartition, OffsetAndMetadata]]:
        """Yield how far partitions are processed: what waits for another input is only read."""
        held = subtopologies_with_buffers(self._plan, self._layout, self._waiting)
        for topic, read in done.offsets.items():
            subtopology = self._plan.reader_of(topic)
            for partition, offset in enumerate(read[: self._subscriptions.counts.get(topic, 0)]):
                name = TopicPartition(topic, partition)
                waiting: dict[str, int] | None = {}
                if subtopology is not None and subtopology.has_several_inputs:
                    # Nothing is known of what waits in a task until it has run.
                    waiting = self._waiting.get(f"{subtopology.id}_{partition}")
                if subtopology is not None and subtopology.id in held:
                    waiting = None
                if waiting is not None:
                    processed = min(offset, waiting.get(topic, offset))
                    yield name, OffsetAndMetadata(processed, OWN_OFFSETS)
                elif kept := self._committed.get(name) or self._committed_before.get(name):
                    yield name, kept

    @cached_property
    def _committed_before(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group had committed before the start."""
        committed = self._log.committed_offsets(self._plan.application_id)
        return {name: each for name, each in committed.items() if each.metadata == OWN_OFFSETS}

    def _purge(self, offsets: dict[str, list[int]]) -> None:
        """Delete what was read from loops, as Kafka does with its repartition topics.

        Not what the last batch read: it is done again if a power cut tears Spark's note of its end.
        """
        read = {
            TopicPartition(topic, partition): offset
            for topic in self._plan.loops
            for partition, offset in enumerate(offsets.get(topic, ()))
        }
        if read:
            self._log.delete_records(read)

    @property
    def _patience(self) -> float:
        """How long to wait for records before Spark is told that there are none."""
        return 0.0 if self._config.trigger == "available_now" else _PATIENCE_SECONDS

    def _learn(self) -> None:
        if self._planned is None and self._has_asked:
            return
        self._has_asked = True
        note = self._run_files.read(BatchResult)
        self._reports = note.reports
        for report in note.reports:
            if report.waiting_from is not None:
                self._waiting[report.task] = report.waiting_from
        if self._planned is None:
            return
        began, records = self._planned
        self._planned = None
        size = sum(report.bytes_read for report in note.reports)
        self._seconds = time.monotonic() - began
        self._admission.learn(records, self._seconds, size)

    def _has_news(self, start: BatchBoundary) -> bool:
        """Return whether others should hear how far batches are, and how far topics reach."""
        return start != self._start or time.monotonic() - self._noted > _NOTE_SECONDS

    def _look(self, start: BatchBoundary) -> dict[TopicPartition, int]:
        """Return where topics end now, and leave a note of that now and then."""
        if time.monotonic() - self._refreshed > _REFRESH_SECONDS:
            self._refreshed = time.monotonic()
            self._subscriptions.refresh()
            self._checked_beginnings = False
        ends = self._ends = self._log.end_offsets(list(self._subscriptions.partitions()))
        if self._has_news(start):
            self._start = start
            self._note(start, ends)
        return ends

    def _planned_end(
        self, start: BatchBoundary, ends: dict[TopicPartition, int], control: Control
    ) -> BatchBoundary | None:
        start_overrides = self._new_start_overrides(start)
        names = list(ends)
        begins = {name: self._begin(start, start_overrides, name) for name in names}
        self._check_ends(begins, ends)
        available = {
            name: max(0, self._limit_of(name, ends[name]) - begins[name]) for name in names
        }
        catching_up = {
            name: min(count, until - begins[name])
            for name, count in available.items()
            if (until := _until(start, name)) is not None and until > begins[name]
        }
        if any(catching_up.values()):
            available = catching_up
        available = limit_inputs_ahead(self._plan, self._reports, available)
        shares = self._probing.shares(self._admission, begins, available)
        if not shares and self._awaits_own_records():
            return self._planned_end(start, self._look(start), control)
        clock = self._clock(start, control)
        if not shares:
            if not self._is_due(clock):
                return None
            # Else a schedule that is shorter than a batch would keep the query from its end.
            self._time_stands_still = self._until is not None
        offsets = {
            topic: [
                begins[name] + shares.get(name, 0)
                for name in (TopicPartition(topic, p) for p in range(count))
            ]
            for topic, count in self._subscriptions.counts.items()
        }
        # A broker that lags behind may leave out what was read already: it is not new later.
        for topic, read in start.offsets.items():
            offsets[topic] = [*offsets.get(topic, ()), *read[len(offsets.get(topic, ())) :]]
        partitions_with_more: dict[str, list[int]] = {}
        for name in names:
            if offsets[name.topic][name.partition] < self._limit_of(name, ends[name]):
                partitions_with_more.setdefault(name.topic, []).append(name.partition)
        if partitions_with_more:
            self._interval.skip()
        self._pause = _SHORTEST_PAUSE
        self._planned = (time.monotonic(), sum(shares.values()))
        self._may_have_written = True
        return BatchBoundary(
            offsets, clock, partitions_with_more, start_overrides, start.global_load_ends
        )

    def _clock(self, start: BatchBoundary, control: Control) -> int:
        """Return the time of day of the next batch."""
        if self._time_stands_still:
            return start.clock
        clock = time.time_ns() // 1_000_000 if control.clock is None else control.clock
        return max(clock, start.clock)

    def _awaits_own_records(self) -> bool:
        """Wait until the end of topics counts what the application itself has written to them.

        A broker may take a moment for that, and no later look would find what the last one missed.
        Returns whether that was needed.
        """
        has_written, self._may_have_written = self._may_have_written, False
        is_needed = (
            has_written
            and self._until is not None
            and self._config.processing_guarantee == "exactly_once_v2"
            and not self._plan.written_topics.isdisjoint(self._subscriptions.counts)
        )
        if is_needed:
            application_id = self._plan.application_id
            # Whoever is not the leader would put out a transaction of the one who is.
            check_leadership(self._log, application_id, self._leader_epoch)
            partitions = range(self._layout.shuffle_partitions)
            self._log.fence_producers(transactional_id(application_id, p) for p in partitions)
        return is_needed

    def _check_ends(
        self, begins: dict[TopicPartition, int], ends: dict[TopicPartition, int]
    ) -> None:
        """Refuse to go on in a topic that ends before what was read of it.

        Raises:
            CheckpointError: The topic was deleted, and made again.
        """
        for name, end in ends.items():
            if end >= begins[name]:
                self._short_since.pop(name, None)
                continue
            # A broker that has just taken over may not know yet how far its partitions go.
            since = self._short_since.setdefault(name, time.monotonic())
            if time.monotonic() - since > _SHORT_SECONDS:
                msg = (
                    f"Topic {name.topic!r}, partition {name.partition}, ends at {end}, but was "
                    f"read up to {begins[name]}: it was deleted and made again. Start again with "
                    f"`headrace reset {self._plan.application_id}`."
                )
                raise CheckpointError(msg)

    def _is_due(self, clock: int) -> bool:
        """Return whether tasks must be called although there are no records for them."""
        if not self._needs_wake:
            return False
        note = self._run_files.read(BatchResult)
        if note.batch < 0:
            return True  # nothing is known yet of what tasks wait for
        due = [report.next_due for report in note.reports if report.next_due is not None]
        return any(each <= clock for each in due)

    def _limit_of(self, name: TopicPartition, end: int) -> int:
        if self._until is None or name.topic in self._plan.written_topics:
            return end
        return min(end, self._until.get(name, 0))  # what was not there has nothing to give

    def _begin(
        self, start: BatchBoundary, start_overrides: dict[str, dict[str, int]], name: TopicPartition
    ) -> int:
        moved = start_overrides.get(name.topic, {}).get(str(name.partition))
        return start.offset(*name) if moved is None else moved

    def _new_start_overrides(self, start: BatchBoundary) -> dict[str, dict[str, int]]:
        """Return where partitions start that were never read, or that lost records."""
        if self._checked_beginnings:
            # Until a batch has read from there: the one that was planned with them, or none yet.
            return (
                self._start_overrides
                if self._start_overrides and start == self._start_overrides_for
                else {}
            )
        self._checked_beginnings = True
        self._add_tasks()
        beginnings = self._log.beginning_offsets(list(self._subscriptions.partitions()))
        start_overrides: dict[str, dict[str, int]] = {}
        for name, beginning in beginnings.items():
            topic, partition = name
            is_new = partition >= len(start.offsets.get(topic, ()))
            offset = start.offset(topic, partition)
            if beginning > offset:
                if not is_new and self._config.fail_on_data_loss:
                    raise OffsetOutOfRangeError(
                        topic, partition, offset=offset, beginning=beginning
                    )
                start_overrides.setdefault(topic, {})[str(partition)] = beginning
        self._start_overrides, self._start_overrides_for = start_overrides, start
        return start_overrides

    def _add_tasks(self) -> None:
        """Give new partitions their tasks, before a batch reads them.

        Raises:
            TopologyError: The records of a key would go to another task than its state.
        """
        added = False
        for subtopology in self._plan.subtopologies:
            counts = {
                topic: self._subscriptions.counts[topic]
                for topic, reader in self._subscriptions.readers.items()
                if reader is subtopology
            }
            check_growth(self._layout, subtopology, counts)
            added |= self._layout.add_tasks(subtopology, max(counts.values(), default=0))
        if added:
            check_leadership(self._log, self._plan.application_id, self._leader_epoch)
            grow_changelogs(self._plan, self._layout, self._log)
            # Written last: what is in the layout is taken to be there.
            ensure_marker_topic(self._log, self._plan.application_id, len(self._layout.tasks))
            # It may have taken long to come here: another leader has a layout of its own.
            check_leadership(self._log, self._plan.application_id, self._leader_epoch)
            write_layout(self._checkpoint.folder, self._layout)

    def splits(self, start: BatchBoundary, end: BatchBoundary) -> list[Split]:
        """Return what each Spark task reads; depends on the positions and the layout alone.

        Only whether the batch is new does not: it is not if another query has planned it.
        """
        is_new = end == self._newest and self._stages_run_once
        batch = Batch(end.clock, digest(start, end), is_new)
        read = ranges(start, end)
        task_calls, lost = tuple(self._task_calls(end)), tuple(lost_ranges(start, end))
        total = sum(each.end - each.start for each in read)
        if total <= _SMALL_BATCH or len(read) == 1:
            return [Split(batch, tuple(read), task_calls, lost)]
        bins: list[list[Range]] = [[] for _ in range(self._layout.shuffle_partitions)]
        sizes = [0] * len(bins)
        for each in sorted(read, key=lambda each: each.start - each.end):
            smallest = sizes.index(min(sizes))
            bins[smallest].append(each)
            sizes[smallest] += each.end - each.start
        splits = [Split(batch, tuple(some)) for some in bins if some]
        splits[0] = Split(batch, splits[0].ranges, task_calls, lost)
        return splits

    def _task_calls(self, end: BatchBoundary) -> list[TaskCall]:
        """Return what tasks must know besides records: that there are none, or which have more."""
        task_calls = []
        with_more = [
            self._plan.reader_of(topic) for topic, some in end.partitions_with_more.items() if some
        ]
        for subtopology in self._plan.subtopologies:
            if subtopology.stage == 0 or not (
                subtopology.runs_every_batch or subtopology.has_several_inputs
            ):
                continue
            upstream = self._plan.upstream_ids(subtopology)
            upstream_more = any(reader and reader.id in upstream for reader in with_more)
            for partition in range(self._layout.count_of(subtopology.id)):
                partitions_with_more = [
                    (topic, partition)
                    for topic, partitions in end.partitions_with_more.items()
                    if partition in partitions and self._plan.reader_of(topic) is subtopology
                ]
                if upstream_more:
                    partitions_with_more += [(topic, -1) for topic in subtopology.repartitions]
                if partitions_with_more or subtopology.runs_every_batch:
                    task_number = self._layout.placement(subtopology.id, partition).task_number
                    task_calls.append(
                        TaskCall(subtopology.id, partition, task_number, partitions_with_more)
                    )
        return task_calls


def _until(start: BatchBoundary, name: TopicPartition) -> int | None:
    until = start.global_load_ends.get(name.topic)
    if until is None or name.partition >= len(until):
        return None
    return until[name.partition]


def _by_topic(ends: dict[TopicPartition, int]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for name in sorted(ends):
        by_topic.setdefault(name.topic, []).append(ends[name])
    return by_topic
