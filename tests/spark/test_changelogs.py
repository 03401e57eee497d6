"""Changelog topics on real Spark: the entries of stores, written once, with the output."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace import (
    Materialized,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
    TopologyError,
)
from headrace.runtime.snapshots import newest_record, read_snapshots
from headrace.topology.naming import snapshots_name
from tests.runtime.changelogs import changes
from tests.spark.hosts import Given, OnSpark, host_on

SPARK_HOSTS = ("embedded", "kafka")

TOPICS = ("logged-words", "logged-counts", "logged-places", "logged-histories")


def counting() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("logged-words", key=str, value=str)
    grouped = words.group_by_key()
    grouped.count(materialized="counts").to_stream().to("logged-counts")
    grouped.windowed_by(TimeWindows(100, grace=0)).count(materialized="windows")
    grouped.windowed_by(SessionWindows(10, grace=100)).count(materialized="sessions")
    builder.table("logged-places", key=str, value=str, materialized="places")
    versioned = Materialized("versions", history_retention="1h")
    builder.table("logged-histories", key=str, value=str, materialized=versioned)
    return builder.build()


def spark_host(where: str, request: pytest.FixtureRequest, folder: Path) -> OnSpark:
    host = host_on(where, request, folder)
    assert isinstance(host, OnSpark)
    request.addfinalizer(host.close)
    return host


def number(value: int, size: int = 8) -> bytes:
    return value.to_bytes(size, "big")


@pytest.mark.parametrize("where", SPARK_HOSTS)
def test_changelogs_equal_stores_also_after_a_restart(
    where: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    host = spark_host(where, request, tmp_path)
    host.create_topics(*TOPICS)

    def changelog(store: str) -> str:
        return f"{host.config.application_id}-{store}-changelog"

    def read(store: str, count: int) -> list[tuple[bytes | None, bytes | None, int]]:
        seen = host.read(changelog(store), count)
        return [(each.key, each.value, each.timestamp) for each in seen]

    host.start(counting())
    host.pipe(
        Given("logged-words", b"a", b"x", 5),
        Given("logged-words", b"a", b"x", 7),
        Given("logged-words", b"b", b"x", 9),
        Given("logged-places", b"p", b"here", 5),
        Given("logged-places", b"q", b"there", 6),
        Given("logged-histories", b"v", b"one", 20),
        Given("logged-histories", b"v", b"two", 50),
    )

    start = number(0) + number(0, 4)
    assert read("counts", 2) == [(b"a", number(2), 7), (b"b", number(1), 9)]
    assert read("windows", 2) == [(b"a" + start, number(2), 7), (b"b" + start, number(1), 9)]
    assert read("sessions", 2) == [
        (b"a" + number(7) + number(5), number(2), 7),
        (b"b" + number(9) + number(9), number(1), 9),
    ]
    assert read("places", 2) == [(b"p", b"here", 5), (b"q", b"there", 6)]
    assert read("versions", 2) == [(b"v", b"one", 20), (b"v", b"two", 50)]

    host.close()
    host.start(counting())
    host.pipe(
        Given("logged-words", b"b", b"x", 12),
        Given("logged-places", b"p", None, 8),
        Given("logged-histories", b"v", b"late", 30),
    )

    assert read("counts", 1) == [(b"b", number(2), 12)]
    assert read("windows", 1) == [(b"b" + start, number(2), 12)]
    assert read("sessions", 2) == [
        (b"b" + number(9) + number(9), None, 12),
        (b"b" + number(12) + number(9), number(2), 12),
    ]
    assert read("places", 1) == [(b"p", None, 8)]
    assert read("versions", 2) == [(b"v", b"late", 30), (b"v", b"two", 50)]
    made = [host.log.describe_topic(changelog(store)) for store in ("counts", "windows")]
    assert [each.partitions for each in made] == [2, 2]
    assert [each.settings["cleanup.policy"] for each in made] == ["compact", "compact,delete"]

    host.close()
    application_id = host.config.require_application_id()
    newest = newest_record(read_snapshots(host.log, snapshots_name(application_id)))
    assert newest is not None
    assert sum(map(sum, newest.position.values())) == 10
    for topic, ends in newest.ends.items():
        for partition, end in enumerate(ends):
            records = changes(host.log, topic, partition)
            assert end == (records[-1].offset + 1 if records else 0)


@pytest.mark.parametrize("where", SPARK_HOSTS)
def test_a_changelog_with_other_partitions_is_refused(
    where: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    host = spark_host(where, request, tmp_path)
    topic = f"{host.config.application_id}-wrong-changelog"
    builder = StreamsBuilder()
    source = f"{host.config.application_id}-in"
    builder.table(source, key=str, value=str, materialized="wrong")
    host.create_topics(source)
    host.create_topics(topic, partitions=5)

    with pytest.raises(TopologyError, match=f"{topic!r} has 5 partitions, but .* in 2 tasks"):
        host.start(builder.build())
