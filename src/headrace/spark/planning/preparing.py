"""What must be true before a query starts: the checkpoint fits, the topics are there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace.brokers.log import TopicLog
from headrace.brokers.offset_notes import OWN_OFFSETS, RESET_OFFSETS
from headrace.config import StreamsConfig
from headrace.errors import CheckpointError
from headrace.spark.planning.layout import (
    Layout,
    changes,
    new_layout,
    read_layout,
    task_counts,
    write_layout,
)
from headrace.spark.planning.plan import SparkPlan
from headrace.spark.planning.subscriptions import matching_topics
from headrace.spark.planning.topics import ensure_epochs, ensure_loops, epochs_name, sink_counts


def prepare(
    plan: SparkPlan,
    config: StreamsConfig,
    log: TopicLog,
    checkpoint: Path,
    shuffle_partitions: Callable[[int], int],
) -> tuple[Layout, dict[str, int]]:
    """Return the layout of an application, and the partitions of the topics it writes.

    Args:
        plan: What will run.
        config: How.
        log: Where the topics are.
        checkpoint: The directory of the checkpoint; a first start writes the layout there.
        shuffle_partitions: Says how many partitions a shuffle between so many tasks has.

    Raises:
        CheckpointError: The checkpoint is of another topology, or is gone.
        TopologyError: Topics that are joined have different numbers of partitions.
        UnknownTopicError: A topic is not there.
    """
    layout = read_layout(checkpoint)
    if layout is None:
        _check_no_progress(plan.application_id, log, checkpoint)
        layout = _first_layout(plan, log, shuffle_partitions)
        layout.reset = max(resets(log, plan.application_id), default="")
        write_layout(checkpoint, layout)
    elif differences := changes(plan, layout):
        listed = "".join(f"\n  - {each}" for each in differences)
        msg = (
            f"The topology no longer fits its checkpoint {str(checkpoint)!r}:{listed}\n"
            "Run the topology that made it, give this one another `application_id`, or start "
            f"again with `headrace reset {plan.application_id}`."
        )
        raise CheckpointError(msg)
    elif resets(log, plan.application_id) - {layout.reset}:
        msg = (
            f"Application {plan.application_id!r} was reset, but its checkpoint "
            f"{str(checkpoint)!r} is from before that. Delete it, or reset again with the "
            "`--state-dir` it is in."
        )
        raise CheckpointError(msg)
    ensure_loops(plan, layout, log)
    tasks = max((layout.count_of(part.id) for part in plan.parts), default=1)
    counts = sink_counts(plan, config, log, tasks=max(1, tasks))
    ensure_epochs(log, plan.application_id, len(layout.tasks))
    return layout, counts


def resets(log: TopicLog, application_id: str) -> set[str]:
    """Return the resets whose offsets an application has not gone on from yet."""
    committed = log.committed_offsets(application_id).values()
    return {each.metadata for each in committed if each.metadata.startswith(RESET_OFFSETS)}


def _first_layout(
    plan: SparkPlan, log: TopicLog, shuffle_partitions: Callable[[int], int]
) -> Layout:
    for topic in plan.global_topics:
        log.partition_count(topic)  # refuses one that is not there
    names = log.list_topics() if any(part.has_pattern for part in plan.parts) else []
    counts, repartitions = task_counts(
        plan,
        log.partition_count,
        lambda part: matching_topics(part, plan, names),
    )
    tasks = max((counts[part.id] for part in plan.parts), default=1)
    return new_layout(plan, counts, repartitions, shuffle_partitions(max(1, tasks)))


def _check_no_progress(application_id: str, log: TopicLog, checkpoint: Path) -> None:
    """Refuse to begin again where an application has been."""
    own = log.committed_offsets(application_id)
    markers = log.committed_offsets(epochs_name(application_id))
    if markers or any(each.metadata == OWN_OFFSETS for each in own.values()):
        msg = (
            f"Application {application_id!r} has made progress, but its checkpoint "
            f"{str(checkpoint)!r} is gone. Restore it, or start again with "
            f"`headrace reset {application_id}`."
        )
        raise CheckpointError(msg)
