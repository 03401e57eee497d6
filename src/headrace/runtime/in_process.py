"""The whole runtime in this process: planner, tasks, B+ tree and writer, with state in memory.

It shuffles rows as Spark does: to the partition of the hash of their group, groups in ascending
order, rows of a group in any order. State is kept as blobs, so a task loses what it keeps anywhere
else between batches. A tool for tests and for a look at a program; applications run on Spark.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from typing import TypeAlias

from headrace.brokers.opening import open_log
from headrace.config import StreamsConfig
from headrace.engine.task import Task
from headrace.home import ApplicationHome
from headrace.runtime.batches import Batch, BatchBoundary
from headrace.runtime.btree.blobs import MemoryBlobs
from headrace.runtime.btree.stores import BTreeStores
from headrace.runtime.checkpoint.batch_log import BatchLog, MemoryBatchLog
from headrace.runtime.checkpoint.checkpoint import Checkpoint
from headrace.runtime.checkpoint.layout import CheckpointLayout
from headrace.runtime.exchange.grouping_keys import shuffle_partition
from headrace.runtime.exchange.packing import Split
from headrace.runtime.internal_topics import ensure_topic
from headrace.runtime.output.batch_writer import BatchWriter, batch_result
from headrace.runtime.plan import plan_topology
from headrace.runtime.planning.planner import Planner
from headrace.runtime.planning.startup import prepare
from headrace.runtime.program import Program, Row, make_program
from headrace.runtime.run_files import BatchResult, Control, RunFiles
from headrace.runtime.tasks.split_reader import rows_of
from headrace.runtime.tasks.stage import StageRun
from headrace.runtime.tasks.task_run import TaskRun, load_task_state, open_global_task
from headrace.topology.naming import leader_name
from headrace.topology.topology import Topology

QUERY_ID = "in-process"

Blobs: TypeAlias = defaultdict[tuple[int, int], MemoryBlobs]
"""The state of each stage and group."""


class InProcessQuery:
    """One query: `batch()` runs the next batch, if there is anything to do.

    Args:
        topology: The program.
        config: Its settings; the checkpoint is in ``state.dir``.
        shuffle_partitions: How many partitions a shuffle has.
        seed: Decides the order in which rows arrive, where Spark promises none.
        batch_log: Keeps the batches; in memory if it is None.
        leader_epoch: The number of the leader.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        *,
        shuffle_partitions: int = 1,
        seed: int = 0,
        batch_log: BatchLog | None = None,
        leader_epoch: int = 0,
    ) -> None:
        self.config = config
        self._leader_epoch = leader_epoch
        self.plan = plan_topology(topology, config)
        self.log = open_log(config)
        ensure_topic(self.log, leader_name(config.require_application_id()), 1)
        self._batch_log = batch_log or MemoryBatchLog(QUERY_ID)
        home = ApplicationHome.of(config, self.log.cluster_id())
        home.create()
        self._checkpoint = Checkpoint(self.plan.application_id, home.checkpoint, self._batch_log)
        layout, counts = prepare(
            self.plan,
            config,
            self.log,
            self._checkpoint,
            lambda tasks: min(tasks, shuffle_partitions),
        )
        self.layout = layout
        """The tasks there are."""
        run_directory = str(home.new_run_folder())
        self.run_files = RunFiles(run_directory)
        self.program = make_program(
            self.plan,
            config,
            layout,
            partition_counts=counts,
            run_directory=run_directory,
            leader_epoch=leader_epoch,
        )
        self._random = random.Random(seed)  # noqa: S311  # an order, not a secret
        self._blobs: Blobs = defaultdict(MemoryBlobs)
        self.planner = self._new_planner()
        self.position = self.planner.first()
        """Where the next batch begins."""
        self.batches = 0

    def _new_planner(self) -> Planner:
        return Planner(
            self.plan,
            self.config,
            self.log,
            self.layout,
            self._checkpoint,
            self.run_files,
            leader_epoch=self._leader_epoch,
            stages_run_once=True,
        )

    def set_clock(self, clock: int) -> None:
        """Set the time of day of later batches, in milliseconds."""
        self.run_files.write(Control(clock=clock))

    def restart_planner(self) -> None:
        """Continue with a new planner, as Spark does when it restarts a query in one run."""
        self.planner = self._new_planner()

    def run(self) -> None:
        """Run batches until there is nothing to do."""
        while self.batch():
            pass

    def batch(self) -> bool:
        """Run the next batch; return whether there was anything to do."""
        end = self.planner.next(self.position)
        if end is self.position:
            return False
        self._batch_log.plan(self.batches, end)
        self.replay(self.position, end)
        self._batch_log.commit(self.batches)
        self.position = end
        self.batches += 1
        return True

    def replay(self, start: BatchBoundary, end: BatchBoundary) -> None:
        """Run the batch between two boundaries."""
        splits = self.planner.splits(start, end)
        self._random.shuffle(splits)
        rows = [row for split in splits for row in self._rows_of(split)]
        for stage in range(1, self.plan.stages + 1):
            rows = self._run_stage(stage, rows)
        self._write(rows)

    def _rows_of(self, split: Split) -> Iterator[Row]:
        placements = self.layout.placements_of(self.plan, split)
        return rows_of(self.program, lambda: self.log, split, placements)

    def _run_stage(self, stage: int, rows: list[Row]) -> list[Row]:
        rows_by_key: defaultdict[int, list[Row]] = defaultdict(list)
        for row in rows:
            rows_by_key[row[0]].append(row)
        output: list[Row] = []
        count = self.program.shuffle_partitions
        for partition in range(count):
            stage_run = StageRun(
                self.program,
                stage,
                lambda grouping_key: self._blobs[stage, grouping_key],
                lambda: self.log,
            )
            for grouping_key in sorted(rows_by_key):
                if shuffle_partition(grouping_key, count) == partition:
                    key_rows = rows_by_key[grouping_key]
                    self._random.shuffle(key_rows)
                    output += stage_run.process(
                        grouping_key, key_rows, self._blobs[stage, grouping_key]
                    )
        return output

    def _write(self, rows: list[Row]) -> None:
        partitions: defaultdict[int, list[bytes]] = defaultdict(list)
        for _, _, target, blob in rows:
            partitions[shuffle_partition(target, self.program.shuffle_partitions)].append(blob)
        results = []
        query_id = self._batch_log.query_id()
        assert query_id is not None, "it is running"
        for partition, blobs in sorted(partitions.items()):
            writer = BatchWriter(
                self.program, self.log, partition=partition, batch=self.batches, query=query_id
            )
            results.append(writer.write(blobs))
        last = self.run_files.read(BatchResult)
        self.run_files.write(batch_result(last, self.batches, results))
        if self.planner.snapshots is not None:
            self.planner.snapshots.step()

    def dropped(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return how many records were dropped, by task, node and reason."""
        return self.run_files.read(BatchResult).totals.dropped

    def tasks_of(self, store: str, clock: int = 0) -> list[Task]:
        """Return the tasks that have a store, in the order of their partitions, as blobs hold them.

        ``clock`` is the time of day.
        """
        return [*tasks_in(self._blobs, self.program, self.layout, store, clock)]


def tasks_in(
    blobs: Blobs, program: Program, layout: CheckpointLayout, store: str, clock: int = 0
) -> Iterator[Task]:
    """Yield the tasks that have a store, in the order of their partitions, as blobs hold them.

    ``clock`` is the time of day.
    """
    for subtopology in program.plan.subtopologies:
        if store not in subtopology.stores:
            continue
        for partition in range(layout.count_of(subtopology.id)):
            placement = layout.placement(subtopology.id, partition)
            own = blobs[placement.stage, placement.grouping_key]
            run = TaskRun(
                program,
                subtopology.id,
                partition,
                task_number=placement.task_number,
                grouping_key=placement.grouping_key,
                batch=Batch(clock, ""),
                partitions_of=lambda _topic: 1,
            )
            stores = None
            if subtopology.looks_up:
                stores = global_task_in(blobs, program, placement.stage, clock).stores
            yield run.open(BTreeStores(own), load_task_state(own, program), stores)


def global_task_in(blobs: Blobs, program: Program, stage: int, clock: int) -> Task:
    """Return the task that keeps the global stores of a stage, as blobs hold it."""
    return open_global_task(program, blobs[stage, program.global_grouping_keys[0]], clock)[0]
