"""Markers: which batch of which checkpoint a task has written last.

A marker is an offset of the group ``<application.id>-markers``: the number of the batch plus one.
Spark writes down where a batch ends before the batch runs, so that no marker is ever ahead of the
checkpoint it belongs to.

The group has one offset besides, its seal, on the topic of the leaders: while that is there, no
marker of a batch that Spark has not committed is gone. The checkpoint knows before its first batch
that there is one, and the id of the topic of markers.
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
    """Stands for the offsets of the batch."""
    leader_epoch: int = 0
    """The leader that wrote it."""
    dead_letter: str = ""
    """The failure in a later batch whose dead letters are written."""


def parse_marker(found: OffsetAndMetadata, application_id: str) -> Marker:
    """Return what a marker of an application says.

    Raises:
        CheckpointError: It is no marker.
    """
    try:
        return msgspec.json.decode(found.metadata, type=Marker)
    except msgspec.MsgspecError as error:
        msg = (
            f"Group {markers_name(application_id)!r} has offsets that Headrace did not commit: "
            f"{error}. Delete the group if something else uses it, or start again with "
            f"`headrace reset {application_id}`."
        )
        raise CheckpointError(msg) from error


def committed_markers(
    application_id: str, log: TopicLog
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the markers of what was written; those of a transaction that is ending too."""
    markers = markers_name(application_id)
    try:
        count = log.partition_count(markers)
    except UnknownTopicError:
        return {}
    return log.committed_offsets(markers, [TopicPartition(markers, task) for task in range(count)])


def commit_sentinel(
    config: StreamsConfig,
    log: TopicLog,
    layout: CheckpointLayout,
    checkpoint: Checkpoint,
    leader_epoch: int,
) -> None:
    """Let the checkpoint and the markers know of each other, before the query starts."""
    application_id = layout.application_id
    # A seal that is needed was there when it was checked. If it has gone since, it stays away.
    is_checked = config.processing_guarantee == "exactly_once_v2" and layout.marker_topic_id
    if unfinished_batch(checkpoint.batch_log) is None or not (
        is_checked or has_sentinel(application_id, log)
    ):
        _commit_seal(application_id, log, leader_epoch)
    if not layout.marker_topic_id:
        markers = markers_name(application_id)
        found = log.topic_ids([markers])[markers]
        # This process may have slept since it read the layout: a later leader's id stays.
        newest = read_layout(application_id, checkpoint.folder) or layout
        if not newest.marker_topic_id:
            newest.marker_topic_id = found
            write_layout(checkpoint.folder, newest)
        layout.marker_topic_id = newest.marker_topic_id


def renew_sentinel(
    application_id: str, log: TopicLog, checkpoint: Checkpoint, leader_epoch: int
) -> None:
    """Keep Kafka from forgetting the seal, unless it would outlive markers that are needed."""
    if unfinished_batch(checkpoint.batch_log) is None:
        _commit_seal(application_id, log, leader_epoch)


def _commit_seal(application_id: str, log: TopicLog, leader_epoch: int) -> None:
    seal = {_seal(application_id): OffsetAndMetadata(leader_epoch, OWN_OFFSETS)}
    log.commit_offsets(markers_name(application_id), seal)


def has_sentinel(application_id: str, log: TopicLog) -> bool:
    """Return whether the group of markers has its sentinel."""
    return bool(log.committed_offsets(markers_name(application_id), [_seal(application_id)]))


def _seal(application_id: str) -> TopicPartition:
    return TopicPartition(leader_name(application_id), 0)
