"""The Spark runtime without Spark: its own planner, readers, stages and sink, in this process.

It shuffles rows as Spark does: to the partition of the hash of their group, groups in ascending
order, rows of a group in any order. State is kept as blobs, so whatever a task keeps in memory
between batches is lost.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, TypeAlias, Unpack

from headrace.brokers.log import TopicLog
from headrace.brokers.opening import open_log
from headrace.config import Settings, StreamsConfig
from headrace.engine.task import Task
from headrace.spark.notes import BatchNote, Control, Notes
from headrace.spark.planning.groups import shuffle_partition
from headrace.spark.planning.layout import Layout
from headrace.spark.planning.log_files import SPARK_FOLDER
from headrace.spark.planning.plan import plan_of
from headrace.spark.planning.preparing import prepare
from headrace.spark.planning.topics import ensure_topic
from headrace.spark.program import Program, Row, ShippedProgram, make_program
from headrace.spark.sink import BatchWriter
from headrace.spark.source import TopicReader, rows_of
from headrace.spark.state.blob_state import MemoryBlobs
from headrace.spark.state.ordered_state import OrderedState
from headrace.spark.tasks.parcels import Batch
from headrace.spark.tasks.stage import StageRun
from headrace.spark.tasks.task_run import TaskRun, load_memory, open_global_task
from headrace.testing.stores import driver_store
from headrace.topology.naming import leader_name
from headrace.topology.topology import Topology

Blobs: TypeAlias = defaultdict[tuple[int, int], MemoryBlobs]
"""The state of each stage and group."""


def leave_query_id(checkpoint: Path) -> None:
    """Leave what tells that a query was started from a checkpoint, as Spark does."""
    path = checkpoint / SPARK_FOLDER / "metadata"
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        path.write_text('{"id": "query"}')


def leave_leader_topic(log: TopicLog, config: StreamsConfig) -> None:
    """Make the topic of the leaders, as who leads does."""
    ensure_topic(log, leader_name(config.require_application_id()), 1)


class InProcessQuery:
    """One query: `batch()` runs the next batch, if there is anything to do."""

    def __init__(
        self,
        topology: Topology,
        state_dir: Path,
        /,
        *,
        shuffle_partitions: int = 2,
        seed: int = 0,
        **settings: Unpack[Settings],
    ) -> None:
        settings.setdefault("application_id", "application")
        given = StreamsConfig(**settings)
        self.config = given.with_settings(state_dir=state_dir, trigger="available_now")
        self.plan = plan_of(topology, self.config)
        self.log = open_log(self.config)
        leave_leader_topic(self.log, self.config)
        self._checkpoint = checkpoint = state_dir / "checkpoint"
        layout, counts = prepare(
            self.plan,
            self.config,
            self.log,
            checkpoint,
            lambda tasks: min(tasks, shuffle_partitions),
        )
        self.layout = layout
        """The tasks there are."""
        leave_query_id(checkpoint)
        directory = mkdtemp(dir=state_dir)
        self.notes = Notes(directory)
        program = make_program(
            self.plan,
            self.config,
            layout,
            partition_counts=counts,
            run_directory=directory,
            generation=0,
        )
        self.program = program
        self._shipped = ShippedProgram.of(program)
        self._random = random.Random(seed)
        self._reader = TopicReader(self._shipped, checkpoint)
        self._blobs: Blobs = defaultdict(MemoryBlobs)
        self.position: dict[str, Any] = self._reader.initialOffset()
        self.batches = 0

    def set_clock(self, clock: int) -> None:
        """Let the time of day be ``clock``."""
        self.notes.leave(Control(clock=clock))

    def restart_reader(self) -> None:
        """Read on with a new reader, as Spark does when a query is started again in one run."""
        self._reader = TopicReader(self._shipped, self._checkpoint)

    def planned(self) -> dict[str, Any]:
        """Return where the next batch ends."""
        return self._reader.latestOffset(self.position, None)  # type: ignore[arg-type]  # not looked at

    def run(self) -> None:
        """Run batches until there is nothing to do."""
        while self.batch():
            pass

    def batch(self) -> bool:
        """Run the next batch; return whether there was anything to do."""
        start = self.position
        end = self.planned()
        if end is start:
            return False
        self.replay(start, end)
        self.position = end
        self.batches += 1
        return True

    def replay(self, start: dict[str, Any], end: dict[str, Any]) -> None:
        """Run a batch between two positions."""
        pieces = self._reader.partitions(start, end)
        self._random.shuffle(pieces)
        read = [
            row for piece in pieces for row in rows_of(self._shipped, piece.reading, piece.places)
        ]
        for stage in range(1, self.plan.stages + 1):
            read = self._stage(stage, read)
        partitions: defaultdict[int, list[Row]] = defaultdict(list)
        for row in read:
            partitions[shuffle_partition(row[2], self.program.shuffle_partitions)].append(row)
        reports = []
        last = self.notes.read(BatchNote)
        for partition, rows_here in sorted(partitions.items()):
            writer = BatchWriter(
                self.program, self.log, partition=partition, batch=self.batches, query="query"
            )
            note = writer.write(blob for *_, blob in rows_here)
            reports += note.reports
            last.totals.add_written(note.written, note.refused)
        last.totals.add(reports)
        self.notes.leave(BatchNote(self.batches, reports, last.totals))

    def _stage(self, stage: int, rows: list[Row]) -> list[Row]:
        groups: defaultdict[int, list[Row]] = defaultdict(list)
        for row in rows:
            groups[row[0]].append(row)
        written: list[Row] = []
        count = self.program.shuffle_partitions
        for partition in range(count):
            run = StageRun(self._shipped, stage, lambda group: self._blobs[stage, group])
            for group in sorted(groups):
                if shuffle_partition(group, count) == partition:
                    some = groups[group]
                    self._random.shuffle(some)
                    written += run.process(group, some, self._blobs[stage, group])
        return written

    def dropped(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return how many records were dropped, by task, node and reason."""
        return self.notes.read(BatchNote).totals.dropped

    def tasks_of(self, store: str, clock: int = 0) -> list[Task]:
        """Return the tasks that have a store, in the order of their partitions, as blobs hold them.

        Args:
            store: Its name.
            clock: The time of day.
        """
        return [*tasks_in(self._blobs, self.program, self.layout, store, clock)]

    def store(self, name: str, clock: int = 0) -> Any:
        """Return a store as blobs hold it; None if there is none of that name.

        Args:
            name: Its name.
            clock: The time of day.
        """
        return store_in(self._blobs, self.program, self.layout, name, clock)


def tasks_in(
    blobs: Blobs, program: Program, layout: Layout, store: str, clock: int = 0
) -> Iterator[Task]:
    """Yield the tasks that have a store, in the order of their partitions, as blobs hold them.

    Args:
        blobs: The state of each stage and group.
        program: What runs.
        layout: The tasks there are.
        store: Its name.
        clock: The time of day.
    """
    for part in program.plan.parts:
        if store not in part.part.stores:
            continue
        for partition in range(layout.count_of(part.id)):
            place = layout.place(part.id, partition)
            own = blobs[place.stage, place.group]
            run = TaskRun(
                program,
                part.id,
                partition,
                marker=place.marker,
                group=place.group,
                batch=Batch(clock, ""),
                partitions_of=lambda _topic: 1,
            )
            stores = None
            if part.looks_up:
                stores = _global_task(blobs, program, place.stage, clock).stores
            yield run.open(OrderedState(own), load_memory(own).get("task"), stores)


def store_in(blobs: Blobs, program: Program, layout: Layout, name: str, clock: int = 0) -> Any:
    """Return a store as blobs hold it, of all its tasks; None if there is none of that name.

    Args:
        blobs: The state of each stage and group.
        program: What runs.
        layout: The tasks there are.
        name: Its name.
        clock: The time of day.
    """
    if any(name in part.stores for part in program.plan.global_parts):
        stage = program.plan.global_stages()[0]  # each keeps all of them
        return _global_task(blobs, program, stage, clock).stores[name]
    return driver_store(name, [*tasks_in(blobs, program, layout, name, clock)])


def _global_task(blobs: Blobs, program: Program, stage: int, clock: int) -> Task:
    return open_global_task(program, blobs[stage, program.global_groups[0]], clock)[0]
