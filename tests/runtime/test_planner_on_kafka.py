"""Whole queries on Kafka: the planner waits for metadata that a broker updates late."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from headrace import StreamsBuilder, StreamsConfig
from headrace.brokers import open_log
from headrace.brokers.sessions import Broker
from tests.kafka_broker import RunningBroker
from tests.runtime.changelogs import changes
from tests.runtime.in_process import InProcessQuery
from tests.unique_names import unique
from tests.waiting import await_that


@pytest.fixture
def log(kafka: RunningBroker) -> Iterator[Broker]:
    log = open_log(StreamsConfig(application_id="any", bootstrap_servers=kafka.address))
    yield log
    log.close()


def test_records_are_read_through_every_topic_that_the_query_reads_back(
    tmp_path: Path, kafka: RunningBroker, log: Broker
) -> None:
    name = unique("read-back")
    topics = [f"{name}.{number}" for number in range(8)]
    builder = StreamsBuilder()
    for source, target in pairwise(topics):
        builder.stream(source, key=str, value=str).to(target)
    for topic in topics:
        log.create_topic(topic)
    log.append([(topics[0], 0, 1, b"k", b"v", None)])
    query = InProcessQuery(
        builder.build(), tmp_path, application_id=name, bootstrap_servers=kafka.address
    )
    query.planner.stop_at_current_ends()

    query.run()

    assert len(changes(log, topics[-1], 0)) == 1


def test_the_changelog_of_a_pattern_grows_with_the_first_topic_that_it_matches(
    tmp_path: Path, kafka: RunningBroker, log: Broker
) -> None:
    name = unique("first-topic")
    builder = StreamsBuilder()
    stream = builder.stream(re.compile(re.escape(name) + r"\.in"), key=str, value=str)
    stream.group_by_key().count(materialized="counts").to_stream().to(f"{name}.out")
    log.create_topic(f"{name}.out")
    query = InProcessQuery(
        builder.build(), tmp_path, application_id=name, bootstrap_servers=kafka.address
    )
    query.run()

    log.create_topic(f"{name}.in", partitions=2)
    log.append([(f"{name}.in", 1, 1, b"k", b"v", None)])
    planner = query.planner
    assert planner is not None

    def is_counted() -> bool:
        # A broker may list a topic some time after it has created it.
        planner._bounds._refreshed_at = float("-inf")
        query.run()
        is_seen = f"{name}.in" in planner._topics.counts
        return is_seen and len(changes(log, f"{name}-counts-changelog", 1)) == 1

    await_that(is_counted, "the count", found=lambda: planner._topics.counts)


def test_a_record_of_the_far_future_reaches_the_changelog(
    tmp_path: Path, kafka: RunningBroker, log: Broker
) -> None:
    name = unique("far-future")
    builder = StreamsBuilder()
    lines = builder.stream(
        name, key=str, value=str, timestamp_extractor=lambda _record, _time: 253_402_300_799_000
    )
    lines.group_by_key().count(materialized="counts")
    log.create_topic(name)
    log.append([(name, 0, 1, b"k", b"v", None)])
    query = InProcessQuery(
        builder.build(), tmp_path, application_id=name, bootstrap_servers=kafka.address
    )

    query.run()

    [record] = changes(log, f"{name}-counts-changelog", 0)
    assert record.timestamp == 253_402_300_799_000
