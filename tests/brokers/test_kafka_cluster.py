"""Three nodes make one cluster, which goes on without one of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import ProducerRecord, StreamsConfig
from headrace.brokers import TopicPartition, open_log
from tests.kafka_broker import RunningCluster, start_broker, start_cluster

PARTITION = TopicPartition("orders", 0)


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    with start_cluster(java_options=["-XX:TieredStopAtLevel=1", "-Xmx256m"]) as running:
        yield running


def test_a_cluster_goes_on_without_one_of_its_nodes(cluster: RunningCluster) -> None:
    log = open_log(StreamsConfig(bootstrap_servers=cluster.address, request_timeout="60s"))
    log.create_topic("orders")
    log.append([ProducerRecord("orders", 0, 1, b"k", b"before")])

    killed = cluster.brokers[1]
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    with log.transaction("writer") as transaction:
        transaction.append([ProducerRecord("orders", 0, 2, b"k", b"during")])
    killed.start()
    killed.await_ready()
    log.append([ProducerRecord("orders", 0, 3, b"k", b"after")])

    end = log.end_offsets([PARTITION])[PARTITION]
    read = [each.value for batch in log.read(PARTITION, 0, end) for each in batch]
    assert read == [b"before", b"during", b"after"]
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
