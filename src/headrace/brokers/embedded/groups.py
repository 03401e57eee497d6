"""Consumer groups of the embedded log: their members and the partitions of each.

Kafka's eager protocol without a coordinator: each member that reads the state advances it. A change
of members or partitions starts a new generation. Each member releases its partitions and joins the
generation. When all have joined, partitions are assigned. A member whose heartbeat or join is late
is removed::

    generation 4, assigned 4       all members read
    generation 5, assigned 4       a member has joined: the others revoke and join
    generation 5, assigned 5       all members read their new partitions
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
    """The subscribed topics, with their partition counts when the generation began."""
    members: dict[str, Member] = msgspec.field(default_factory=dict)

    def join(self, id_: str, member: Member, now: int) -> None:
        """Add a member, or replace its subscription."""
        self.members[id_] = member
        member.heartbeat = now
        self._start_generation(now)
        member.joined = self.generation

    def rejoin(self, id_: str) -> None:
        """Record that a member has released its partitions and waits for others."""
        if member := self.members.get(id_):
            member.joined = self.generation

    def leave(self, id_: str, now: int) -> None:
        if self.members.pop(id_, None) is not None:
            self._start_generation(now)

    def advance(self, now: int, counts: Mapping[str, int]) -> None:
        """Remove late members, notice new partitions, and assign when all have joined."""
        late = {id_ for id_, member in self.members.items() if self._is_late(member, now)}
        for id_ in late:
            del self.members[id_]
        topics = {topic for member in self.members.values() for topic in member.topics}
        current = {topic: counts[topic] for topic in sorted(topics) if topic in counts}
        if late or current != self.counts:
            self._start_generation(now)
            self.counts = current
        if self.assigned < self.generation and self._all_joined():
            self._assign()

    def next_expiry(self) -> int:
        """Return when the first member is late, unless it sends a heartbeat or joins before."""
        return min(map(self._expiry, self.members.values()))

    def _is_late(self, member: Member, now: int) -> bool:
        return now > self._expiry(member)

    def _expiry(self, member: Member) -> int:
        expiry = member.heartbeat + member.session_timeout_ms
        if member.joined < self.generation:
            return min(expiry, self.rebalancing_since + member.rebalance_timeout_ms)
        return expiry

    def _start_generation(self, now: int) -> None:
        # While members join, no member reads yet, and this generation can still change.
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
    """Store a group."""
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
    """Refuse a commit of a consumer that is no longer a member.

    A consumer that never joined has no id, and may commit while the group is empty.
    """
    members = load_group(file, group).members
    member = members.get(id_)
    if (member is None or member.joined != generation) if id_ else bool(members):
        raise CommitFailedError(group)


def check_empty(file: sqlite3.Connection, group: str, now: int) -> None:
    """Refuse a change while a group has live members."""
    if describe_group(file, group, now):
        raise GroupNotEmptyError(group)


def describe_group(file: sqlite3.Connection, group: str, now: int) -> list[MemberDescription]:
    """Return the live members."""
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
    """Delete a group and its offsets."""
    file.execute("DELETE FROM consumer_group WHERE id = ?", (group,))
    file.execute("DELETE FROM committed WHERE group_id = ?", (group,))
