"""Batch markers: the last batch that each task has written, and of which checkpoint.

A marker is an offset of the group ``<application.id>-markers``: the number of the batch plus one.
Spark writes the end of a batch into its batch log before the batch runs, so no marker is ahead of
its checkpoint.

The group has one more offset, the sentinel, on the topic of the leaders. While it is there, no
marker of a batch that Spark has not committed is gone. Before its first batch, a checkpoint records
that there is a sentinel, and the id of the marker topic.

Run `make nightly PART=model` and `make nightly PART=cuts` after a change here.
"""

from __future__ import annotations

import msgspec

from headrace.brokers.log import OffsetAndMetadata, TopicLog, TopicPartition
from headrace.brokers.offset_metadata import OWN_OFFSETS
from headrace.config import StreamsConfig
from headrace.errors import CheckpointError, UnknownTopicError
from headrace.runtime.checkpoint.batch_log import unfinished_batch
from headrace.runtime.checkpoint.checkpoint import Checkpoint
from headrace.runtime.checkpoint.layout import CheckpointLayout, read_layout, write_layout
from headrace.topology.naming import leader_name, markers_name


class Marker(msgspec.Struct, frozen=True, omit_defaults=True):
    """The metadata of a marker."""

    query: str
    """Spark's id of the query, which is the checkpoint's."""
    digest: str
    """Identifies the boundaries of the batch."""
    leader_epoch: int = 0
    """The leader that wrote it."""
    dead_letter: str = ""
    """The failure in a later batch whose dead letters are written."""


def parse_marker(offset: OffsetAndMetadata, application_id: str) -> Marker:
    """Return the metadata of a marker; raise `CheckpointError` if the offset is no marker."""
    try:
        return msgspec.json.decode(offset.metadata, type=Marker)
    except msgspec.MsgspecError as error:
        msg = (
            f"Group {markers_name(application_id)!r} has offsets that Headrace did not commit: "
            f"{error}."
        )
        remedy = (
            "Delete the group if something else uses it, or start again with "
            f"`headrace reset {application_id}`."
        )
        raise CheckpointError(msg, remedy) from error


def committed_markers(
    application_id: str, log: TopicLog
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the committed markers, also those of a transaction that is about to commit."""
    markers = markers_name(application_id)
    try:
        count = log.partition_count(markers)
    except UnknownTopicError:
        return {}
    return log.committed_offsets(markers, [TopicPartition(markers, task) for task in range(count)])


def current_marker_topic_id(application_id: str, log: TopicLog) -> str:
    """Return the id of the marker topic; empty if it does not exist."""
    markers = markers_name(application_id)
    try:
        return log.topic_ids([markers])[markers]
    except UnknownTopicError:
        return ""


def commit_sentinel(
    config: StreamsConfig,
    log: TopicLog,
    layout: CheckpointLayout,
    checkpoint: Checkpoint,
    leader_epoch: int,
) -> None:
    """Commit the sentinel, and record the marker topic in the checkpoint, before a query starts."""
    application_id = layout.application_id
    # The checks found a sentinel if one is needed. If it has gone since, do not replace it.
    is_checked = config.processing_guarantee == "exactly_once_v2" and layout.marker_topic_id
    if unfinished_batch(checkpoint.batch_log) is None or not (
        is_checked or has_sentinel(application_id, log)
    ):
        _commit_sentinel(application_id, log, leader_epoch)
    if not layout.marker_topic_id:
        markers = markers_name(application_id)
        topic_id = log.topic_ids([markers])[markers]
        # This process may have slept since it read the layout. Keep the id of a later leader.
        newest = read_layout(application_id, checkpoint.folder) or layout
        if not newest.marker_topic_id:
            newest.marker_topic_id = topic_id
            write_layout(checkpoint.folder, newest)
        layout.marker_topic_id = newest.marker_topic_id


def renew_sentinel(
    application_id: str, log: TopicLog, checkpoint: Checkpoint, leader_epoch: int
) -> None:
    """Commit the sentinel again before Kafka expires it, unless it would outlive needed markers."""
    if unfinished_batch(checkpoint.batch_log) is None:
        _commit_sentinel(application_id, log, leader_epoch)


def _commit_sentinel(application_id: str, log: TopicLog, leader_epoch: int) -> None:
    sentinel = {_sentinel(application_id): OffsetAndMetadata(leader_epoch, OWN_OFFSETS)}
    log.commit_offsets(markers_name(application_id), sentinel)


def has_sentinel(application_id: str, log: TopicLog) -> bool:
    """Return whether the group of markers has its sentinel."""
    return bool(log.committed_offsets(markers_name(application_id), [_sentinel(application_id)]))


def _sentinel(application_id: str) -> TopicPartition:
    return TopicPartition(leader_name(application_id), 0)
