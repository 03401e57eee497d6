"""Consumer groups of the embedded log: who is in, and who reads what.

Kafka's eager protocol, without a coordinator: whoever looks moves the group on. A change of members
or partitions starts a new generation. Each member gives up what it has and joins the generation;
when all have, partitions are assigned. A member that neither joins nor beats in time is put out::

    generation 4, assigned 4       everyone reads
    generation 5, assigned 4       someone came: revoke, join
    generation 5, assigned 5       everyone reads something else
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

import msgspec

from headrace.brokers.embedded.assignment import assign_ranges, assign_sticky
from headrace.brokers.embedded.offsets import checked_group
from headrace.brokers.log import MemberDescription, TopicPartition
from headrace.errors import CommitFailedError, GroupNotEmptyError


class Member(msgspec.Struct):
    """One consumer."""

    client_id: str
    topics: list[str]
    strategy: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat: int = 0
    joined: int = 0
    """The generation it has joined."""
    assignment: list[TopicPartition] = msgspec.field(default_factory=list)


class Group(msgspec.Struct):
    """A group, as it is kept in the file."""

    generation: int = 0
    assigned: int = 0
    """The generation whose partitions are assigned."""
    rebalancing_since: int = 0
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    """The topics that members want, with the partitions they had when the generation began."""
    members: dict[str, Member] = msgspec.field(default_factory=dict)

    def join(self, id_: str, member: Member, now: int) -> None:
        """Take in a member, or take note of what it wants now."""
        self.members[id_] = member
        member.heartbeat = now
        self._start_generation(now)
        member.joined = self.generation

    def rejoin(self, id_: str) -> None:
        """Take note that a member has given up its partitions, and waits for others."""
        if member := self.members.get(id_):
            member.joined = self.generation

    def leave(self, id_: str, now: int) -> None:
        """Let a member go."""
        if self.members.pop(id_, None) is not None:
            self._start_generation(now)

    def advance(self, now: int, counts: Mapping[str, int]) -> None:
        """Do what is due: put out the silent, notice new partitions, assign when all have joined.

        Args:
            now: The time in milliseconds.
            counts: The partitions of all topics.
        """
        late = {id_ for id_, member in self.members.items() if self._is_late(member, now)}
        for id_ in late:
            del self.members[id_]
        wanted = {topic for member in self.members.values() for topic in member.topics}
        current = {topic: counts[topic] for topic in sorted(wanted) if topic in counts}
        if late or current != self.counts:
            self._start_generation(now)
            self.counts = current
        if self.assigned < self.generation and self._all_joined():
            self._assign()

    def _is_late(self, member: Member, now: int) -> bool:
        if now - member.heartbeat > member.session_timeout_ms:
            return True
        return (
            member.joined < self.generation
            and now - self.rebalancing_since > member.rebalance_timeout_ms
        )

    def _start_generation(self, now: int) -> None:
        # While members still join, nobody reads yet, and this generation can change its plan.
        if self.assigned == self.generation:
            self.generation += 1
            self.rebalancing_since = now

    def _all_joined(self) -> bool:
        return all(member.joined == self.generation for member in self.members.values())

    def _assign(self) -> None:
        topics = {id_: member.topics for id_, member in self.members.items()}
        if all(member.strategy == "sticky" for member in self.members.values()):
            before = {id_: member.assignment for id_, member in self.members.items()}
            assigned = assign_sticky(self.counts, topics, before)
        else:
            assigned = assign_ranges(self.counts, topics)
        for id_, member in self.members.items():
            member.assignment = assigned[id_]
        self.assigned = self.generation


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Group).decode


def load_group(file: sqlite3.Connection, group: str) -> Group:
    """Return a group; one that does not exist is empty."""
    row = file.execute("SELECT state FROM consumer_group WHERE id = ?", (group,)).fetchone()
    if row is None:
        return Group()
    (state,) = msgspec.convert(row, tuple[str])
    return _decode(state)


def save_group(file: sqlite3.Connection, group: str, state: Group) -> None:
    """Keep a group."""
    file.execute(
        "INSERT OR REPLACE INTO consumer_group VALUES (?, ?)",
        (checked_group(group), _encode(state).decode()),
    )


def topic_counts(file: sqlite3.Connection) -> dict[str, int]:
    """Return the partitions of all topics."""
    rows = file.execute(
        "SELECT t.name, count(*) FROM topic t JOIN partition p ON p.topic = t.id GROUP BY t.id"
    ).fetchall()
    return dict(msgspec.convert(rows, list[tuple[str, int]]))


def check_member(file: sqlite3.Connection, group: str, id_: str, generation: int) -> None:
    """Refuse a commit of a consumer that is no member any more.

    A consumer that never joined has no id, and may commit while nobody else is there.
    """
    members = load_group(file, group).members
    member = members.get(id_)
    if (member is None or member.joined != generation) if id_ else bool(members):
        raise CommitFailedError(group)


def check_empty(file: sqlite3.Connection, group: str, now: int) -> None:
    """Refuse to go on while a group has members who are alive."""
    if describe_group(file, group, now):
        raise GroupNotEmptyError(group)


def describe_group(file: sqlite3.Connection, group: str, now: int) -> list[MemberDescription]:
    """Return the members who are alive."""
    return [
        MemberDescription(id_, member.client_id, tuple(member.assignment))
        for id_, member in sorted(load_group(file, group).members.items())
        if now - member.heartbeat <= member.session_timeout_ms
    ]


def list_groups(file: sqlite3.Connection) -> list[str]:
    """Return the names of all groups, sorted."""
    rows = file.execute(
        "SELECT id FROM consumer_group UNION SELECT group_id FROM committed"
    ).fetchall()
    return sorted(name for (name,) in msgspec.convert(rows, list[tuple[str]]))


def delete_group(file: sqlite3.Connection, group: str) -> None:
    """Forget a group and its offsets."""
    file.execute("DELETE FROM consumer_group WHERE id = ?", (group,))
    file.execute("DELETE FROM committed WHERE group_id = ?", (group,))
