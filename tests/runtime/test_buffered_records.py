"""Buffered records: a task that waits for a quiet input keeps its state small."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Unpack

import pytest

from headrace import OffsetOutOfRangeError, StreamsBuilder, Topology
from headrace.brokers.embedded import EmbeddedLog
from headrace.brokers.log import OffsetRange, PartitionColumns, TopicPartition
from headrace.config import Settings
from headrace.runtime.exchange.packing import TaskReport
from headrace.runtime.run_files import BatchResult
from tests.runtime.in_process import InProcessQuery

IDLE_MS = 60_000
DAY_MS = 86_400_000
START = 1_000_000_000
EVENTS, QUIET, JOINED = (TopicPartition(topic, 0) for topic in ("events", "quiet", "joined"))


def joining(*, repartitioned: bool) -> Topology:
    """Return a program that joins events with a table that has no records for a long time."""
    builder = StreamsBuilder()
    events = builder.stream("events", key=str, value=str)
    if repartitioned:
        events = events.repartition(name="again")
    quiet = builder.table("quiet", key=str, value=str)
    events.left_join(quiet, lambda left, right: f"{left}{right}", value=str).to("joined")
    return builder.build()


class Joining:
    """An application that waits for a quiet input.

    Args:
        folder: Where it keeps topics and checkpoint.
        topology: The program.
        events: How many events there are, one a millisecond.
        settings: Its other settings.
    """

    def __init__(
        self,
        folder: Path,
        topology: Topology,
        *,
        events: int,
        **settings: Unpack[Settings],
    ) -> None:
        self.log = EmbeddedLog(folder / "topics.db")
        for topic in ("events", "quiet", "joined"):
            self.log.create_topic(topic)
        self.log.append([("events", 0, 1 + n, b"k", b"%d-x" % n, None) for n in range(events)])
        settings.setdefault("max_task_idle", IDLE_MS)
        self.query = InProcessQuery(topology, folder, **settings)
        self.query.set_clock(START)

    def run_for(self, ms: int) -> None:
        """Run batches until nothing is left to do, at a later time."""
        self.query.set_clock(START + ms)
        self.query.run()

    def state_sizes(self) -> list[int]:
        """Return the size of every blob."""
        return [len(b) for blobs in self.query._blobs.values() for b in blobs.blobs.values()]

    def read(self) -> int:
        """Return up to where events are read."""
        return self.query.position.offsets["events"][0]

    def reports(self) -> list[TaskReport]:
        return self.query.run_files.read(BatchResult).reports

    def joined(self) -> list[str]:
        """Return the number of each joined event, and its entry of the table."""
        end = self.log.end_offsets([JOINED])[JOINED]
        values = [each.value.decode() for some in self.log.read(JOINED, 0, end) for each in some]
        return [f"{value.partition('-')[0]}{value.rpartition('x')[2]}" for value in values]


@pytest.mark.parametrize("repartitioned", [False, True])
def test_a_task_that_waits_for_a_quiet_input_keeps_its_state_small(
    tmp_path: Path, *, repartitioned: bool
) -> None:
    waiting = Joining(tmp_path, joining(repartitioned=repartitioned), events=50_000)

    waiting.run_for(0)
    waiting.run_for(1_000)

    assert waiting.joined() == []
    assert 1_000 <= waiting.read() < 50_000
    assert sum(each.held for each in waiting.reports()) == waiting.read()
    sizes = waiting.state_sizes()
    assert max(sizes) < 1_100_000
    assert repartitioned or sum(sizes) < 10_000

    waiting.query.restart_planner()
    waiting.run_for(IDLE_MS + 1_000)

    assert waiting.joined() == [f"{number}None" for number in range(50_000)]
    assert sum(waiting.state_sizes()) < 10_000
    assert waiting.log.committed_offsets("application")[EVENTS].offset == 50_000


@pytest.mark.parametrize("repartitioned", [False, True])
def test_a_record_of_the_quiet_input_releases_the_records_before_it(
    tmp_path: Path, *, repartitioned: bool
) -> None:
    waiting = Joining(tmp_path, joining(repartitioned=repartitioned), events=30_000)
    waiting.run_for(0)

    waiting.log.append([("quiet", 0, 501, b"k", b"late", None)])
    waiting.run_for(1_000)
    first = waiting.joined()
    waiting.run_for(2 * IDLE_MS)

    assert first == [f"{number}None" for number in range(501)]
    assert waiting.joined()[501:] == [f"{number}late" for number in range(501, 30_000)]


def test_nothing_is_read_again_while_a_task_only_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = Joining(tmp_path, joining(repartitioned=False), events=30_000)
    waiting.run_for(0)
    ranges: list[object] = []

    def read_ranges(asked: list[OffsetRange]) -> list[PartitionColumns]:
        ranges.extend(asked)
        return []

    monkeypatch.setattr(waiting.query.log, "read_ranges", read_ranges)

    waiting.query.replay(waiting.query.position, waiting.query.position)

    assert [each.held for each in waiting.reports() if each.held] == [waiting.read()]
    assert ranges == []


def test_a_backlog_that_is_read_leaves_its_reader_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = StreamsBuilder()
    events = builder.stream(["events", "more"], key=str, value=str)
    quiet = builder.table("quiet", key=str, value=str)
    events.left_join(quiet, lambda left, right: f"{left}{right}", value=str).to("joined")
    EmbeddedLog(tmp_path / "topics.db").create_topic("more")
    waiting = Joining(tmp_path, builder.build(), events=10)
    waiting.log.append([("more", 0, 100, b"k", b"10-x", None)])
    waiting.run_for(0)
    read_ranges, opened, counts = EmbeddedLog.read_ranges, set[object](), list[int]()

    def counted(log: EmbeddedLog, ranges: list[OffsetRange]) -> Iterator[PartitionColumns]:
        opened.add(reader := object())
        counts.append(len(opened))
        try:
            yield from read_ranges(log, ranges)
        finally:
            opened.remove(reader)

    monkeypatch.setattr(EmbeddedLog, "read_ranges", counted)

    waiting.run_for(2 * IDLE_MS)

    assert waiting.joined() == [f"{number}None" for number in range(10)]
    assert max(counts) == 1


@pytest.mark.parametrize("may_lose", [False, True])
def test_buffered_records_that_are_deleted_are_lost_like_others(
    tmp_path: Path, *, may_lose: bool
) -> None:
    waiting = Joining(
        tmp_path, joining(repartitioned=False), events=900, fail_on_data_loss=not may_lose
    )
    waiting.run_for(0)
    waiting.log.delete_records({EVENTS: 700})

    if not may_lose:
        with pytest.raises(OffsetOutOfRangeError):
            waiting.run_for(2 * IDLE_MS)
        return
    waiting.run_for(2 * IDLE_MS)

    assert waiting.joined() == [f"{number}None" for number in range(700, 900)]
    assert waiting.query.dropped() == {"0_0": {"events": {"lost": 700}}}


def test_an_input_that_ends_without_a_record_releases_the_records_that_waited_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = Joining(tmp_path, joining(repartitioned=False), events=10, max_task_idle=0)
    waiting.log.append([("quiet", 0, 1, b"q", b"v", None) for _ in range(2)])
    read_ranges = EmbeddedLog.read_ranges
    admission = waiting.query.planner._admission
    shares = admission.shares

    def without_the_last(log: EmbeddedLog, ranges: list[OffsetRange]) -> Iterator[PartitionColumns]:
        """Read the last offset of the quiet input as the end of a transaction."""
        yield from read_ranges(log, [each for each in ranges if each[:2] != (QUIET, 1)])

    def one_quiet_offset(*args: Any) -> dict[TopicPartition, int]:
        return {
            name: min(share, 1) if name == QUIET else share for name, share in shares(*args).items()
        }

    monkeypatch.setattr(EmbeddedLog, "read_ranges", without_the_last)
    monkeypatch.setattr(admission, "shares", one_quiet_offset)

    waiting.run_for(0)

    assert waiting.query.position.offsets["quiet"] == [2]
    assert waiting.joined() == [f"{number}None" for number in range(10)]


def test_a_clock_that_was_ahead_does_not_make_a_task_wait_longer(tmp_path: Path) -> None:
    waiting = Joining(tmp_path, joining(repartitioned=False), events=10)
    waiting.run_for(10 * DAY_MS)
    waiting.query.restart_planner()

    waiting.run_for(0)
    assert waiting.joined() == []
    waiting.run_for(IDLE_MS)

    assert waiting.joined() == [f"{number}None" for number in range(10)]


def twice(builder: StreamsBuilder) -> None:
    """Join two repartitions of one topic: the second one gets records late."""
    source = builder.stream("events", key=str, value=str)
    left = source.filter(lambda _, v: int(v.partition("-")[0]) < 250).repartition(name="left")
    right = source.filter(lambda _, v: int(v.partition("-")[0]) >= 250).repartition(name="right")
    table = right.to_table(materialized="right")
    left.left_join(table, lambda a, b: f"{a}{b}", value=str).to("joined")


def test_two_repartitions_of_one_topic_never_starve_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.runtime.planning.admission.FIRST_RECORDS", 20)
    monkeypatch.setattr("headrace.runtime.planning.admission.MIN_RECORDS", 20)
    builder = StreamsBuilder()
    twice(builder)
    waiting = Joining(tmp_path, builder.build(), events=300, buffered_records_per_partition=10)

    waiting.run_for(0)
    waiting.run_for(2 * IDLE_MS)

    assert waiting.read() == 300
    assert waiting.joined() == [f"{number}None" for number in range(250)]
