"""Let an application start over: offsets, internal topics, markers and checkpoint, together.

Kafka's ``kafka-streams-application-reset``. What was written to output topics stays.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple
from uuid import uuid4

import msgspec

from headrace.brokers import OffsetAndMetadata, TopicLog, TopicPartition
from headrace.brokers.offset_metadata import RESET_OFFSETS
from headrace.clients.lag import committed_of_existing
from headrace.errors import BrokerError, GroupNotEmptyError, UnknownTopicError
from headrace.topology.naming import (
    leader_name,
    letters_transactional_id,
    markers_name,
    queries_name,
    transactional_id,
)

_LEFT_OVER = "checkpoint.reset"
_LAYOUT_FILE = "headrace.json"
_INTERNAL = re.compile(
    r".+(-changelog|-repartition|-subscription-(registration|response)-topic"
    r"|-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-[0-9]+-topic)"
)
"""The names that Kafka's tool takes for those of internal topics."""
_OWN_NAMES = (markers_name, leader_name, queries_name)


@dataclass(frozen=True)
class ResetTo:
    """Where an application starts over in its input.

    ``offset`` and ``shift`` stay within what the partition holds; ``time`` is the first record at
    or after a timestamp; ``current`` goes on where the application was, without its state.
    """

    kind: Literal["earliest", "latest", "current", "offset", "time", "shift"] = "earliest"
    value: int = 0
    """The offset, the timestamp in milliseconds, or how many offsets to go on or back."""


class OffsetChange(NamedTuple):
    """Where the application was in one partition, and where it starts over."""

    topic: str
    partition: int
    before: int | None
    after: int


@dataclass(frozen=True)
class ResetPlan:
    """What a reset does. Its text says so in words."""

    application_id: str
    offsets: tuple[OffsetChange, ...]
    topics: tuple[str, ...]
    """The internal topics to delete."""
    groups: tuple[str, ...]
    """The groups to delete: the markers of what was written."""
    checkpoint: Path | None
    """The checkpoint to delete, if there is one."""
    left_over: tuple[Path, ...] = ()
    """What an interrupted reset did not finish deleting."""
    skipped: tuple[str, ...] = ()
    """What was looked for, and does not exist: input topics, the checkpoint."""

    def __str__(self) -> str:
        lines = [f"Reset of application {self.application_id!r}"]
        for change in self.offsets:
            before = "none" if change.before is None else change.before
            lines.append(
                f"  offset      {change.topic}-{change.partition}: {before} -> {change.after}"
            )
        lines += [f"  delete      topic {topic}" for topic in self.topics]
        lines += [f"  delete      group {group}" for group in self.groups]
        lines += [f"  delete      {path}" for path in (self.checkpoint, *self.left_over) if path]
        lines += [f"  not there   {what}" for what in self.skipped]
        return "\n".join(lines)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.offsets or self.topics or self.groups or self.checkpoint or self.left_over)


def plan_reset(
    log: TopicLog,
    application_id: str,
    *,
    state_dir: Path,
    to: ResetTo | None = None,
    input_topics: Iterable[str] = (),
    expected_topics: Iterable[str] = (),
    internal_topics: Iterable[str] | None = None,
    there: Collection[str] | None = None,
) -> ResetPlan:
    """Return what a reset would do. Changes nothing.

    Args:
        log: Where the topics are.
        application_id: Whose offsets, topics and checkpoint.
        state_dir: The folder of its checkpoint.
        to: Where to start over; the beginning if left out.
        input_topics: The topics to start over in. Others that the application has read keep their
            offsets. Left out: all that it has read, and ``expected_topics``.
        expected_topics: Topics that the program reads; those that do not exist are left out.
        internal_topics: The topics to delete; left out: those that bear the application's name.
        there: The topics that exist, if they are known.

    Raises:
        UnknownTopicError: One of ``input_topics`` does not exist.
        GroupNotEmptyError: The application, or one that answers its queries, still runs.
    """
    _refuse_members(log, application_id)
    there = log.list_topics() if there is None else there
    internal = _internal(log, application_id, there) if internal_topics is None else internal_topics
    deleted = tuple(internal)
    # Topics that it reads back have offsets too, but nothing is kept of what is deleted.
    known = {
        name: offset
        for name, offset in committed_of_existing(log, application_id, there).items()
        if name.topic not in deleted
    }
    given, expected = list(input_topics), list(expected_topics)
    read = {name.topic for name in known}
    chosen = set(given) if given else read | set(expected) & set(there)
    partitions = [
        TopicPartition(topic, number)
        for topic in sorted(chosen.difference(deleted))
        for number in range(log.partition_count(topic))
    ]
    after = _offsets_to(log, partitions, known, to or ResetTo())
    after |= {name: offset for name, offset in known.items() if name not in after}
    root = state_dir / application_id
    checkpoint = _existing(root / "checkpoint")
    groups = set(log.list_groups())
    missing = [] if given else [f"topic {topic}" for topic in sorted(set(expected) - set(there))]
    if checkpoint is None:
        missing.append(f"checkpoint {root / 'checkpoint'}")
    return ResetPlan(
        application_id,
        tuple(OffsetChange(*name, known.get(name), after[name]) for name in sorted(after)),
        deleted,
        tuple(sorted(groups & {markers_name(application_id), leader_name(application_id)})),
        checkpoint,
        tuple(path for path in [_existing(root / _LEFT_OVER)] if path),
        tuple(missing),
    )


def execute_reset(log: TopicLog, plan: ResetPlan) -> None:
    """Do what a plan says. If it fails half-way, planning and doing it again goes on.

    The checkpoint goes away first, in one step: an application without one refuses to start while
    it has offsets, but one with a checkpoint and no markers would write its last batch twice. Then
    the topic of markers: without it no copy of the checkpoint starts. The offsets come last,
    because they let the application start again.

    Raises:
        BrokerError: The broker could not do a step, or the checkpoint cannot be deleted.
    """
    _refuse_members(log, plan.application_id)
    left_over = [*plan.left_over]
    if plan.checkpoint is not None:
        left_over = [_moved_away(plan.checkpoint, plan.left_over)]
    # Who still writes finds no leadership, then no transaction; else it would find no markers.
    leader = leader_name(plan.application_id)
    log.delete_group(leader)
    _end_transactions(log, plan.application_id, left_over)
    markers = markers_name(plan.application_id)
    there = set(log.list_topics())
    for topic in sorted(plan.topics, key=lambda topic: topic != markers):
        if topic in there:
            log.delete_topic(topic)
    for group in plan.groups:
        if group != leader:
            log.delete_group(group)
    metadata = f"{RESET_OFFSETS} {uuid4().hex}"
    offsets = {
        TopicPartition(change.topic, change.partition): OffsetAndMetadata(change.after, metadata)
        for change in plan.offsets
    }
    if offsets:
        log.commit_offsets(plan.application_id, offsets)
    for path in left_over:
        _delete(path)


def reset_application(
    log: TopicLog,
    application_id: str,
    *,
    state_dir: Path,
    to: ResetTo | None = None,
    input_topics: Iterable[str] = (),
    expected_topics: Iterable[str] = (),
    internal_topics: Iterable[str] | None = None,
    dry_run: bool = False,
) -> ResetPlan:
    """Let an application that does not run start over, and return what was done.

    Arguments as for `plan_reset`; with ``dry_run`` nothing is done.
    """
    plan = plan_reset(
        log,
        application_id,
        state_dir=state_dir,
        to=to,
        input_topics=input_topics,
        expected_topics=expected_topics,
        internal_topics=internal_topics,
    )
    if not dry_run:
        execute_reset(log, plan)
    return plan


def forget_application(log: TopicLog, application_id: str, *, state_dir: Path) -> None:
    """Let the next start of an application that does not run be a first one: no offsets either.

    Raises:
        GroupNotEmptyError: The application, or one that answers its queries, still runs.
    """
    plan = plan_reset(log, application_id, state_dir=state_dir)
    execute_reset(log, replace(plan, offsets=(), groups=(*plan.groups, application_id)))


def _end_transactions(log: TopicLog, application_id: str, checkpoints: Iterable[Path]) -> None:
    """End what is open of all writers there can be, also if somebody has deleted the markers."""
    # There are no more writers than markers have partitions.
    writers = 0
    with suppress(UnknownTopicError):
        writers = log.partition_count(markers_name(application_id))
    for checkpoint in checkpoints:
        with suppress(OSError, msgspec.MsgspecError):
            layout = msgspec.json.decode((checkpoint / _LAYOUT_FILE).read_bytes(), type=_Layout)
            writers = max(writers, layout.shuffle_partitions)
    if writers:
        ids = [transactional_id(application_id, writer) for writer in range(writers)]
        log.fence_producers([*ids, letters_transactional_id(application_id)])


class _Layout(msgspec.Struct):
    shuffle_partitions: int


def _refuse_members(log: TopicLog, application_id: str) -> None:
    for group in (application_id, leader_name(application_id), queries_name(application_id)):
        if log.describe_group(group):
            raise GroupNotEmptyError(group)


def _offsets_to(
    log: TopicLog,
    partitions: list[TopicPartition],
    known: Mapping[TopicPartition, int],
    to: ResetTo,
) -> dict[TopicPartition, int]:
    begins, ends = log.beginning_offsets(partitions), log.end_offsets(partitions)
    if to.kind == "latest":
        return ends
    wanted = dict(begins)
    if to.kind == "current":
        wanted |= {name: known[name] for name in partitions if name in known}
    elif to.kind == "offset":
        wanted = dict.fromkeys(partitions, to.value)
    elif to.kind == "shift":
        wanted = {name: known.get(name, begins[name]) + to.value for name in partitions}
    elif to.kind == "time":
        found = log.offsets_for_times(dict.fromkeys(partitions, to.value))
        wanted = {
            name: ends[name] if at is None else at.offset
            for name, at in ((name, found.get(name)) for name in partitions)
        }
    return {name: min(max(wanted[name], begins[name]), ends[name]) for name in partitions}


def _internal(log: TopicLog, application_id: str, topics: Collection[str]) -> list[str]:
    """Return the internal topics of an application, and none of one with a longer name."""
    others = {
        name.removesuffix(ending)
        for name in (*topics, *log.list_groups())
        for ending in (own_name("") for own_name in _OWN_NAMES)
        if name.endswith(ending)
    }
    longer = tuple(f"{name}-" for name in others if name.startswith(f"{application_id}-"))
    return [
        topic
        for topic in topics
        if topic in (markers_name(application_id), leader_name(application_id))
        or (
            topic.startswith(f"{application_id}-")
            and _INTERNAL.fullmatch(topic)
            and not topic.startswith(longer)
        )
    ]


def _existing(path: Path) -> Path | None:
    return path if path.exists() or path.is_symlink() else None


def _moved_away(checkpoint: Path, left_over: Iterable[Path]) -> Path:
    """Take a checkpoint out of use in one step; deleting it takes many."""
    for path in left_over:
        _delete(path)
    try:
        return checkpoint.rename(checkpoint.with_name(_LEFT_OVER))
    except OSError as error:
        raise _not_deleted(checkpoint, error) from error


def _delete(path: Path) -> None:
    try:
        if path.is_symlink() or path.is_file():
            path.unlink()
        else:
            shutil.rmtree(path)
    except OSError as error:
        raise _not_deleted(path, error) from error


def _not_deleted(path: Path, error: OSError) -> BrokerError:
    return BrokerError(
        f"{str(path)!r} cannot be deleted ({error}). Correct its permissions, and reset again."
    )
