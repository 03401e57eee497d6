"""An application whose sink is written to without a query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace import (
    StreamsBuilder,
)
from headrace.brokers.log import OffsetAndMetadata, TopicPartition
from headrace.brokers.sessions import Broker
from headrace.records import NO_HEADERS, ConsumerRecord, Headers
from headrace.runtime.batches import Batch
from headrace.runtime.exchange.packing import Payload, TaskOutput, TaskReport, TopicRecords, pack
from headrace.runtime.output.batch_writer import BatchWriter, PartitionResult
from headrace.runtime.planning.startup import prepare
from headrace.runtime.program import Program, make_program
from tests.unit.runtime.planning import Planning, create

LIMIT = 1_000
"""The maximum size of a record in the topic ``small``, in bytes."""
LARGE = b"x" * 2 * LIMIT


class Writing:
    """An application with two tasks that write to ``out`` and ``small``."""

    def __init__(self, folder: Path, *, counts_records: bool = False, **settings: Any) -> None:
        builder = StreamsBuilder()
        stream = builder.stream("in", key=str, value=int)
        if counts_records:
            stream.group_by_key().count(materialized="counts")
        stream.to("out", name="writes-out")
        stream.to("small", name="writes-small")
        planning = Planning(builder.build(), folder, **settings)
        self.log: Broker = planning.log
        create(self.log, **{"in": 2, "out": 1})
        self.log.create_topic("small", settings={"max.message.bytes": str(LIMIT)})
        layout, counts = prepare(
            planning.plan, planning.config, self.log, planning.spark_checkpoint, lambda _tasks: 1
        )
        self.program: Program = make_program(
            planning.plan,
            planning.config,
            layout,
            partition_counts=counts,
            run_directory="",
            leader_epoch=0,
        )

    def write(
        self, *outputs: TaskOutput, batch: int = 0, query: str = "query", digest: str = "digest"
    ) -> PartitionResult:
        writer = BatchWriter(self.program, self.log, partition=0, batch=batch, query=query)
        return writer.write(packed(*outputs, digest=digest))

    def records(self, topic: str = "out", partition: int = 0) -> list[ConsumerRecord]:
        where = TopicPartition(topic, partition)
        end = self.log.end_offsets([where])[where]
        return [record for some in self.log.read(where, 0, end) for record in some]

    def values(self, topic: str = "out") -> list[bytes | None]:
        return [record.value for record in self.records(topic)]

    def markers(self) -> dict[int, int]:
        committed = self.log.committed_offsets("app-markers")
        return {name.partition: found.offset for name, found in committed.items()}


def dead_letters_of(writing: Writing) -> list[dict[str, Any]]:
    """Return the dead letters: key, value and headers of each."""
    return [
        {"key": record.key, "value": record.value, **dict(record.headers)}
        for partition in range(writing.log.partition_count("letters"))
        for record in writing.records("letters", partition)
    ]


def lead(writing: Writing, leader_epoch: int) -> None:
    """Start another process that takes over."""
    if "app-leader" not in writing.log.list_topics():
        writing.log.create_topic("app-leader")
    name = TopicPartition("app-leader", 0)
    writing.log.commit_offsets("app-leader", {name: OffsetAndMetadata(leader_epoch)})


def packed(*outputs: TaskOutput, digest: str = "digest", is_new: bool = False) -> list[bytes]:
    """Return what Spark hands to a sink."""
    return [pack(Payload(Batch(0, digest, is_new), outputs=each)) for each in outputs]


def outputs(
    task: int,
    *values: bytes,
    topic: str = "out",
    sequence: int = 1,
    headers: Headers = NO_HEADERS,
) -> TaskOutput:
    count = len(values)
    written = TopicRecords(
        topic,
        [0] * count,
        list(range(1, count + 1)),
        [b"key"] * count,
        list(values),
        [list(headers)] * count if headers else None,
    )
    return TaskOutput(task, sequence, TaskReport(f"0_{task}", processed=count), [written])
