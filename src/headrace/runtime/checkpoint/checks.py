"""Checks that a checkpoint fits the markers and offsets of its application.

Run `make nightly PART=model` and `make nightly PART=cuts` after a change here.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.brokers.log import OffsetAndMetadata, TopicLog, TopicPartition
from headrace.brokers.offset_metadata import OWN_OFFSETS
from headrace.config import StreamsConfig
from headrace.errors import CheckpointError
from headrace.runtime.checkpoint.batch_log import digest_of, unfinished_batch
from headrace.runtime.checkpoint.checkpoint import Checkpoint
from headrace.runtime.checkpoint.files import read_first
from headrace.runtime.checkpoint.layout import CheckpointLayout
from headrace.runtime.checkpoint.markers import (
    committed_markers,
    current_marker_topic_id,
    has_sentinel,
    parse_marker,
)
from headrace.topology.naming import dead_letters_transactional_id, markers_name, transactional_id


def check_checkpoint(
    config: StreamsConfig, log: TopicLog, layout: CheckpointLayout, checkpoint: Checkpoint
) -> None:
    """Check that a checkpoint has all that its application has read and written.

    Raises `CheckpointError` if it is an older copy, or the markers that would show it are gone.
    """
    application_id = layout.application_id
    if config.processing_guarantee == "exactly_once_v2":
        # A worker checks its leader epoch before it opens a producer, so none opens after this.
        partitions = range(layout.shuffle_partitions)
        ids = [transactional_id(application_id, partition) for partition in partitions]
        log.fence_producers([*ids, dead_letters_transactional_id(application_id)])
        check_markers(application_id, log, checkpoint)
        if layout.marker_topic_id:
            check_sentinel(application_id, log, checkpoint)
    committed = log.committed_offsets(application_id)
    check_progress(application_id, committed, checkpoint)


def check_markers(application_id: str, log: TopicLog, checkpoint: Checkpoint) -> None:
    """Raise `CheckpointError` if a checkpoint lacks a batch that its application has written.

    It is an older copy, or belongs to another query, and would write that batch again. Call this
    when no transaction of the application is open: an open one has no markers yet.
    """
    group = markers_name(application_id)
    query, last = checkpoint.batch_log.query_id(), checkpoint.batch_log.last_planned()
    for partition, offset in sorted(committed_markers(application_id, log).items()):
        marker, batch = parse_marker(offset, application_id), offset.offset - 1
        if batch < 0:
            continue  # the task has written a dead letter and no batch
        if marker.query != query:
            problem = f"it is of query {query!r}, but query {marker.query!r} has"
        elif batch > last:
            problem = f"its last batch is {last}, but the application has"
        elif digest_of(checkpoint.batch_log, batch) not in (None, marker.digest):
            problem = "from other offsets than it has, the application has"
        else:
            continue
        msg = (
            f"The checkpoint {checkpoint} is not the newest one: {problem} written batch "
            f"{batch} of task {partition.partition} (group {group!r})."
        )
        raise CheckpointError(msg, _restore_or_reset(application_id))


def check_sentinel(application_id: str, log: TopicLog, checkpoint: Checkpoint) -> None:
    """Raise `CheckpointError` if the last batch is not committed, and its markers may be gone.

    Only for checkpoints that have recorded a sentinel.
    """
    batch = unfinished_batch(checkpoint.batch_log)
    if batch is None or has_sentinel(application_id, log):
        return
    msg = (
        f"Batch {batch} of checkpoint {checkpoint} is unfinished, and its markers are gone: the "
        f"group {markers_name(application_id)!r} was deleted, or its offsets expired "
        "(`offsets.retention.minutes`)."
    )
    remedy = (
        "If results of that batch may be there twice, start once with "
        "`processing_guarantee='at_least_once'`, and stop when the batch is done. Otherwise "
        f"start again with `headrace reset {application_id}`."
    )
    raise CheckpointError(msg, remedy)


def check_markers_intact(
    application_id: str, log: TopicLog, marker_topic_id: str, batch: int
) -> None:
    """Raise `CheckpointError` if a batch may have no markers because they are gone.

    Call this after the markers were read: they may disappear in between. ``marker_topic_id`` is the
    id that the checkpoint has.
    """
    is_same_topic = current_marker_topic_id(application_id, log) == marker_topic_id
    if is_same_topic and has_sentinel(application_id, log):
        return
    msg = (
        f"Batch {batch} cannot be retried, because its markers are gone: the topic or the group "
        f"{markers_name(application_id)!r} was deleted, or the offsets of the group expired "
        f"(`offsets.retention.minutes`). Start again with `headrace reset {application_id}`."
    )
    raise CheckpointError(msg)


def check_progress(
    application_id: str,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    checkpoint: Checkpoint,
) -> None:
    """Raise `CheckpointError` if the application has committed offsets beyond its checkpoint.

    It is then an older copy, also under at_least_once, which writes no markers.
    """
    last = checkpoint.batch_log.last_planned()
    planned = (
        read_first(application_id, checkpoint.folder)
        if last < 0
        else checkpoint.batch_log.end_of(last)
    )
    if planned is None:
        return
    for partition, offset in sorted(committed.items()):
        if offset.metadata == OWN_OFFSETS and offset.offset > planned.offset(*partition):
            msg = (
                f"The checkpoint {checkpoint} is not the newest one: it has planned "
                f"{partition.topic!r}, partition {partition.partition}, up to "
                f"{planned.offset(*partition)}, but the application has read it up to "
                f"{offset.offset}."
            )
            raise CheckpointError(msg, _restore_or_reset(application_id))


def _restore_or_reset(application_id: str) -> str:
    return f"Restore the newest one, or start again with `headrace reset {application_id}`."
