"""Write a snapshot record after each batch, for the instances that answer queries.

The protocol is in ``docs/queries-protocol.md``. Records are made between two batches, from the
result of the sink. A thread writes them, so that no batch waits for that.

Run `make nightly PART=model` and `make nightly PART=standby` after a change here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from headrace.brokers.log import TopicLog, TopicPartition
from headrace.config import StreamsConfig
from headrace.errors import CheckpointError, StreamsError, UnknownTopicError
from headrace.runtime.batches import BatchBoundary
from headrace.runtime.checkpoint.batch_log import unfinished_batch
from headrace.runtime.checkpoint.checkpoint import Checkpoint
from headrace.runtime.checkpoint.layout import CheckpointLayout
from headrace.runtime.internal_topics import ensure_snapshots_topic
from headrace.runtime.plan import ExecutionPlan
from headrace.runtime.planning.batch_phases import BatchPhases
from headrace.runtime.planning.changelog_purge import ChangelogPurge
from headrace.runtime.planning.input_sync import InputSync
from headrace.runtime.planning.snapshot_stats import batch_stats, run_figures
from headrace.runtime.run_files import BatchResult, PlannerStatus, Restarts, RunFiles
from headrace.runtime.snapshots import (
    SNAPSHOTS_READ,
    UNKNOWN_OFFSET,
    Offsets,
    SnapshotRecord,
    digest_topic_ids,
    encode_snapshot,
    merged,
    newest_record,
    raised_position,
    read_snapshots,
)
from headrace.topology.naming import snapshots_name

_IDLE_SECONDS = 5.0
"""After how long without a new record the last one is written again."""
_RETRY_SECONDS = 1.0
_LAST_RECORD_SECONDS = 5.0
"""How long an orderly end waits for its last record."""
_POLL_SECONDS = 0.01
"""How often the thread looks for the result of a running batch."""

_log = logging.getLogger("headrace")


def now_ms() -> int:
    """Return the time in milliseconds."""
    return time.time_ns() // 1_000_000


class SnapshotWriter:
    """Makes the snapshot records of one leader, and writes them.

    The planner reports what runs; `step` does what is due, in the thread of `start` or in the
    host's. ``sync`` is an `InputSync` of its own.

    Raises:
        CheckpointError: A snapshot was written that the checkpoint has not planned.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        config: StreamsConfig,
        log: TopicLog,
        layout: CheckpointLayout,
        checkpoint: Checkpoint,
        run_files: RunFiles,
        sync: InputSync,
        phases: BatchPhases,
        *,
        leader_epoch: int,
        now: Callable[[], int] = now_ms,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan, self._config, self._log, self._layout = plan, config, log, layout
        self._checkpoint, self._run_files, self._sync = checkpoint, run_files, sync
        self._phases = phases
        self._leader_epoch = leader_epoch
        self._now, self._clock = now, clock
        self._topic = snapshots_name(plan.application_id)
        self._lock = threading.RLock()
        """Held while records are made."""
        self._sending = threading.Lock()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self.last: SnapshotRecord | None = None
        """The newest record, on which the next one builds."""
        self._outgoing: list[SnapshotRecord] = []
        """The record to write next, and the one that waits behind it."""
        self._under_way: SnapshotRecord | None = None
        self._running: tuple[str, BatchBoundary] | None = None
        """Digest and end of the batch that runs."""
        self._read_stamp = (0, 0)
        """The stamp of the result that was last read."""
        self._is_quiet = False
        """Whether no batch is running or unfinished."""
        result = run_files.read(BatchResult)
        self._seen = -1 if result.digest else result.batch
        """The last batch whose result was used."""
        self._has_failed = False
        self._tried_at = self._began_at = self._clock()
        self._purge = ChangelogPurge(plan, log, self._tried_at)
        self._start(checkpoint.batch_log.query_id() or "")

    def _start(self, history: str) -> None:
        batch_log = self._checkpoint.batch_log
        unfinished = unfinished_batch(batch_log)
        planned = batch_log.last_planned()
        finished = planned if unfinished is None else planned - 1
        self._history = history
        self._topics = digest_topic_ids(self._log.topic_ids(self._plan.changelogs))
        self._earlier_keys: set[bytes] = set()
        found = self._read_newest(history)
        if found is not None and found.snapshot > planned:
            msg = (
                f"The checkpoint {self._checkpoint} has planned batch {planned}, but snapshot "
                f"{found.snapshot} of its history was written: it is an older copy."
            )
            remedy = (
                "Restore the newest one, or start again with "
                f"`headrace reset {self._plan.application_id}`."
            )
            raise CheckpointError(msg, remedy)
        self._ends: dict[TopicPartition, int] = {}
        self._times: dict[TopicPartition, dict[str, int]] = {}
        self._position: Offsets = {}
        self.is_lost = False
        """Whether a record was lost, so that every task must report before the next one."""
        self._may_repeat = self._config.processing_guarantee == "at_least_once"
        """Whether changelogs may have changes of the last snapshot again, behind its ends."""
        if found is not None and found.snapshot >= finished:
            for name in self._names():
                self._ends[name] = found.end(*name)
                self._times[name] = found.times(*name) or {}
            self._position = found.position
            self.last = msgspec.structs.replace(found, leader_epoch=self._leader_epoch)
            self._outgoing.append(self.last)
            if self._may_repeat:
                # A leader that wrote the same batch again, and was fenced, has left copies behind
                # the ends. A copy of the store that has read them can only join behind them.
                for name, end in self._log.uncommitted_ends(self._names()).items():
                    self._ends[name] = max(self._ends[name], end)
        else:
            self.is_lost = finished >= 0
            self._ends = self._log.uncommitted_ends(self._names())

    def _names(self) -> list[TopicPartition]:
        return [
            TopicPartition(topic, partition)
            for topic, count in self._counts().items()
            for partition in range(count)
        ]

    def _counts(self) -> dict[str, int]:
        """Return how many shards each changelog has."""
        return {
            topic: self._layout.count_of(subtopology)
            for topic, (subtopology, _) in self._plan.changelogs.items()
        }

    def _read_newest(self, history: str) -> SnapshotRecord | None:
        """Return the newest record of a history, and remember the keys of earlier leaders."""
        for last in (SNAPSHOTS_READ, None):
            records = read_snapshots(self._log, self._topic, last)
            epochs = {each.leader_epoch for each in records}
            self._earlier_keys = {b"%d" % each for each in epochs if each < self._leader_epoch}
            newest = newest_record(each for each in records if each.history == history)
            if newest is not None:
                return newest
        return None

    def _key(self) -> bytes:
        return b"%d" % self._leader_epoch

    def plans(self) -> None:
        """Make the record of the batch that has ended: the next one is about to be planned."""
        with self._lock:
            self._learn()
            self._running = None
            self._is_quiet = True

    def planned(self) -> None:
        """Record that the planner has planned the next batch."""
        with self._lock:
            self._is_quiet = False

    def runs(self, digest: str, end: BatchBoundary) -> None:
        """Record which batch runs now."""
        with self._lock:
            self._is_quiet = False
            self._running, self._read_stamp = (digest, end), (0, 0)
            self._began_at = self._clock()
        with self._wake:
            self._wake.notify()

    def step(self) -> None:
        """Make the record of the batch that has ended, and write what is due."""
        with self._lock:
            self._learn()
        if not self._sending.acquire(blocking=False):
            return
        try:
            while self._begin():
                self._send()
        finally:
            self._sending.release()

    def _begin(self) -> bool:
        """Choose the record to write now; return whether there is one."""
        with self._lock:
            self._under_way = self._due()
            return self._under_way is not None

    def _due(self) -> SnapshotRecord | None:
        """Return the record to write now."""
        waited = self._clock() - self._tried_at
        if not self._outgoing and self.last is not None and waited >= _IDLE_SECONDS:
            if self._is_quiet:
                self.last = msgspec.structs.replace(self.last, at=self._now())
            self._outgoing.append(self.last)
        if not self._outgoing or (self._has_failed and waited < _RETRY_SECONDS):
            return None
        return self._outgoing[0]

    def _send(self) -> None:
        record = self._under_way
        assert record is not None, "chosen"
        self._tried_at = self._clock()
        try:
            self._append(self._key(), encode_snapshot(record))
            for key in sorted(self._earlier_keys):
                self._append(key, None)
        except StreamsError as error:
            if not self._has_failed:
                _log.warning(
                    "The record of snapshot %d could not be written; queries see older ones "
                    "until it is: %s",
                    record.snapshot,
                    error,
                )
            with self._lock:
                self._has_failed, self._under_way = True, None
                if len(self._outgoing) > 1:
                    self._outgoing = [_replacing(*self._outgoing)]
        else:
            with self._lock:
                self._earlier_keys = set()
                self._has_failed, self._under_way = False, None
                self._outgoing.pop(0)
            self._purge.follow(record, self._clock())

    def _append(self, key: bytes, value: bytes | None) -> None:
        record = self._topic, 0, self._now(), key, value, None
        try:
            self._log.append([record])
        except UnknownTopicError:  # it was deleted
            ensure_snapshots_topic(self._plan, self._config, self._log)
            self._log.append([record])

    def _learn(self) -> None:
        """Make the record of the batch that runs, if all its transactions have ended."""
        if self._running is None:
            return
        digest, end = self._running
        result = self._new_result()
        # A batch in which no task has run has no digest.
        if result is None or result.batch <= self._seen or result.digest not in (digest, ""):
            return
        self._running, self._seen = None, result.batch
        self._sync.learn(result.reports)
        if self.last is not None and result.batch <= self.last.snapshot:
            return  # a replay
        for topic, ends in result.ends.items():
            for partition, offset in ends.items():
                self._ends[TopicPartition(topic, partition)] = offset
        changes: dict[str, dict[int, int]] = {}
        for report in result.reports:
            for topic, store in report.stores.items():
                self._times[TopicPartition(topic, report.partition)] = store.times
                if store.changes:
                    changes.setdefault(topic, {})[report.partition] = store.changes
        if not self.is_lost or end.calls_all_tasks:
            self._make(result, end, changes)

    def _new_result(self) -> BatchResult | None:
        """Return the result of the last batch; None if it was read before."""
        stamp = self._run_files.stamp(BatchResult)
        if stamp == self._read_stamp:
            return None
        self._read_stamp = stamp
        return self._run_files.read(BatchResult)

    def _make(
        self, result: BatchResult, end: BatchBoundary, changes: dict[str, dict[int, int]]
    ) -> None:
        counts = self._counts()
        seconds = self._clock() - self._began_at
        self._phases.ran(seconds)
        self._position = raised_position(self._position, self._processed(end))
        record = SnapshotRecord(
            history=self._history,
            leader_epoch=self._leader_epoch,
            snapshot=result.batch,
            batch=result.batch,
            layout=self._plan.stores_digest,
            topics=self._topics,
            clock=end.clock,
            at=self._now(),
            ends={
                topic: [self._ends.get(TopicPartition(topic, each), 0) for each in range(count)]
                for topic, count in counts.items()
            },
            since=result.batch - 1,
            changes=None if self.is_lost or self._may_repeat else changes,
            store_times={
                topic: [
                    self._times.get(TopicPartition(topic, each)) or None for each in range(count)
                ]
                for topic, count in counts.items()
            },
            position=self._position,
            stats=self._stats(result, seconds),
        )
        self.is_lost = self._may_repeat = False
        self.last = record
        may_replace = len(self._outgoing) > 1 or self._has_failed
        if self._outgoing and may_replace and self._outgoing[-1] is not self._under_way:
            record = _replacing(self._outgoing.pop(), record)
        self._outgoing.append(record)

    def _stats(self, result: BatchResult, seconds: float) -> dict[str, Any]:
        status = self._run_files.read(PlannerStatus)
        stores = {topic: store.name for topic, (_, store) in self._plan.changelogs.items()}
        restarts = self._run_files.read(Restarts).counts
        return {
            **batch_stats(result, status, self._position, seconds),
            "figures": run_figures(result.totals, self._phases.histograms, restarts, stores),
        }

    def _processed(self, end: BatchBoundary) -> Offsets:
        position: Offsets = {}
        for name, offset in sorted(self._sync.processed_offsets(end).items()):
            if name.topic not in self._plan.loops:
                offsets = position.setdefault(name.topic, [])
                offsets.append(UNKNOWN_OFFSET if offset is None else offset)
        return position

    def start(self) -> None:
        """Start the thread that writes."""
        self._thread = threading.Thread(target=self._run, name=self._topic, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        has_failed = False
        while not self._is_closed:
            pause = _RETRY_SECONDS
            try:
                self.step()
                has_failed = False
                if self._running is not None or self._outgoing:
                    pause = _POLL_SECONDS
            except Exception:  # queries never stop the application
                if not has_failed:
                    _log.exception("Could not write snapshots of %r", self._plan.application_id)
                has_failed = True
            with self._wake:
                self._wake.wait(pause)

    def drain(self) -> None:
        """Wait until the last record is written, at most 5 s; without a thread, write it here."""
        deadline = self._clock() + _LAST_RECORD_SECONDS
        with self._wake:
            self._wake.notify()
        while self._outgoing and self._clock() < deadline:
            if self._thread is None:
                self.step()
            if self._outgoing:
                time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """Stop the thread."""
        self._is_closed = True
        with self._wake:
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(_LAST_RECORD_SECONDS)


def _replacing(older: SnapshotRecord, newer: SnapshotRecord) -> SnapshotRecord:
    """Return the record to write in place of two."""
    return merged(older, newer) if newer.since == older.snapshot else newer
