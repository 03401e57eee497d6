"""Markers: which batch of which checkpoint a task has written last.

A marker is an offset of the group ``<application.id>-epochs``: the number of the batch plus one.
Spark writes down where a batch ends before the batch runs, so that no marker is ever ahead of the
checkpoint it belongs to.

The group has one offset besides, its seal, on the topic of the leaders: while that is there, no
marker of a batch that Spark has not committed is gone. The checkpoint knows before its first batch
that there is one, and the id of the topic of markers.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from headrace.brokers.log import OffsetAndMetadata, TopicLog, TopicPartition
from headrace.brokers.offset_notes import OWN_OFFSETS
from headrace.config import StreamsConfig
from headrace.errors import CheckpointError, UnknownTopicError
from headrace.spark.planning.layout import Layout, read_layout, write_layout
from headrace.spark.planning.log_files import SPARK_FOLDER
from headrace.spark.planning.positions import Position, digest, read_first
from headrace.topology.naming import epochs_name, leader_name, transactional_id


class Marker(msgspec.Struct, frozen=True):
    """The metadata of a marker."""

    query: str
    """Spark's id of the query, which is the checkpoint's."""
    digest: str
    """Stands for the offsets of the batch."""
    generation: int = 0
    """The leader that wrote it."""


def marker_in(found: OffsetAndMetadata, application_id: str) -> Marker:
    """Return what a marker of an application says.

    Raises:
        CheckpointError: It is no marker.
    """
    try:
        return msgspec.json.decode(found.metadata, type=Marker)
    except msgspec.MsgspecError as error:
        msg = (
            f"Group {epochs_name(application_id)!r} has offsets that Headrace did not commit: "
            f"{error}. Delete the group if something else uses it, or start again with "
            f"`headrace reset {application_id}`."
        )
        raise CheckpointError(msg) from error


def committed_markers(
    application_id: str, log: TopicLog
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the markers of what was written; those of a transaction that is ending too."""
    epochs = epochs_name(application_id)
    try:
        count = log.partition_count(epochs)
    except UnknownTopicError:
        return {}
    return log.committed_offsets(epochs, [TopicPartition(epochs, task) for task in range(count)])


def check_checkpoint(
    config: StreamsConfig, log: TopicLog, layout: Layout, checkpoint: Path
) -> None:
    """Refuse a checkpoint that does not know what its application has read and written.

    Raises:
        CheckpointError: It is not the newest one, or what would tell so is gone.
    """
    application_id = layout.application_id
    if config.processing_guarantee == "exactly_once_v2":
        # Each has a generation before it is opened, so none is opened after this.
        partitions = range(layout.shuffle_partitions)
        log.end_transactions(transactional_id(application_id, p) for p in partitions)
        check_markers(application_id, log, checkpoint)
        if layout.epochs_id:
            check_seal(application_id, log, checkpoint)
    check_progress(application_id, log.committed_offsets(application_id), checkpoint)


def check_markers(application_id: str, log: TopicLog, checkpoint: Path) -> None:
    """Refuse a checkpoint that does not know what its application has written.

    What it does not know would be written again. Call it when no transaction of the application is
    open any more: the markers of one are not there yet.

    Raises:
        CheckpointError: The checkpoint is an older copy, or another one than was written with.
    """
    group, known = epochs_name(application_id), SparkFiles(application_id, checkpoint)
    query, last = known.query_id(), known.last_batch()
    for name, found in sorted(committed_markers(application_id, log).items()):
        marker, batch = marker_in(found, application_id), found.offset - 1
        if marker.query != query:
            problem = f"it is of query {query!r}, but query {marker.query!r} has"
        elif batch > last:
            problem = f"the last batch it knows is {last}, but the application has"
        elif known.digest_of(batch) not in (None, marker.digest):
            problem = "from other offsets than it knows, the application has"
        else:
            continue
        msg = (
            f"The checkpoint {str(checkpoint)!r} is not the newest one: {problem} written batch "
            f"{batch} of task {name.partition}, as group {group!r} says. Restore the newest one, "
            f"or start again with `headrace reset {application_id}`."
        )
        raise CheckpointError(msg)


def check_seal(application_id: str, log: TopicLog, checkpoint: Path) -> None:
    """Refuse to do a batch again of which nobody knows any more what is written.

    For checkpoints that know of a seal.

    Raises:
        CheckpointError: Spark has not committed the last batch, and the group of markers was
            deleted or has expired.
    """
    batch = SparkFiles(application_id, checkpoint).unfinished_batch()
    if batch is None or _has_seal(application_id, log):
        return
    msg = (
        f"The checkpoint {str(checkpoint)!r} has begun batch {batch} and does not say that it has "
        f"ended, and the markers that told what is written of it are gone: the group "
        f"{epochs_name(application_id)!r} was deleted, or Kafka has forgotten its offsets "
        "(`offsets.retention.minutes`). If results of that batch may be there twice, start once "
        "with `processing_guarantee='at_least_once'`, and stop when the batch is done. Else start "
        f"again with `headrace reset {application_id}`."
    )
    raise CheckpointError(msg)


def check_unwritten(application_id: str, log: TopicLog, epochs_id: str, batch: int) -> None:
    """Refuse to try a batch again if its markers, of which there are none, may have been lost.

    Call it after they were looked for: they may be lost while it is looked.

    Args:
        application_id: Whose batch it is.
        log: Where the markers are.
        epochs_id: The id of the topic of markers, as the checkpoint knows it.
        batch: The number of the batch.

    Raises:
        CheckpointError: The group or the topic of markers was deleted, or the group has expired.
    """
    epochs = epochs_name(application_id)
    found = ""
    with suppress(UnknownTopicError):
        found = log.topic_ids([epochs])[epochs]
    if found == epochs_id and _has_seal(application_id, log):
        return
    msg = (
        f"Batch {batch} is to be tried again, and the markers that told what is written of it are "
        f"gone: the topic or the group {epochs!r} was deleted, or Kafka has forgotten the offsets "
        "of the group (`offsets.retention.minutes`). Start again with "
        f"`headrace reset {application_id}`."
    )
    raise CheckpointError(msg)


def seal_markers(
    config: StreamsConfig, log: TopicLog, layout: Layout, checkpoint: Path, generation: int
) -> None:
    """Let the checkpoint and the markers know of each other, before the query starts."""
    application_id = layout.application_id
    files = SparkFiles(application_id, checkpoint)
    # A seal that is needed was there when it was checked. If it has gone since, it stays away.
    is_checked = config.processing_guarantee == "exactly_once_v2" and layout.epochs_id
    if files.unfinished_batch() is None or not (is_checked or _has_seal(application_id, log)):
        _commit_seal(application_id, log, generation)
    if not layout.epochs_id:
        epochs = epochs_name(application_id)
        found = log.topic_ids([epochs])[epochs]
        # This process may have slept since it read the layout: a later leader's id stays.
        newest = read_layout(application_id, checkpoint) or layout
        if not newest.epochs_id:
            newest.epochs_id = found
            write_layout(checkpoint, newest)
        layout.epochs_id = newest.epochs_id


def renew_seal(application_id: str, log: TopicLog, checkpoint: Path, generation: int) -> None:
    """Keep Kafka from forgetting the seal, unless it would outlive markers that are needed."""
    if SparkFiles(application_id, checkpoint).unfinished_batch() is None:
        _commit_seal(application_id, log, generation)


def _commit_seal(application_id: str, log: TopicLog, generation: int) -> None:
    seal = {_seal(application_id): OffsetAndMetadata(generation, OWN_OFFSETS)}
    log.commit_offsets(epochs_name(application_id), seal)


def _has_seal(application_id: str, log: TopicLog) -> bool:
    return bool(log.committed_offsets(epochs_name(application_id), [_seal(application_id)]))


def _seal(application_id: str) -> TopicPartition:
    return TopicPartition(leader_name(application_id), 0)


def check_progress(
    application_id: str,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    checkpoint: Path,
) -> None:
    """Refuse a checkpoint that does not know how far its application has come: an older copy.

    Batches that ran at least once have no markers.

    Args:
        application_id: Whose it is.
        committed: The offsets of its group.
        checkpoint: Its directory.

    Raises:
        CheckpointError: The application has read further than the checkpoint says.
    """
    known = SparkFiles(application_id, checkpoint)
    last = known.last_batch()
    planned = read_first(application_id, checkpoint) if last < 0 else known.end_of(last)
    if planned is None:
        return
    for name, found in sorted(committed.items()):
        if found.metadata == OWN_OFFSETS and found.offset > planned.offset(*name):
            msg = (
                f"The checkpoint {str(checkpoint)!r} is not the newest one: it has planned "
                f"{name.topic!r}, partition {name.partition}, up to {planned.offset(*name)}, but "
                f"the application has read it up to {found.offset}. Restore the newest one, or "
                f"start again with `headrace reset {application_id}`."
            )
            raise CheckpointError(msg)


class SparkFiles:
    """What Spark has written down in a checkpoint.

    Args:
        application_id: Whose it is.
        checkpoint: Its directory.
    """

    def __init__(self, application_id: str, checkpoint: Path) -> None:
        self._application_id = application_id
        self._folder = checkpoint / SPARK_FOLDER

    def query_id(self) -> str | None:
        """Return the id of the query; None before its first start.

        Raises:
            CheckpointError: The file that holds it is torn.
        """
        path = self._folder / "metadata"
        try:
            return msgspec.json.decode(path.read_bytes(), type=_Metadata).id
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            msg = (
                f"The file {str(path)!r} of the checkpoint is torn: {error}. Restore the "
                "checkpoint from a copy, or start again with "
                f"`headrace reset {self._application_id}`."
            )
            raise CheckpointError(msg) from error

    def last_batch(self) -> int:
        """Return the number of the last batch that was planned; -1 before the first."""
        names = (path.name for path in (self._folder / "offsets").glob("*"))
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def unfinished_batch(self) -> int | None:
        """Return the batch that was planned and not committed; None if there is none."""
        last = self.last_batch()
        is_done = last < 0 or (self._folder / "commits" / str(last)).exists()
        return None if is_done else last

    def digest_of(self, batch: int) -> str | None:
        """Return what stands for a batch among its markers; None if that is not known any more."""
        start, end = self.end_of(batch - 1), self.end_of(batch)
        return None if start is None or end is None else digest(start, end)

    def end_of(self, batch: int) -> Position | None:
        """Return where a batch ends, if it is kept and was planned by a version like this one."""
        try:
            _version, _settings, line = (
                (self._folder / "offsets" / str(batch)).read_bytes().splitlines()
            )
            kept: dict[str, Any] = msgspec.json.decode(line)
            position = Position.from_dict(kept)
        except (FileNotFoundError, ValueError):
            return None
        return position if position.as_dict() == kept else None


class _Metadata(msgspec.Struct):
    id: str
