"""The program of the simulated application, and its batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Literal, TypeAlias

from headrace import StreamsBuilder, StreamsConfig
from headrace.brokers.log import TopicPartition
from headrace.processors.handlers import ErrorHandlerContext, HandlerResponse
from headrace.records import ProducerRecord
from headrace.runtime.batches import Batch, BatchBoundary, digest
from headrace.runtime.checkpoint.layout import new_layout
from headrace.runtime.exchange.packing import Payload, TaskOutput, TaskReport, TopicRecords, pack
from headrace.runtime.plan import ExecutionPlan, plan_topology
from headrace.runtime.program import Program, make_program

Guarantee: TypeAlias = Literal["exactly_once_v2", "at_least_once"]
"""The guarantee of the application."""

APPLICATION = "app"
TASKS = 4
MOST_SINKS = 3
"""How many sink partitions there can be."""
DEAD_LETTERS = "letters"
INPUT = "in"
TOPICS = {INPUT: TASKS, "out": 2, "small": 1, DEAD_LETTERS: 1}
LIMIT = 60
"""The maximum size of a record in the topic ``small``, in bytes."""


def _leave_out(
    _context: ErrorHandlerContext, record: ProducerRecord, _error: Exception
) -> HandlerResponse:
    """Continue without a refused record; it becomes a dead letter."""
    dead_letter = ProducerRecord(DEAD_LETTERS, 0, record.timestamp, record.key, record.value)
    return HandlerResponse.resume([dead_letter])


@cache
def plan_and_config(guarantee: Guarantee) -> tuple[ExecutionPlan, StreamsConfig]:
    """Return what the application runs, and how; refused records go to `LETTERS`."""
    builder = StreamsBuilder()
    stream = builder.stream(INPUT, key=str, value=int)
    stream.to("out", name="writes-out")
    stream.to("small", name="writes-small")
    config = StreamsConfig(
        application_id=APPLICATION,
        production_exception_handler=_leave_out,
        processing_guarantee=guarantee,
    )
    return plan_topology(builder.build(), config), config


@cache
def _program(guarantee: Guarantee) -> Program:
    plan, config = plan_and_config(guarantee)
    layout = new_layout(
        plan, {subtopology.id: TASKS for subtopology in plan.subtopologies}, {}, TASKS
    )
    return make_program(
        plan,
        config,
        layout,
        partition_counts=TOPICS,
        run_directory="",
        leader_epoch=0,
    )


def program(leader_epoch: int, guarantee: Guarantee) -> Program:
    """Return what the workers of one leader run."""
    return replace(_program(guarantee), leader_epoch=leader_epoch)


@dataclass(frozen=True)
class Planned:
    """A batch as the checkpoint knows it: a replay computes the same."""

    query: str
    number: int
    start: BatchBoundary
    end: BatchBoundary
    sinks: dict[int, dict[int, list[tuple[str, int, bytes]]]]
    """For each sink partition what its tasks write: topic, partition and value."""

    @property
    def digest(self) -> str:
        """The batch digest in its markers."""
        return digest(self.start, self.end)

    def payloads(self, sink: int, *, is_new: bool) -> list[bytes]:
        """Return what Spark hands to a sink partition."""
        batch = Batch(self.end.clock, self.digest, is_new)
        return [
            pack(Payload(batch, outputs=_outputs(task, sequence, [record])))
            for task, records in self.sinks[sink].items()
            for sequence, record in enumerate(records)
        ]

    def visible(self, sink: int) -> list[tuple[int, TopicPartition, bytes]]:
        """Return what readers must find: task, partition and value, in order."""
        found = []
        for task, records in self.sinks[sink].items():
            names = [
                (DEAD_LETTERS, 0, value) if is_refused(topic, value) else (topic, partition, value)
                for topic, partition, value in records
            ]
            found += [
                (task, TopicPartition(topic, partition), value) for topic, partition, value in names
            ]
        return found


def is_refused(topic: str, value: bytes) -> bool:
    """Return whether a record is too large for its topic."""
    return topic == "small" and len(value) > LIMIT


def _outputs(task: int, sequence: int, records: list[tuple[str, int, bytes]]) -> TaskOutput:
    report = TaskReport(f"0_{task}", processed=len(records))
    written = [
        TopicRecords(topic, [partition], [1], [b"k"], [value])
        for topic, partition, value in records
    ]
    return TaskOutput(task, sequence, report, written)


FIRST = BatchBoundary({INPUT: [0] * TASKS}, clock=0)
"""Where the first batch begins."""


def next_position(position: BatchBoundary, records: int) -> BatchBoundary:
    """Return the end of a batch that reads ``records`` records of each partition."""
    return BatchBoundary(
        {INPUT: [offset + records for offset in position.offsets[INPUT]]}, position.clock + 1
    )


def compute(
    random: Random, query: str, number: int, start: BatchBoundary, *, sinks: int, refusals: bool
) -> Planned:
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
    return Planned(query, number, start, next_position(start, random.randint(1, 3)), planned)


def _record(random: Random, value: str) -> tuple[str, int, bytes]:
    if random.random() < 0.7:
        return "out", random.randrange(2), value.encode()
    return "small", 0, value.encode()


def _too_large(topic: str, partition: int, value: bytes) -> tuple[str, int, bytes]:
    """Return a record, blown up if it is the second of its task and goes to ``small``."""
    is_chosen = topic == "small" and value.endswith(b"/1")
    return topic, partition, value.ljust(2 * LIMIT, b"x") if is_chosen else value
