"""The program: what every process of a query must know, sent to each once and then kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.brokers.sessions import Broker
from headrace.config import StreamsConfig
from headrace.engine.settings import TaskSettings
from headrace.runtime.checkpoint.layout import CheckpointLayout, TaskPlacement
from headrace.runtime.exchange.grouping_keys import shuffle_partition
from headrace.runtime.exchange.packing import Payload, pack
from headrace.runtime.plan import GLOBAL_TASK, ExecutionPlan

Row = tuple[int, int, int, bytes]
"""The group of the next exchange, then where the parcel is for: stage, group, and the parcel."""


@dataclass(frozen=True)
class Program:
    """A planned topology with its settings and the part of the layout that never changes."""

    plan: ExecutionPlan
    config: StreamsConfig
    settings: TaskSettings
    shuffle_partitions: int
    relay_keys: tuple[int, ...]
    global_grouping_keys: tuple[int, ...]
    repartitions: Mapping[str, int]
    readers: Mapping[str, tuple[int, tuple[TaskPlacement, ...]]]
    """For each repartition the subtopology that reads it, and its tasks."""
    partition_counts: Mapping[str, int]
    """The partitions of the topics that are known to be written."""
    run_directory: str
    """Where the processes of the driver leave notes for each other."""
    leader_epoch: int
    """Which leader of the application it runs for; later ones have higher numbers."""
    global_task_number: int = -1
    """The number of the task that keeps the global stores; -1 if no changelog has their changes."""
    marker_topic_id: str = ""
    """The id of the topic of markers, if they are sealed."""

    @property
    def sink_stage(self) -> int:
        """The number that stands for the sink among the stages."""
        return self.plan.stages + 1

    def row(self, stage: int, target: int, payload: Payload, *, next_stage: int) -> Row:
        """Return a row with a payload on its way.

        Args:
            stage: The stage that the payload is for.
            target: The group that it is for; of what a task wrote, the group of the task.
            payload: The payload.
            next_stage: The stage the row goes to first.
        """
        return self.route(stage, target, pack(payload), next_stage)

    def route(self, stage: int, target: int, blob: bytes, next_stage: int) -> Row:
        """Return the row that brings a packed parcel to its next stage."""
        if stage == next_stage:
            return target, stage, target, blob
        relay_key = self.relay_keys[shuffle_partition(target, self.shuffle_partitions)]
        return relay_key, stage, target, blob

    def partitions_of(self, log: Callable[[], Broker]) -> Callable[[str], int]:
        """Return the function that tells a task how many partitions a topic has."""

        def count(topic: str) -> int:
            known = self.repartitions.get(topic) or self.partition_counts.get(topic)
            return log().partition_count(topic) if known is None else known

        return count


def make_program(
    plan: ExecutionPlan,
    config: StreamsConfig,
    layout: CheckpointLayout,
    *,
    partition_counts: Mapping[str, int],
    run_directory: str,
    leader_epoch: int,
) -> Program:
    """Return what the processes of a query must know."""
    readers: dict[str, tuple[int, tuple[TaskPlacement, ...]]] = {}
    for subtopology in plan.subtopologies:
        for topic in subtopology.repartitions:
            placements = (
                layout.placement(subtopology.id, p) for p in range(layout.repartitions[topic])
            )
            readers[topic] = (subtopology.id, tuple(placements))
    global_placement = layout.tasks.get(GLOBAL_TASK)
    return Program(
        plan=plan,
        config=config,
        settings=TaskSettings.from_config(config, application_id=plan.application_id),
        shuffle_partitions=layout.shuffle_partitions,
        relay_keys=tuple(layout.relay_keys),
        global_grouping_keys=tuple(layout.global_grouping_keys),
        repartitions=dict(layout.repartitions),
        readers=readers,
        partition_counts=dict(partition_counts),
        run_directory=run_directory,
        leader_epoch=leader_epoch,
        global_task_number=-1 if global_placement is None else global_placement.task_number,
        marker_topic_id=layout.marker_topic_id,
    )
