"""The program: the plan, settings and routes of a query, sent once to each of its processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headrace.brokers.sessions import Broker
from headrace.config import StreamsConfig
from headrace.engine.settings import TaskSettings
from headrace.runtime.checkpoint.layout import CheckpointLayout, TaskPlacement
from headrace.runtime.exchange.grouping_keys import relay_keys, shuffle_partition
from headrace.runtime.exchange.packing import Payload, pack
from headrace.runtime.plan import GLOBAL_TASK, ExecutionPlan

Row = tuple[int, int, int, bytes]
"""The group of the next exchange, then where the payload is for: stage, group, and the payload."""

_BYTES_PER_RELAY_KEY = 16 << 20
"""How many bytes a sender sends under one relay key before it takes the next one."""


@dataclass(frozen=True)
class Program:
    """A planned topology with its settings and the part of the layout that never changes."""

    plan: ExecutionPlan
    config: StreamsConfig
    settings: TaskSettings
    shuffle_partitions: int
    relay_keys: Sequence[Sequence[int]]
    """For each shuffle partition the keys under which rows pass on their way to a later stage."""
    global_grouping_keys: tuple[int, ...]
    repartitions: Mapping[str, int]
    readers: Mapping[str, tuple[int, tuple[TaskPlacement, ...]]]
    """For each repartition the subtopology that reads it, and its tasks."""
    partition_counts: Mapping[str, int]
    """The partition counts of topics that sinks name."""
    run_directory: str
    """The folder of the run files."""
    leader_epoch: int
    """The epoch of the leader that runs it; later leaders have higher ones."""
    global_task_number: int = -1
    """The number of the task that keeps the global stores; -1 if no changelog has their changes."""
    marker_topic_id: str = ""
    """The id of the marker topic; empty if the checkpoint has none."""

    @property
    def sink_stage(self) -> int:
        """The stage number of the sink."""
        return self.plan.stages + 1

    def row(
        self, stage: int, target: int, payload: Payload, *, next_stage: int, sent: int = 0
    ) -> Row:
        """Return the row that carries a payload to ``next_stage``, on its way to ``stage``.

        ``target`` is the grouping key it is for; for the output of a task, that of the task.
        ``sent`` is how many bytes the sender has sent before, in this batch: a few rows share one
        relay key, because each key takes time, and many are spread over all of them.
        """
        blob = pack(payload)
        if stage == next_stage:
            return target, stage, target, blob
        relay_keys = self.relay_keys[shuffle_partition(target, self.shuffle_partitions)]
        relay_key = relay_keys[sent // _BYTES_PER_RELAY_KEY % len(relay_keys)]
        return relay_key, stage, target, blob

    def relayed(self, stage: int, target: int, blob: bytes, relay_key: int, next_stage: int) -> Row:
        """Return the row that carries a packed payload on; it keeps its relay key on the way."""
        return (target if stage == next_stage else relay_key), stage, target, blob

    def partitions_of(self, log: Callable[[], Broker]) -> Callable[[str], int]:
        """Return a function from a topic to its number of partitions."""

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
    """Return the program of an application with a layout."""
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
        relay_keys=relay_keys(layout.relay_keys),
        global_grouping_keys=tuple(layout.global_grouping_keys),
        repartitions=dict(layout.repartitions),
        readers=readers,
        partition_counts=dict(partition_counts),
        run_directory=run_directory,
        leader_epoch=leader_epoch,
        global_task_number=-1 if global_placement is None else global_placement.task_number,
        marker_topic_id=layout.marker_topic_id,
    )
