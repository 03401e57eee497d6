"""The tasks of a plan with all their records at once: no batches, no payloads, no blobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from heapq import merge

from headrace.engine.sinks import Output
from headrace.engine.task import Task
from headrace.records import ConsumerRecord
from headrace.runtime.checkpoint.layout import CheckpointLayout
from headrace.runtime.plan import PlannedSubtopology
from headrace.runtime.program import Program
from headrace.state.maps import MemoryStores

Inputs = Mapping[tuple[str, int], list[ConsumerRecord]]
"""The records of each topic and partition."""


def run_plain_tasks(
    program: Program, layout: CheckpointLayout, inputs: Inputs, *, partitions: int
) -> dict[tuple[str, int], list[list[Output]]]:
    """Return the records of each topic and partition if each task runs once, in stage order.

    Each task that writes a partition has a list of its own, in the order of their numbers.

    Args:
        program: The program to run.
        layout: Its tasks.
        inputs: All records there are.
        partitions: How many partitions topics have.
    """
    written: defaultdict[tuple[str, int], list[list[Output]]] = defaultdict(list)
    repartitioned: defaultdict[tuple[str, int], list[list[ConsumerRecord]]] = defaultdict(list)
    repartitions = program.plan.repartitions
    for subtopology in sorted(
        program.plan.subtopologies, key=lambda subtopology: (subtopology.stage, subtopology.id)
    ):
        for partition in range(layout.count_of(subtopology.id)):
            task = _task(program, layout, subtopology, partition, partitions)
            for topic in subtopology.topics:
                task.enqueue(topic, inputs.get((topic, partition), []), partition=partition)
            for topic in subtopology.repartitions:
                streams = repartitioned[topic, partition]
                together = merge(*streams, key=lambda record: record.timestamp)
                task.enqueue(topic, _numbered(together))
            task.process()
            task.commit()
            task.close()
            by_target: defaultdict[tuple[str, int], list[Output]] = defaultdict(list)
            for output in task.outputs:
                by_target[output[0], output[1] or 0].append(output)
            for (topic, number), outputs in by_target.items():
                if topic in repartitions:
                    records = [_record(topic, number, output) for output in outputs]
                    repartitioned[topic, number].append(records)
                else:
                    written[topic, number].append(outputs)
    return dict(written)


def _task(
    program: Program,
    layout: CheckpointLayout,
    subtopology: PlannedSubtopology,
    partition: int,
    partitions: int,
) -> Task:
    return Task(
        [subtopology.subtopology],
        program.settings,
        MemoryStores(),
        task_id=f"{subtopology.id}_{partition}",
        partition=partition,
        partitions_of=lambda topic: layout.repartitions.get(topic, partitions),
    )


def _record(topic: str, partition: int, output: Output) -> ConsumerRecord:
    _, _, timestamp, key, value, headers = output
    return ConsumerRecord(topic, partition, 0, timestamp, key, value, headers)


def _numbered(records: Iterable[ConsumerRecord]) -> list[ConsumerRecord]:
    return [record._replace(offset=number) for number, record in enumerate(records)]
