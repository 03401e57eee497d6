"""The offsets at which a group starts over, and those that it had before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from headrace.brokers import OffsetAndMetadata, TopicLog, TopicPartition
from headrace.clients.lag import committed_of_existing
from headrace.errors import GroupNotEmptyError, StreamsError
from headrace.runtime.leadership import find_running_leader
from headrace.topology.naming import markers_name


@dataclass(frozen=True)
class ResetTo:
    """The point at which an application, or a group, starts over in its input.

    ``offset`` and ``shift`` stay within the partition; ``time`` is the first record at or after a
    timestamp; ``current`` is where it was.
    """

    kind: Literal["earliest", "latest", "current", "offset", "time", "shift"] = "earliest"
    value: int = 0
    """The offset, the timestamp in milliseconds, or by how many offsets to shift."""


class OffsetChange(NamedTuple):
    """The offset of an application or a group in one partition, before and after a reset."""

    topic: str
    partition: int
    before: int | None
    after: int


def offsets_to(
    log: TopicLog,
    partitions: list[TopicPartition],
    known: Mapping[TopicPartition, int],
    to: ResetTo,
) -> dict[TopicPartition, int]:
    """Return the offsets to start over at, within each partition.

    Args:
        log: Where the partitions are.
        partitions: Which of them.
        known: The committed offsets.
        to: Where to start over.
    """
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


def plan_group_reset(
    log: TopicLog, group: str, to: ResetTo, partitions: Iterable[TopicPartition] | None = None
) -> list[OffsetChange]:
    """Return the offsets of a group before and after a reset. Changes nothing.

    Args:
        log: Where the group is.
        group: Its name.
        to: Where it starts over.
        partitions: Which partitions; left out: those with a committed offset.

    Raises:
        GroupNotEmptyError: The group has members.
        StreamsError: The group belongs to an application.
    """
    if log.describe_group(group):
        raise GroupNotEmptyError(group)
    existing = log.list_topics()
    if markers_name(group) in existing:
        msg = (
            f"Group {group!r} is that of an application, whose state must be reset with its "
            "offsets."
        )
        remedy = f"Use `headrace reset {group}`."
        if leader := find_running_leader(log, group):
            remedy = f"{leader.process} runs it. Stop that process first."
        raise StreamsError(msg, remedy)
    before = committed_of_existing(log, group, existing)
    chosen = sorted(before if partitions is None else {*partitions})
    after = offsets_to(log, chosen, before, to)
    return [OffsetChange(*name, before.get(name), after[name]) for name in chosen]


def execute_group_reset(log: TopicLog, group: str, changes: Iterable[OffsetChange]) -> None:
    """Commit the offsets of a plan.

    Raises `GroupNotEmptyError` if the group has members.
    """
    offsets = {
        TopicPartition(change.topic, change.partition): OffsetAndMetadata(change.after)
        for change in changes
    }
    if offsets:
        log.commit_offsets(group, offsets)
