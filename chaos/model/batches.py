"""What the simulated application computes: its program, its checkpoint and its batches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Literal, TypeAlias

from headrace import StreamsBuilder, StreamsConfig
from headrace.brokers.log import TopicPartition
from headrace.errors import StreamsError
from headrace.processors.handlers import ErrorHandlerContext, HandlerResponse
from headrace.records import ProducerRecord
from headrace.spark.planning.layout import new_layout
from headrace.spark.planning.log_files import SPARK_FOLDER
from headrace.spark.planning.plan import plan_of
from headrace.spark.program import Program, make_program
from headrace.spark.tasks.parcels import Batch, Outputs, Parcel, TaskReport, Written, pack

Guarantee: TypeAlias = Literal["exactly_once_v2", "at_least_once"]
"""What the application promises."""

APPLICATION = "app"
TASKS = 4
MOST_SINKS = 3
"""How many sink partitions there can be."""
LETTERS = "letters"
TOPICS = {"out": 2, "small": 1, LETTERS: 1}
LIMIT = 60
"""What the topic ``small`` takes in one record, in bytes."""


def _leave_out(
    _context: ErrorHandlerContext, record: ProducerRecord, _error: Exception
) -> HandlerResponse:
    """Go on without a refused record; it becomes a dead letter."""
    letter = ProducerRecord(LETTERS, 0, record.timestamp, record.key, record.value)
    return HandlerResponse.resume([letter])


def program(generation: int, guarantee: Guarantee) -> Program:
    """Return what the application runs under one leader; refused records go to `LETTERS`."""
    return replace(_program(guarantee), generation=generation)


@cache
def _program(guarantee: Guarantee) -> Program:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.to("out", name="writes-out")
    stream.to("small", name="writes-small")
    config = StreamsConfig(
        application_id=APPLICATION,
        production_exception_handler=_leave_out,
        processing_guarantee=guarantee,
    )
    plan = plan_of(builder.build(), config)
    layout = new_layout(plan, {part.id: TASKS for part in plan.parts}, {}, TASKS)
    return make_program(
        plan,
        config,
        layout,
        partition_counts=TOPICS,
        run_directory="",
        generation=0,
    )


@dataclass(frozen=True)
class Planned:
    """A batch as the checkpoint knows it: a replay computes the same."""

    query: str
    number: int
    digest: str
    sinks: dict[int, dict[int, list[tuple[str, int, bytes]]]]
    """For each sink partition what its tasks write: topic, partition and value."""

    def parcels(self, sink: int) -> list[bytes]:
        """Return what Spark hands to a sink partition."""
        batch = Batch(0, self.digest)
        return [
            pack(Parcel(batch, outputs=_outputs(task, sequence, [record])))
            for task, records in self.sinks[sink].items()
            for sequence, record in enumerate(records)
        ]

    def visible(self, sink: int) -> list[tuple[int, TopicPartition, bytes]]:
        """Return what readers must find: task, partition and value, in order."""
        found = []
        for task, records in self.sinks[sink].items():
            names = [
                (LETTERS, 0, value) if is_refused(topic, value) else (topic, place, value)
                for topic, place, value in records
            ]
            found += [(task, TopicPartition(topic, place), value) for topic, place, value in names]
        return found


def is_refused(topic: str, value: bytes) -> bool:
    """Return whether a record is too large for its topic."""
    return topic == "small" and len(value) > LIMIT


def _outputs(task: int, sequence: int, records: list[tuple[str, int, bytes]]) -> Outputs:
    report = TaskReport(f"0_{task}", processed=len(records))
    written = [Written(topic, [place], [1], [b"k"], [value]) for topic, place, value in records]
    return Outputs(task, sequence, report, written)


def compute(random: Random, query: str, number: int, *, sinks: int, refusals: bool) -> Planned:
    """Plan a batch."""
    planned: dict[int, dict[int, list[tuple[str, int, bytes]]]] = {}
    is_small = random.random() < 0.2  # a small batch is read by one Spark task
    for task in range(TASKS):
        sink = 0 if is_small else task % sinks
        count = random.choice((0, 1, 2, 3))
        records = [_record(random, f"{query}/{number}/{task}/{each}") for each in range(count)]
        if refusals:
            records = [_too_large(*record) for record in records]
        if records:
            planned.setdefault(sink, {})[task] = records
    return Planned(query, number, f"{query}-{number}", planned)


def _record(random: Random, value: str) -> tuple[str, int, bytes]:
    if random.random() < 0.7:
        return "out", random.randrange(2), value.encode()
    return "small", 0, value.encode()


def _too_large(topic: str, partition: int, value: bytes) -> tuple[str, int, bytes]:
    """Return a record, blown up if it is the second of its task and goes to ``small``."""
    is_chosen = topic == "small" and value.endswith(b"/1")
    return topic, partition, value.ljust(2 * LIMIT, b"x") if is_chosen else value


class CheckpointConflictError(StreamsError):
    """Another process wrote this file of the checkpoint: Spark ends the query."""


@dataclass
class Checkpoint:
    """The logs of offsets and commits that Spark keeps; a file is never written over."""

    query: str
    planned: list[Planned] = field(default_factory=list)
    committed: int = 0
    """How many batches are committed."""
    is_gone: bool = False
    """Whether a reset put it away."""
    replanned: Planned | None = None
    """What comes next in an older copy: not what came next the first time."""

    def plan(self, batch: Planned) -> None:
        """Write down what a batch is."""
        if self.is_gone or len(self.planned) != batch.number:
            msg = f"offsets/{batch.number} cannot be written"
            raise CheckpointConflictError(msg)
        self.planned.append(batch)

    def commit(self, number: int) -> None:
        """Write down that a batch is done."""
        if self.is_gone or self.committed != number:
            msg = f"commits/{number} cannot be written"
            raise CheckpointConflictError(msg)
        self.committed += 1

    def leave_files(self, folder: Path) -> None:
        """Leave what Spark would have written down, without where batches end."""
        (folder / SPARK_FOLDER / "offsets").mkdir(parents=True)
        (folder / SPARK_FOLDER / "metadata").write_text(f'{{"id": "{self.query}"}}')
        for batch in self.planned:
            (folder / SPARK_FOLDER / "offsets" / str(batch.number)).touch()

    def older_copy(self) -> Checkpoint | None:
        """Return a copy from before its last batch, which will plan that one anew."""
        if self.committed != len(self.planned) or not self.planned or not self.planned[-1].sinks:
            return None
        last = self.planned[-1]
        sinks = {
            sink: {
                task: [(topic, place, b"older-" + value) for topic, place, value in records]
                for task, records in tasks.items()
            }
            for sink, tasks in last.sinks.items()
        }
        other = replace(last, digest=f"older-{last.digest}", sinks=sinks)
        return Checkpoint(self.query, [*self.planned[:-1]], self.committed - 1, replanned=other)
