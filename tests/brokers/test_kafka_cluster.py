"""Three nodes make one cluster, which works without any one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, PartitionMetadata

from headrace import BrokerUnavailableError, ProducerRecord, StreamsConfig
from headrace.brokers import OffsetAndMetadata, TopicPartition, open_log
from headrace.brokers.kafka.topics import KafkaTopics
from headrace.brokers.sessions import Broker
from headrace.clients import KafkaConsumer, KafkaProducer
from tests.brokers.appending import assert_holds, record
from tests.kafka_broker import RunningBroker, RunningCluster, start_broker, start_cluster
from tests.waiting import PATIENCE, PATIENTLY, await_that

pytestmark = pytest.mark.nightly("cluster")

PARTITION = TopicPartition("orders", 0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with start_cluster(
        java_options=["-XX:TieredStopAtLevel=1", "-Xmx256m"],
        properties={"broker.session.timeout.ms": "3000"},  # so that a lost node is soon missed
    ) as running:
        yield running


def leader_of(cluster: RunningCluster, topic: str, *, in_sync: int = 3) -> RunningBroker:
    """Return the node that leads a topic, once enough nodes are in sync."""
    admin = AdminClient({"bootstrap.servers": cluster.address})
    found: list[PartitionMetadata] = []

    def is_in_sync() -> bool:
        found[:] = admin.list_topics(topic, PATIENCE).topics[topic].partitions.values()
        return [len(partition.isrs) for partition in found] == [in_sync]

    await_that(
        is_in_sync,
        f"{in_sync} nodes in sync for {topic!r}",
        found=lambda: [partition.isrs for partition in found],
    )
    return cluster.brokers[found[0].leader - 1]


def test_a_cluster_survives_the_loss_of_any_node(cluster: RunningCluster) -> None:
    log = open_log(StreamsConfig(bootstrap_servers=cluster.address, request_timeout=PATIENTLY))
    log.create_topic("orders")
    log.create_topic("markers")
    marker = TopicPartition("markers", 0)
    written = []

    # At first no node is lost: then the leader of the written partition, and either coordinator.
    for batch, led in enumerate([None, "orders", "__transaction_state", "__consumer_offsets"]):
        lost = None
        with log.transaction("writer") as transaction:
            done = log.committed_offsets("markers", [marker])
            assert done == ({marker: OffsetAndMetadata(batch)} if batch else {})
            written.append(b"%d" % batch)
            transaction.append([ProducerRecord("orders", 0, 2, b"k", written[-1])])
            transaction.commit_offsets("markers", {marker: OffsetAndMetadata(batch + 1)})
            if led is not None:
                lost = leader_of(cluster, led)
                lost.kill()
        assert_holds(log, PARTITION, written)
        if lost is not None:
            lost.start()
            lost.await_ready()

    assert log.committed_offsets("markers", [marker]) == {marker: OffsetAndMetadata(4)}
    assert log.committed_offsets("markers") == {marker: OffsetAndMetadata(4)}
    log.close()


def coordinator_of(cluster: RunningCluster, group: str) -> RunningBroker:
    """Return the node that coordinates a group."""
    admin = AdminClient({"bootstrap.servers": cluster.address})
    nodes: list[int] = []
    errors: list[KafkaException] = []

    def is_known() -> bool:
        try:
            described = admin.describe_consumer_groups([group])[group].result(PATIENCE)
        except KafkaException as error:
            errors.append(error)
        else:
            nodes.append(described.coordinator.id)
        return bool(nodes)

    await_that(is_known, f"a coordinator of group {group!r}", found=lambda: errors[-1])
    return cluster.brokers[nodes[0] - 1]


def test_offsets_of_a_transaction_time_out_if_their_group_has_no_coordinator() -> None:
    # Many partitions, so that not one node coordinates all groups.
    with start_cluster(properties={"offsets.topic.num.partitions": "12"}) as cluster:
        settings: dict[str, Any] = {"bootstrap_servers": cluster.address}
        log = open_log(StreamsConfig(**settings, request_timeout=PATIENTLY))
        log.create_topic("source")
        source = TopicPartition("source", 0)
        with log.transaction("hasty") as transaction:
            transaction.commit_offsets("readers", {source: OffsetAndMetadata(0)})
        elsewhere = leader_of(cluster, "__transaction_state")
        coordinators = ((name, coordinator_of(cluster, name)) for name in map(str, range(12)))
        group = next(name for name, each in coordinators if each is not elsewhere)
        # One node alone elects no leader.
        lost = [each for each in cluster.brokers if each is not elsewhere]

        def commit_while_they_are_lost() -> None:
            hasty = {"request_timeout": "5s", **settings}
            with (
                KafkaConsumer(
                    key=str, value=str, group_id=group, enable_auto_commit=False, **hasty
                ) as consumer,
                KafkaProducer(key=str, value=str, transactional_id="hasty", **hasty) as producer,
                producer.transaction(),
            ):
                producer.send_offsets_to_transaction({source: 1}, consumer)
                for broker in lost:
                    broker.kill()
                producer.send_offsets_to_transaction({source: 2}, consumer)

        with pytest.raises(BrokerUnavailableError, match="commit offsets in transaction 'hasty'"):
            commit_while_they_are_lost()

        for broker in lost:
            broker.start()
        for broker in lost:
            broker.await_ready()
        with log.transaction("hasty") as transaction:
            transaction.commit_offsets(group, {source: OffsetAndMetadata(3)})
        assert log.committed_offsets(group, [source]) == {source: OffsetAndMetadata(3)}
        log.close()


def test_too_few_replicas_in_sync_are_reported_and_waited_for(cluster: RunningCluster) -> None:
    hasty = open_log(StreamsConfig(bootstrap_servers=cluster.address, request_timeout="3s"))
    log = open_log(StreamsConfig(bootstrap_servers=cluster.address, request_timeout=PATIENTLY))
    log.create_topic("strict", settings={"min.insync.replicas": "3"})
    strict = TopicPartition("strict", 0)
    leader = leader_of(cluster, "strict")
    lost = next(broker for broker in cluster.brokers if broker is not leader)
    lost.kill()
    leader_of(cluster, "strict", in_sync=2)

    with (
        pytest.raises(BrokerUnavailableError, match="partition 0 of 'strict' has 2 of 3"),
        hasty.transaction("strict-writer") as transaction,
    ):
        transaction.append([record("strict", b"never")])
    lost.start()
    with log.transaction("strict-writer") as transaction:
        transaction.append([record("strict", b"late")])

    assert_holds(log, strict, [b"late"])
    hasty.close()
    log.close()


def await_marker(log: Broker, name: TopicPartition, end: int) -> None:
    """Wait for the marker of a transaction, which the broker writes after the commit."""
    await_that(lambda: log.end_offsets([name])[name] > end, f"a marker behind {end} of {name}")


def test_the_ends_of_a_transaction_are_right_if_their_leader_is_lost_before_the_question(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(StreamsConfig(bootstrap_servers=cluster.address, request_timeout=PATIENTLY))
    log.create_topic("changelog")
    changelog = TopicPartition("changelog", 0)
    ask: Callable[..., dict[TopicPartition, int]] = KafkaTopics.uncommitted_ends
    lost: list[RunningBroker] = []

    def lose_leader_and_ask(topics: KafkaTopics, names: Any) -> dict[TopicPartition, int]:
        lost[-1].kill()
        return ask(topics, names)

    monkeypatch.setattr(KafkaTopics, "uncommitted_ends", lose_leader_and_ask)
    for number in range(1, 4):
        lost.append(leader_of(cluster, "changelog"))
        with log.transaction("writer-of-ends") as transaction:
            values = [b"%d" % each for each in range(number)]
            transaction.append([record("changelog", value) for value in values])
            ends = transaction.ask_ends([changelog])
        await_marker(log, changelog, ends[changelog])
        *_, batch = log.read(changelog, 0, ends[changelog])
        assert batch[-1].value == values[-1]
        assert ends == {changelog: batch[-1].offset + 1}
        lost[-1].start()
        lost[-1].await_ready()
    log.close()


def test_a_broker_finds_its_data_again(tmp_path: Path) -> None:
    for value in (b"first", b"second"):
        with start_broker(tmp_path / "kafka", properties={"num.partitions": "2"}) as broker:
            log = open_log(StreamsConfig(bootstrap_servers=broker.address))
            if value == b"first":
                log.create_topic("orders")
            log.append([ProducerRecord("orders", 0, 1, b"k", value)])
            found = [
                each.value
                for batch in log.read(PARTITION, 0, log.end_offsets([PARTITION])[PARTITION])
                for each in batch
            ]
            log.close()
            broker.stop()

    assert found == [b"first", b"second"]
