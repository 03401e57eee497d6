"""The checks before a query starts: the checkpoint fits, and the topics exist.

Run `make nightly PART=model` and `make nightly PART=cuts` after a change here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.brokers.log import OffsetAndMetadata, TopicLog, TopicPartition
from headrace.brokers.offset_metadata import OWN_OFFSETS, RESET_OFFSETS
from headrace.brokers.sessions import Broker
from headrace.config import StreamsConfig
from headrace.errors import CheckpointError, CheckpointInUseError
from headrace.runtime.checkpoint.checkpoint import Checkpoint
from headrace.runtime.checkpoint.files import read_first
from headrace.runtime.checkpoint.layout import (
    CheckpointLayout,
    changes,
    check_growth,
    create_layout,
    new_layout,
    read_layout,
    write_layout,
)
from headrace.runtime.checkpoint.markers import committed_markers, current_marker_topic_id
from headrace.runtime.internal_topics import (
    check_changelogs,
    check_sinks,
    create_changelogs,
    ensure_loops,
    ensure_marker_topic,
    ensure_snapshots_topic,
    internal_settings,
    sink_counts,
)
from headrace.runtime.plan import ExecutionPlan
from headrace.runtime.planning.input_topics import check_resets, matching_topics
from headrace.runtime.planning.task_counts import task_counts
from headrace.topology.naming import markers_name


def prepare(
    plan: ExecutionPlan,
    config: StreamsConfig,
    log: TopicLog,
    checkpoint: Checkpoint,
    shuffle_partitions: Callable[[int], int],
) -> tuple[CheckpointLayout, dict[str, int]]:
    """Return the layout of an application, and how many partitions the topics have that it writes.

    A first start writes the layout into the checkpoint, and creates the internal topics.
    ``shuffle_partitions`` returns the partitions of a shuffle for a number of tasks.

    Raises:
        CheckpointError: The checkpoint is of another topology, torn, or gone, or a changelog is.
        TopologyError: Topics that are joined have different numbers of partitions, or the patterns
            of two sources match one topic.
        UnknownTopicError: A topic does not exist.
    """
    checkpoint.batch_log.check()
    committed = log.committed_offsets(plan.application_id)
    layout = _fitting_layout(plan, log, checkpoint, committed)
    if layout is None:
        layout = _first_layout(plan, log, shuffle_partitions)
        layout.reset = max(_resets(committed), default="")
        layout.topic_ids = _topic_ids(plan, log)
        create_changelogs(plan, config, layout, log)
        if not create_layout(checkpoint.folder, layout):
            raise CheckpointInUseError(str(checkpoint.folder), holder=None)
    else:
        layout = _with_topics(checkpoint, layout)
    check_changelogs(plan, layout, log)
    ensure_loops(plan, config, layout, log)
    ensure_snapshots_topic(plan, config, log)
    counts = sink_counts(plan, config, log, tasks=_most_tasks(plan, layout))
    # A reset fences as many writers as this topic has partitions.
    writers = layout.shuffle_partitions
    tasks = max(len(layout.tasks), writers)
    ensure_marker_topic(log, plan.application_id, tasks, internal_settings(config))
    return layout, counts


def _with_topics(checkpoint: Checkpoint, found: CheckpointLayout) -> CheckpointLayout:
    """Return the layout of a checkpoint, with the topics that are new."""
    # Read it again: the leader may have added tasks since the check.
    layout = read_layout(found.application_id, checkpoint.folder) or found
    if found.topic_ids.keys() - layout.topic_ids.keys():
        layout.topic_ids = found.topic_ids | layout.topic_ids
        write_layout(checkpoint.folder, layout)
    return layout


def check_start(
    plan: ExecutionPlan, config: StreamsConfig, log: Broker, checkpoint: Checkpoint
) -> CheckpointLayout:
    """Return the layout of an application, or one like it before the first start.

    Changes nothing, so that a process may check while another runs the application; only Kafka may
    create the topics of sinks when a producer asks for them. Raises what `prepare` raises, and:

    Raises:
        NoOffsetForPartitionError: No offset is committed, and a source may not choose one.
        TopologyError: A topic has grown whose keys have state.
    """
    committed = log.committed_offsets(plan.application_id)
    layout = _fitting_layout(plan, log, checkpoint, committed)
    if layout is None:
        layout = _first_layout(plan, log, lambda _tasks: 1)
    else:
        _check_partitions(plan, log, layout)
    if read_first(plan.application_id, checkpoint.folder) is None:
        check_resets(plan, config, log, committed)
    check_sinks(plan, config, log, tasks=_most_tasks(plan, layout))
    return layout


def _check_partitions(plan: ExecutionPlan, log: TopicLog, layout: CheckpointLayout) -> None:
    """Check, before Spark starts, the growth that the planner checks before its first batch."""
    matched = matching_topics(plan, log)
    for subtopology in plan.subtopologies:
        topics = {
            *subtopology.topics,
            *(topic for topic, reader in matched.items() if reader is subtopology),
        }
        counts = {topic: log.partition_count(topic) for topic in sorted(topics - plan.loops.keys())}
        check_growth(layout, subtopology, counts)


def _most_tasks(plan: ExecutionPlan, layout: CheckpointLayout) -> int:
    return (
        max((layout.count_of(subtopology.id) for subtopology in plan.subtopologies), default=0) or 1
    )


def _fitting_layout(
    plan: ExecutionPlan,
    log: TopicLog,
    checkpoint: Checkpoint,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
) -> CheckpointLayout | None:
    """Return the layout of a checkpoint that fits, with new topics; None before the first start."""
    application_id = plan.application_id
    layout = read_layout(application_id, checkpoint.folder)
    if layout is None or checkpoint.batch_log.query_id() is None:
        has_offsets = any(offset.metadata == OWN_OFFSETS for offset in committed.values())
        if has_offsets or committed_markers(application_id, log):
            msg = (
                f"Application {application_id!r} has made progress, but its checkpoint "
                f"{checkpoint} is gone."
            )
            remedy = f"Restore it, or start again with `headrace reset {application_id}`."
            raise CheckpointError(msg, remedy)
    if layout is None:
        return None
    if differences := changes(plan, layout):
        listed = "".join(f"\n  - {difference}" for difference in differences)
        msg = f"The topology no longer fits its checkpoint {checkpoint}:{listed}\n"
        remedy = (
            "Run the topology that made it, give this one another `application_id`, or start "
            f"again with `headrace reset {application_id}`."
        )
        raise CheckpointError(msg, remedy)
    layout.topic_ids |= _fitting_topics(plan, log, checkpoint, layout)
    if _resets(committed) - {layout.reset}:
        msg = (
            f"Application {application_id!r} was reset, but its checkpoint "
            f"{checkpoint} is from before that."
        )
        remedy = (
            f"Delete it with `headrace reset {application_id} --to-current`, which keeps the "
            "offsets of that reset."
        )
        raise CheckpointError(msg, remedy)
    _check_marker_topic(log, checkpoint, layout)
    return layout


def _fitting_topics(
    plan: ExecutionPlan, log: TopicLog, checkpoint: Checkpoint, layout: CheckpointLayout
) -> dict[str, str]:
    """Return the ids of the input topics; check that none was recreated."""
    ids = _topic_ids(plan, log)
    for topic, topic_id in ids.items():
        if layout.topic_ids.get(topic, topic_id) != topic_id:
            msg = (
                f"Topic {topic!r} is not the one that the checkpoint {checkpoint} was made "
                "with: it was deleted and created again, or is in another file."
            )
            remedy = (
                "Use the log that has it, give the application another `application_id`, or start "
                f"again with `headrace reset {plan.application_id}`."
            )
            raise CheckpointError(msg, remedy)
    return ids


def _check_marker_topic(log: TopicLog, checkpoint: Checkpoint, layout: CheckpointLayout) -> None:
    topic_id = current_marker_topic_id(layout.application_id, log)
    if layout.marker_topic_id not in ("", topic_id):
        msg = (
            f"Topic {markers_name(layout.application_id)!r} is not the one that the checkpoint "
            f"{checkpoint} was made with: the application was reset or cleaned up since, or the "
            "topic was deleted, and with it the batch markers, which show how far results are "
            "written."
        )
        remedy = (
            "Restore the checkpoint that belongs to it, or start again with "
            f"`headrace reset {layout.application_id}`."
        )
        raise CheckpointError(msg, remedy)


def _topic_ids(plan: ExecutionPlan, log: TopicLog) -> dict[str, str]:
    """Return the ids of the input topics, without those that the application writes."""
    topics = {topic for subtopology in plan.subtopologies for topic in subtopology.topics}
    topics.update(plan.global_topics, matching_topics(plan, log))
    return log.topic_ids(sorted(topics - plan.loops.keys()))


def _resets(committed: Mapping[TopicPartition, OffsetAndMetadata]) -> set[str]:
    """Return the resets whose offsets an application has not moved yet."""
    notes = (offset.metadata for offset in committed.values())
    return {note for note in notes if note.startswith(RESET_OFFSETS)}


def _first_layout(
    plan: ExecutionPlan, log: TopicLog, shuffle_partitions: Callable[[int], int]
) -> CheckpointLayout:
    for topic in plan.global_topics:
        log.partition_count(topic)  # raises if it does not exist
    matched = matching_topics(plan, log)
    counts, repartitions = task_counts(
        plan,
        log.partition_count,
        lambda subtopology: [topic for topic, reader in matched.items() if reader is subtopology],
    )
    tasks = max((counts[subtopology.id] for subtopology in plan.subtopologies), default=1)
    return new_layout(plan, counts, repartitions, shuffle_partitions(max(1, tasks)))
