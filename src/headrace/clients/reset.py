"""Reset an application: its offsets, internal topics, markers and checkpoint, together.

Kafka's ``kafka-streams-application-reset``. The records in output topics stay.

Run `make nightly PART=model` and `tests/cli/test_reset.py` after a change here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import uuid4

import msgspec

from headrace.brokers import OffsetAndMetadata, TopicLog, TopicPartition
from headrace.brokers.offset_metadata import RESET_OFFSETS
from headrace.clients.lag import committed_of_existing
from headrace.clients.offsets import OffsetChange, ResetTo, offsets_to
from headrace.errors import GroupNotEmptyError, UnknownTopicError
from headrace.home import ApplicationHome
from headrace.runtime.checkpoint.layout import LAYOUT_FILE
from headrace.runtime.leadership import leader_note
from headrace.topology.naming import (
    TRIAL_SUFFIX,
    dead_letters_transactional_id,
    leader_name,
    markers_name,
    queries_name,
    snapshots_name,
    transactional_id,
)

_INTERNAL = re.compile(
    r".+(-changelog|-repartition|-subscription-(registration|response)-topic"
    r"|-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-[0-9]+-topic"
    rf"|-[0-9a-f]{{12}}{TRIAL_SUFFIX})"
)
"""The names that Kafka's tool takes for those of internal topics, and those of trial topics."""
_OWN_NAMES = (markers_name, leader_name, queries_name)


@dataclass(frozen=True)
class ResetPlan:
    """The steps of a reset; its text lists them."""

    home: ApplicationHome
    offsets: tuple[OffsetChange, ...]
    topics: tuple[str, ...]
    """The internal topics to delete."""
    groups: tuple[str, ...]
    """The groups to delete: those of the markers and of the leaders."""
    checkpoints: tuple[str, ...]
    """The checkpoints to delete: the present one, and those that no start uses."""
    missing: tuple[str, ...] = ()
    """The input topics and the checkpoint, where they do not exist."""

    def __str__(self) -> str:
        lines = [f"Reset of application {self.home.application_id!r}"]
        for change in self.offsets:
            before = "none" if change.before is None else change.before
            lines.append(
                f"  offset      {change.topic}-{change.partition}: {before} -> {change.after}"
            )
        lines += [f"  delete      topic {topic}" for topic in self.topics]
        lines += [f"  delete      group {group}" for group in self.groups]
        lines += [f"  delete      {path}" for path in self.checkpoints]
        lines += [f"  not there   {name}" for name in self.missing]
        return "\n".join(lines)

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to do."""
        return not (self.offsets or self.topics or self.groups or self.checkpoints)


def plan_reset(
    log: TopicLog,
    home: ApplicationHome,
    *,
    to: ResetTo | None = None,
    input_topics: Iterable[str] = (),
    expected_topics: Iterable[str] = (),
    internal_topics: Iterable[str] | None = None,
    existing_topics: Collection[str] | None = None,
) -> ResetPlan:
    """Return the steps of a reset. Changes nothing.

    Args:
        log: Where the topics are.
        home: The application, with its folders.
        to: Where to start over; the beginning if left out.
        input_topics: The topics to start over in. Others that the application has read keep their
            offsets. Left out: all that it has read, and ``expected_topics``.
        expected_topics: Topics that the program reads; those that do not exist are skipped.
        internal_topics: The topics to delete; left out: those that bear the application's name.
        existing_topics: The topics of the log, if they are known.

    Raises:
        UnknownTopicError: One of ``input_topics`` does not exist.
        GroupNotEmptyError: The application, or one that answers its queries, still runs.
    """
    application_id = home.application_id
    _check_stopped(log, application_id)
    existing = set(log.list_topics() if existing_topics is None else existing_topics)
    if internal_topics is None:
        internal_topics = _internal(log, application_id, sorted(existing))
    deleted = tuple(internal_topics)
    # Topics that it reads back have offsets too; those go with the topics.
    committed = {
        name: offset
        for name, offset in committed_of_existing(log, application_id, existing).items()
        if name.topic not in deleted
    }
    given, expected = set(input_topics), set(expected_topics)
    chosen = given or {name.topic for name in committed} | expected & existing
    partitions = [
        TopicPartition(topic, number)
        for topic in sorted(chosen.difference(deleted))
        for number in range(log.partition_count(topic))
    ]
    after = offsets_to(log, partitions, committed, to or ResetTo())
    after |= {name: offset for name, offset in committed.items() if name not in after}
    groups = set(log.list_groups())
    missing = [] if given else [f"topic {topic}" for topic in sorted(expected - existing)]
    checkpoints = home.discarded()
    if home.has_checkpoint():
        checkpoints.insert(0, home.checkpoint)
    else:
        missing.append(f"checkpoint {home.checkpoint}")
    return ResetPlan(
        home,
        tuple(OffsetChange(*name, committed.get(name), after[name]) for name in sorted(after)),
        deleted,
        tuple(sorted(groups & {markers_name(application_id), leader_name(application_id)})),
        tuple(map(str, checkpoints)),
        tuple(missing),
    )


def execute_reset(log: TopicLog, plan: ResetPlan) -> None:
    """Execute the steps of a plan. If it fails half-way, a new plan has the steps that are left.

    The checkpoint is first, in one step: an application without one does not start while it has
    offsets, but one with a checkpoint and no markers would write its last batch twice. The topic of
    markers is next: without it no copy of the checkpoint starts. Snapshots go before changelogs, so
    that instances find no record of a changelog that is gone. The offsets are last, because they
    let the application start again.

    Raises:
        BrokerError: The broker could not do a step, or the checkpoint cannot be deleted.
    """
    application_id = plan.home.application_id
    _check_stopped(log, application_id)
    plan.home.discard_checkpoint()
    # A process that still writes must lose leadership and transaction before it misses markers.
    leader = leader_name(application_id)
    log.delete_group(leader)
    _fence_writers(log, plan.home)
    markers = markers_name(application_id)
    existing = set(log.list_topics())
    snapshots = snapshots_name(application_id)
    for topic in sorted(plan.topics, key=lambda topic: (topic != markers, topic != snapshots)):
        if topic in existing:
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
        log.commit_offsets(application_id, offsets)
    plan.home.delete_discarded()


def forget_application(log: TopicLog, home: ApplicationHome) -> None:
    """Delete the state and all progress of an application, so that its next start is a first one.

    Raises `GroupNotEmptyError` if the application, or one that answers its queries, still runs.
    """
    plan = plan_reset(log, home)
    execute_reset(log, replace(plan, offsets=(), groups=(*plan.groups, home.application_id)))


def _fence_writers(log: TopicLog, home: ApplicationHome) -> None:
    """Fence every writer that may exist, even if the markers were deleted."""
    application_id = home.application_id
    # There are at most as many writers as markers have partitions.
    writers = 0
    with suppress(UnknownTopicError):
        writers = log.partition_count(markers_name(application_id))
    for checkpoint in home.discarded():
        with suppress(OSError, msgspec.MsgspecError):
            layout = msgspec.json.decode((checkpoint / LAYOUT_FILE).read_bytes(), type=_Layout)
            writers = max(writers, layout.shuffle_partitions)
    if writers:
        ids = [transactional_id(application_id, writer) for writer in range(writers)]
        log.fence_producers([*ids, dead_letters_transactional_id(application_id)])


class _Layout(msgspec.Struct):
    shuffle_partitions: int


def _check_stopped(log: TopicLog, application_id: str) -> None:
    """Check that no process is a member of an application's groups."""
    leader = leader_name(application_id)
    for group in (application_id, leader, queries_name(application_id)):
        if log.describe_group(group):
            process = leader_note(log, application_id).process if group == leader else ""
            raise GroupNotEmptyError(group, member=process)


def _internal(log: TopicLog, application_id: str, topics: Collection[str]) -> list[str]:
    """Return the internal topics of an application, and none of one with a longer name."""
    others = {
        name.removesuffix(ending)
        for name in (*topics, *log.list_groups())
        for ending in (own_name("") for own_name in _OWN_NAMES)
        if name.endswith(ending)
    }
    own = {name(application_id) for name in (markers_name, leader_name, snapshots_name)}
    longer = tuple(f"{name}-" for name in others if name.startswith(f"{application_id}-"))
    return [
        topic
        for topic in topics
        if topic in own
        or (
            topic.startswith(f"{application_id}-")
            and _INTERNAL.fullmatch(topic)
            and not topic.startswith(longer)
        )
    ]
