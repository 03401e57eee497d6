"""Records of window changelogs go when everything below them has expired."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import Materialized, StreamsBuilder, StreamsConfig, TimeWindows
from headrace.brokers.embedded import EmbeddedLog
from headrace.brokers.log import TopicPartition
from headrace.runtime.plan import plan_topology
from headrace.runtime.planning.changelog_purge import ChangelogPurge
from headrace.runtime.snapshots import SnapshotRecord
from tests.unit.queries.snapshot_records import make_record

HOUR = 3_600_000
WINDOWS = TopicPartition("app-windows-changelog", 0)
COUNTS = TopicPartition("app-counts-changelog", 0)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    opened = EmbeddedLog(tmp_path / "topics.db")
    for name in (WINDOWS, COUNTS):
        opened.create_topic(name.topic)
        opened.append([(*name, 0, b"%d" % number, b"v", None) for number in range(9)])
    yield opened
    opened.close()


@pytest.fixture
def purge(log: EmbeddedLog) -> ChangelogPurge:
    builder = StreamsBuilder()
    lines = builder.stream("lines", key=str, value=str).group_by_key()
    lines.count(materialized=Materialized("counts"))
    hours = TimeWindows("1h")
    lines.windowed_by(hours).count(materialized=Materialized("windows", retention="2h"))
    plan = plan_topology(builder.build(), StreamsConfig(application_id="app"))
    return ChangelogPurge(plan, log, 0.0)


def record(end: int, time: int) -> SnapshotRecord:
    """Return a snapshot with an end of both changelogs, and the time of the window store."""
    ends = {WINDOWS.topic: [end], COUNTS.topic: [end]}
    return make_record(end, ends=ends, store_times={WINDOWS.topic: [{"time": time}]})


def test_records_go_once_their_segment_has_expired(log: EmbeddedLog, purge: ChangelogPurge) -> None:
    purge.follow(record(3, 1 * HOUR), 1.0)
    purge.follow(record(5, 2 * HOUR), 2.0)
    # The retention is 2 h and a segment has 1 h: entries of hour 1 are seen up to hour 4.
    purge.follow(record(7, 4 * HOUR - 1), 40.0)
    assert log.beginning_offsets([WINDOWS]) == {WINDOWS: 0}

    purge.follow(record(8, 4 * HOUR), 80.0)
    assert log.beginning_offsets([WINDOWS, COUNTS]) == {WINDOWS: 3, COUNTS: 0}
    purge.follow(record(9, 99 * HOUR), 120.0)
    assert log.beginning_offsets([WINDOWS]) == {WINDOWS: 8}


def test_records_go_at_most_every_30_seconds(log: EmbeddedLog, purge: ChangelogPurge) -> None:
    purge.follow(record(3, 1 * HOUR), 1.0)

    purge.follow(record(9, 99 * HOUR), 29.0)

    assert log.beginning_offsets([WINDOWS]) == {WINDOWS: 0}


def test_a_changelog_that_refuses_stops_nothing(log: EmbeddedLog, purge: ChangelogPurge) -> None:
    purge.follow(record(3, 1 * HOUR), 1.0)
    log.delete_topic(WINDOWS.topic)

    purge.follow(record(9, 99 * HOUR), 40.0)
