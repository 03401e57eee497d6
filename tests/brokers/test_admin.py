"""AdminClient, on the embedded log and on Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace import GroupNotEmptyError, StreamsError, TopicExistsError, UnknownTopicError
from headrace.brokers.sessions import Broker
from headrace.clients import (
    AdminClient,
    OffsetAndMetadata,
    OffsetChange,
    PartitionLag,
    ResetTo,
    TopicPartition,
)
from headrace.records import ProducerRecord
from headrace.topology.naming import markers_name
from tests.brokers.consuming import Named, Opened, Settings
from tests.waiting import await_that


@pytest.fixture
def admin(broker_settings: Settings) -> Iterator[AdminClient]:
    with AdminClient(**broker_settings) as client:
        yield client


def filled(log: Broker, topic: str) -> list[TopicPartition]:
    """Five records in each of the topic's partitions, at 10, 20, 30, 40 and 50 ms."""
    names = [TopicPartition(topic, number) for number in range(log.partition_count(topic))]
    log.append(
        ProducerRecord(*name, time, None, b"v") for name in names for time in range(10, 60, 10)
    )
    return names


def test_a_topic_is_created_once_altered_and_deleted(admin: AdminClient, named: Named) -> None:
    topic = named("orders")

    first = admin.create_topic(topic, replication_factor=1, settings={"retention.ms": "60000"})
    again = admin.create_topic(topic, partitions=3, if_not_exists=True)
    with pytest.raises(TopicExistsError):
        admin.create_topic(topic)
    before = admin.describe_topic(topic)
    admin.alter_topic(topic, partitions=2, settings={"cleanup.policy": "compact"})
    admin.alter_topic(topic, settings={"retention.ms": None})
    after = admin.describe_topic(topic)
    listed = topic in admin.list_topics()
    admin.delete_topic(topic)

    assert (first, again, listed) == (True, False, True)
    assert (before.partitions, dict(before.settings)) == (1, {"retention.ms": "60000"})
    assert (after.partitions, dict(after.settings)) == (2, {"cleanup.policy": "compact"})
    assert topic not in admin.list_topics(internal=True)
    with pytest.raises(UnknownTopicError):
        admin.alter_topic(topic, settings={"retention.ms": "1"})


def test_a_setting_that_no_topic_has_is_not_altered(admin: AdminClient, topic: str) -> None:
    with pytest.raises(StreamsError, match="retentin"):
        admin.alter_topic(topic, settings={"retentin.ms": "1"})

    assert admin.describe_topic(topic).settings == {}


def test_offsets_of_partitions_are_listed_and_records_deleted(
    admin: AdminClient, log: Broker, topic: str
) -> None:
    first, second = filled(log, topic)

    admin.delete_records({second: 3})

    assert admin.beginning_offsets([first, second]) == {first: 0, second: 3}
    assert admin.end_offsets([first, second]) == {first: 5, second: 5}
    found = admin.offsets_for_times({first: 25})[first]
    assert found is not None
    assert (found.offset, found.timestamp) == (2, 30)


def test_offsets_of_a_group_are_altered_reset_and_deleted(
    admin: AdminClient, log: Broker, topic: str, named: Named
) -> None:
    group = named("readers")
    first, second = filled(log, topic)

    admin.alter_group_offsets(group, {first: 2, second: OffsetAndMetadata(4, "note")})
    committed = admin.list_group_offsets(group)
    lag = admin.lag(group)
    tried = admin.reset_group_offsets(group, ResetTo("latest"), dry_run=True)
    untouched = admin.list_group_offsets(group)
    done = admin.reset_group_offsets(group, ResetTo("time", 25), partitions=[first])

    assert (
        committed
        == untouched
        == {
            first: OffsetAndMetadata(2),
            second: OffsetAndMetadata(4, "note"),
        }
    )
    assert lag == [PartitionLag(*first, 2, 5, 3), PartitionLag(*second, 4, 5, 1)]
    assert tried == [OffsetChange(*first, 2, 5), OffsetChange(*second, 4, 5)]
    assert done == [OffsetChange(*first, 2, 2)]
    assert group in admin.list_groups()
    admin.delete_group(group)
    assert group not in admin.list_groups()


def test_a_group_with_members_keeps_its_offsets(
    admin: AdminClient, log: Broker, topic: str, named: Named, opened: Opened
) -> None:
    group = named("readers")
    filled(log, topic)
    consumer = opened(group_id=group)
    consumer.subscribe([topic])
    await_that(lambda: bool(consumer.poll("100ms")), "records")

    with pytest.raises(GroupNotEmptyError):
        admin.reset_group_offsets(group, ResetTo())

    assert [len(member.partitions) for member in admin.describe_group(group)] == [2]


def test_a_group_of_an_application_is_refused(admin: AdminClient, named: Named) -> None:
    group = named("app")
    admin.create_topic(markers_name(group))

    with pytest.raises(StreamsError, match=f"Use `headrace reset {group} "):
        admin.reset_group_offsets(group, ResetTo())

    assert markers_name(group) not in admin.list_topics()
