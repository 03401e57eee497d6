"""One stage in one Spark partition and batch: rows of a group in, rows for the next stage out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from headrace.brokers.sessions import Broker
from headrace.engine.task import Task
from headrace.errors import RecordError
from headrace.runtime.btree.blobs import BlobStore
from headrace.runtime.dead_letters import failure_of, write_dead_letters
from headrace.runtime.exchange.grouping_keys import shuffle_partition
from headrace.runtime.exchange.packing import Payload, TaskOutput, TaskReport, unpack
from headrace.runtime.program import Program, Row
from headrace.runtime.tasks.task_run import (
    TaskRun,
    bytes_by_topic,
    open_global_task,
    store_reports,
    update_global_task,
)


class StageRun:
    """Hands rows to the tasks they are for, and lets those for later stages pass.

    Args:
        program: The program that runs.
        stage: The number of the stage.
        blobs_of: Returns the state of another group of the same partition.
        open_log: Returns the log of this process.
    """

    def __init__(
        self,
        program: Program,
        stage: int,
        blobs_of: Callable[[int], BlobStore],
        open_log: Callable[[], Broker],
    ) -> None:
        self._program = program
        self._open_log = open_log
        self._stage = stage
        self._blobs_of = blobs_of
        self._global_task: Task | None = None

    def process(
        self, grouping_key: int, rows: Iterable[Iterable[Any]], blobs: BlobStore
    ) -> Iterator[Row]:
        """Process the rows of a group. Global stores come first, because their groups do."""
        program = self._program
        payloads: list[Payload] = []
        for _, stage, target, blob in rows:
            if stage == self._stage:
                payloads.append(unpack(blob))
            else:
                yield program.relayed(stage, target, blob, grouping_key, self._stage + 1)
        if not payloads:
            return
        if grouping_key in program.global_grouping_keys:
            yield from self._update_global_stores(grouping_key, payloads)
        else:
            yield from self._run_task(grouping_key, payloads, blobs)

    def _run_task(
        self, grouping_key: int, payloads: list[Payload], blobs: BlobStore
    ) -> Iterator[Row]:
        program = self._program
        batch = payloads[0].batch
        asked = payloads[0].input or payloads[0].task_call
        assert asked is not None, "only inputs and task calls are for a stage"
        run = TaskRun(
            program,
            asked.subtopology,
            asked.partition,
            task_number=asked.task_number,
            grouping_key=grouping_key,
            batch=batch,
            partitions_of=program.partitions_of(self._open_log),
        )
        stores = None
        if program.plan.subtopology(asked.subtopology).looks_up:
            stores = self._global_stores(grouping_key, batch.clock)
        try:
            yield from run.run(payloads, blobs, self._open_log, stores)
        except RecordError as error:
            failure = failure_of(error, batch)
            number = asked.task_number
            write_dead_letters(
                program, self._open_log(), error, task_number=number, failure=failure
            )
            raise

    def _update_global_stores(self, grouping_key: int, payloads: list[Payload]) -> Iterator[Row]:
        program, batch = self._program, payloads[0].batch
        blobs = self._blobs_of(grouping_key)
        # All copies are the same: only the first reports, and writes changelogs.
        is_first = (
            grouping_key == program.global_grouping_keys[0]
            and self._stage == program.plan.global_stages()[0]
        )
        task, state = open_global_task(program, blobs, batch.clock, logs_changes=is_first)
        changes = update_global_task(task, state, blobs, payloads)
        self._global_task = task
        if not is_first:
            return
        report = TaskReport(
            task.id,
            processed=task.processed,
            dropped=task.dropped_by_node(),
            stores=store_reports(task, changes, program),
            sources=task.take_processed(),
            bytes_produced=bytes_by_topic(changes),
            entries=state.entry_counts(),
        )
        for sequence in range(max(1, len(changes))):
            written = changes[sequence : sequence + 1]
            outputs = TaskOutput(program.global_task_number, sequence, report, written)
            payload = Payload(batch, outputs=outputs)
            yield program.row(program.sink_stage, grouping_key, payload, next_stage=self._stage + 1)
            report = TaskReport(task.id)

    def _global_stores(self, grouping_key: int, clock: int) -> dict[str, Any]:
        if self._global_task is None:
            program = self._program
            partition = shuffle_partition(grouping_key, program.shuffle_partitions)
            blobs = self._blobs_of(program.global_grouping_keys[partition])
            self._global_task, _ = open_global_task(program, blobs, clock)
        return self._global_task.stores
