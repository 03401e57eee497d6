"""Groups of the embedded log: partitions are shared out fairly, and never held by two."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.brokers import TopicPartition
from headrace.brokers.embedded.assignment import assign_ranges, assign_sticky
from headrace.brokers.embedded.groups import Group, Member
from tests.effort import examples

TOPICS = ("x", "y", "z")
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 7))
members = st.dictionaries(
    st.sampled_from("abcde"), st.lists(st.sampled_from(TOPICS), unique=True), max_size=5
)
same_topics = st.lists(st.sampled_from("abcdefg"), unique=True, min_size=1).map(
    lambda names: {name: list(TOPICS) for name in names}
)


def all_of(counts: dict[str, int], topics: dict[str, list[str]]) -> list[TopicPartition]:
    wanted = {topic for names in topics.values() for topic in names}
    return [TopicPartition(t, p) for t in sorted(counts) if t in wanted for p in range(counts[t])]


@given(counts=counts, topics=members)
def test_every_partition_has_one_subscribed_reader(
    counts: dict[str, int], topics: dict[str, list[str]]
) -> None:
    for assigned in (assign_ranges(counts, topics), assign_sticky(counts, topics, {})):
        given_out = [partition for owned in assigned.values() for partition in owned]

        assert sorted(given_out) == all_of(counts, topics)
        assert assigned.keys() == topics.keys()
        assert all(p.topic in topics[name] for name, owned in assigned.items() for p in owned)


@given(counts=counts, topics=same_topics)
def test_partitions_are_spread_evenly(counts: dict[str, int], topics: dict[str, list[str]]) -> None:
    ranges = assign_ranges(counts, topics)
    sticky = assign_sticky(counts, topics, {})

    for topic in counts:
        sizes = [sum(p.topic == topic for p in owned) for owned in ranges.values()]
        assert max(sizes) - min(sizes) <= 1
    sizes = [len(owned) for owned in sticky.values()]
    assert max(sizes) - min(sizes) <= 1


@given(counts=counts, topics=same_topics)
def test_sticky_moves_nothing_without_a_reason(
    counts: dict[str, int], topics: dict[str, list[str]]
) -> None:
    before = assign_sticky(counts, topics, {})

    assert assign_sticky(counts, topics, before) == before
    gone = min(topics)
    rest = {name: wanted for name, wanted in topics.items() if name != gone}
    after = assign_sticky(counts, rest, before)
    assert all(set(before[name]) <= set(after[name]) for name in rest)


class GroupMachine(RuleBasedStateMachine):
    """Members come, go, fall silent and dawdle; time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.group = Group()
        self.now = 1_000
        self.counts = {"x": 4}
        self.reading: dict[str, tuple[int, list[TopicPartition]]] = {}
        """The assignment of each member as it knows it, and its generation."""

    def advance(self) -> None:
        self.group.advance(self.now, self.counts)

    @rule(name=st.sampled_from("abc"))
    def join(self, name: str) -> None:
        self.reading.pop(name, None)
        self.group.join(name, Member(name, ["x"], "range", 100, 300), self.now)
        self.advance()

    @rule(name=st.sampled_from("abc"))
    def follow(self, name: str) -> None:
        """Do what a member does when it polls."""
        if (member := self.group.members.get(name)) is None:
            self.reading.pop(name, None)
            return
        member.heartbeat = self.now
        if member.joined < self.group.generation:
            self.reading.pop(name, None)
            self.group.rejoin(name)
        elif self.group.assigned == self.group.generation:
            self.reading[name] = (self.group.generation, member.assignment)
        self.advance()

    @rule(name=st.sampled_from("abc"))
    def beat(self, name: str) -> None:
        if (member := self.group.members.get(name)) is not None:
            member.heartbeat = self.now

    @rule(name=st.sampled_from("abc"))
    def leave(self, name: str) -> None:
        self.reading.pop(name, None)
        self.group.leave(name, self.now)
        self.advance()

    @rule(passed=st.sampled_from([10, 90, 110, 400]))
    def wait(self, passed: int) -> None:
        self.now += passed
        self.advance()

    @rule(partitions=st.integers(1, 6))
    def grow(self, partitions: int) -> None:
        self.counts["x"] = max(self.counts["x"], partitions)
        self.advance()

    @invariant()
    def no_partition_has_two_readers_who_may_commit(self) -> None:
        owned = [
            partition
            for name, (_, partitions) in self.reading.items()
            if name in self.group.members
            for partition in partitions
        ]
        assert len(owned) == len(set(owned))

    @invariant()
    def an_assigned_group_reads_everything(self) -> None:
        if self.group.members and self.group.assigned == self.group.generation:
            owned = sorted(p for m in self.group.members.values() for p in m.assignment)
            assert owned == [TopicPartition("x", number) for number in range(self.counts["x"])]

    @precondition(lambda self: self.group.members)
    @rule()
    def settle(self) -> None:
        """Whatever happened before, a few polls of everyone bring the group to rest."""
        for _ in range(3):
            for name in list(self.group.members):
                self.follow(name)
        assert self.group.assigned == self.group.generation


TestGroup = GroupMachine.TestCase
TestGroup.settings = settings(max_examples=examples(100), stateful_step_count=30)
