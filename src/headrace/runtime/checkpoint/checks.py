"""Checks that a checkpoint fits the markers and offsets of its application.

Run `make nightly PART=model` and `make nightly PART=cuts` after a change here.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from headrace.brokers.log import OffsetAndMetadata, TopicLog, TopicPartition
from headrace.brokers.offset_metadata import OWN_OFFSETS
from headrace.config import StreamsConfig
from headrace.errors import CheckpointError, UnknownTopicError
from headrace.runtime.checkpoint.batch_log import digest_of, unfinished_batch
from headrace.runtime.checkpoint.checkpoint import Checkpoint
from headrace.runtime.checkpoint.files import read_first
from headrace.runtime.checkpoint.layout import CheckpointLayout
from headrace.runtime.checkpoint.markers import committed_markers, has_sentinel, parse_marker
from headrace.topology.naming import letters_transactional_id, markers_name, transactional_id


def check_checkpoint(
    config: StreamsConfig, log: TopicLog, layout: CheckpointLayout, checkpoint: Checkpoint
) -> None:
    """Refuse a checkpoint that does not know what its application has read and written.

    Raises:
        CheckpointError: It is not the newest one, or what would tell so is gone.
    """
    application_id = layout.application_id
    if config.processing_guarantee == "exactly_once_v2":
        # Each has a generation before it is opened, so none is opened after this.
        partitions = range(layout.shuffle_partitions)
        ids = [transactional_id(application_id, partition) for partition in partitions]
        log.fence_producers([*ids, letters_transactional_id(application_id)])
        check_markers(application_id, log, checkpoint)
        if layout.marker_topic_id:
            check_sentinel(application_id, log, checkpoint)
    committed = log.committed_offsets(application_id)
    check_progress(application_id, committed, checkpoint)


def check_markers(application_id: str, log: TopicLog, checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint that does not know what its application has written.

    What it does not know would be written again. Call it when no transaction of the application is
    open any more: the markers of one are not there yet.

    Raises:
        CheckpointError: The checkpoint is an older copy, or another one than was written with.
    """
    group = markers_name(application_id)
    query, last = checkpoint.batch_log.query_id(), checkpoint.batch_log.last_planned()
    for name, found in sorted(committed_markers(application_id, log).items()):
        marker, batch = parse_marker(found, application_id), found.offset - 1
        if batch < 0:
            continue  # the task has written a dead letter and no batch
        if marker.query != query:
            problem = f"it is of query {query!r}, but query {marker.query!r} has"
        elif batch > last:
            problem = f"the last batch it knows is {last}, but the application has"
        elif digest_of(checkpoint.batch_log, batch) not in (None, marker.digest):
            problem = "from other offsets than it knows, the application has"
        else:
            continue
        msg = (
            f"The checkpoint {checkpoint} is not the newest one: {problem} written batch "
            f"{batch} of task {name.partition}, as group {group!r} says. Restore the newest one, "
            f"or start again with `headrace reset {application_id}`."
        )
        raise CheckpointError(msg)


def check_sentinel(application_id: str, log: TopicLog, checkpoint: Checkpoint) -> None:
    """Refuse to do a batch again of which nobody knows any more what is written.

    For checkpoints that know of a seal.

    Raises:
        CheckpointError: Spark has not committed the last batch, and the group of markers was
            deleted or has expired.
    """
    batch = unfinished_batch(checkpoint.batch_log)
    if batch is None or has_sentinel(application_id, log):
        return
    msg = (
        f"The checkpoint {checkpoint} has begun batch {batch} and does not say that it has "
        f"ended, and the markers that told what is written of it are gone: the group "
        f"{markers_name(application_id)!r} was deleted, or Kafka has forgotten its offsets "
        "(`offsets.retention.minutes`). If results of that batch may be there twice, start once "
        "with `processing_guarantee='at_least_once'`, and stop when the batch is done. Else start "
        f"again with `headrace reset {application_id}`."
    )
    raise CheckpointError(msg)


def check_markers_intact(
    application_id: str, log: TopicLog, marker_topic_id: str, batch: int
) -> None:
    """Refuse to try a batch again if its markers, of which there are none, may have been lost.

    Call it after they were looked for: they may be lost while it is looked.

    Args:
        application_id: Whose batch it is.
        log: Where the markers are.
        marker_topic_id: The id of the topic of markers, as the checkpoint knows it.
        batch: The number of the batch.

    Raises:
        CheckpointError: The group or the topic of markers was deleted, or the group has expired.
    """
    markers = markers_name(application_id)
    found = ""
    with suppress(UnknownTopicError):
        found = log.topic_ids([markers])[markers]
    if found == marker_topic_id and has_sentinel(application_id, log):
        return
    msg = (
        f"Batch {batch} is to be tried again, and the markers that told what is written of it are "
        f"gone: the topic or the group {markers!r} was deleted, or Kafka has forgotten the offsets "
        "of the group (`offsets.retention.minutes`). Start again with "
        f"`headrace reset {application_id}`."
    )
    raise CheckpointError(msg)


def check_progress(
    application_id: str,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    checkpoint: Checkpoint,
) -> None:
    """Refuse a checkpoint that does not know how far its application has come: an older copy.

    Batches that ran at least once have no markers.

    Args:
        application_id: Whose it is.
        committed: The offsets of its group.
        checkpoint: Its checkpoint.

    Raises:
        CheckpointError: The application has read further than the checkpoint says.
    """
    last = checkpoint.batch_log.last_planned()
    planned = (
        read_first(application_id, checkpoint.folder)
        if last < 0
        else checkpoint.batch_log.end_of(last)
    )
    if planned is None:
        return
    for name, found in sorted(committed.items()):
        if found.metadata == OWN_OFFSETS and found.offset > planned.offset(*name):
            msg = (
                f"The checkpoint {checkpoint} is not the newest one: it has planned "
                f"{name.topic!r}, partition {name.partition}, up to {planned.offset(*name)}, but "
                f"the application has read it up to {found.offset}. Restore the newest one, or "
                f"start again with `headrace reset {application_id}`."
            )
            raise CheckpointError(msg)
