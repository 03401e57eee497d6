"""The same rounds on a real broker: written by librdkafka, read by kafka-python."""

from __future__ import annotations

import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition

from chaos.reading import KafkaReader
from chaos.segments import with_units
from chaos.workloads import WORKLOADS
from headrace.brokers import open_log
from headrace.config import StreamsConfig
from tests.chaos.in_process_round import run_round
from tests.kafka_broker import RunningBroker


@pytest.mark.parametrize("name", ["running_aggregate", "read_back"])
def test_a_round_without_faults_is_clean(name: str, tmp_path: Path, kafka: RunningBroker) -> None:
    done = run_round(WORKLOADS[name], tmp_path, seed=5, count=200, brokers=kafka.address)

    found = done.verdict()

    assert found.examples == []
    assert found.is_clean
    assert done.watched.examples == []
    assert done.open_ends == []
    assert all(any(partitions.values()) for partitions in done.outputs.values())


def await_end(kafka: RunningBroker, end: int) -> None:
    """Wait until what a transaction sends has arrived, open as it is."""
    with closing(
        KafkaConsumer(bootstrap_servers=kafka.address, isolation_level="read_uncommitted")
    ) as consumer:
        name = TopicPartition("units", 0)
        while consumer.end_offsets([name])[name] < end:
            time.sleep(0.05)


def test_records_of_one_transaction_share_a_unit_and_aborted_ones_are_not_read(
    tmp_path: Path, kafka: RunningBroker
) -> None:
    log = open_log(
        StreamsConfig(application_id="units", state_dir=tmp_path, bootstrap_servers=kafka.address)
    )
    log.create_topic("units")
    log.append([("units", 0, 1, b"k", b"first", None)])
    with log.transaction("writer") as transaction:
        transaction.append([("units", 0, 1, b"k", b"a", None)])
        await_end(kafka, 2)
        with log.transaction("other") as second:
            second.append([("units", 0, 1, b"k", b"between", None)])
        transaction.append([("units", 0, 1, b"k", b"b", None)])
    with suppress(ZeroDivisionError), log.transaction("writer") as transaction:
        transaction.append([("units", 0, 1, b"k", b"aborted", None)])
        raise ZeroDivisionError
    with log.transaction("writer") as transaction:
        transaction.append([("units", 0, 1, b"k", value, None) for value in (b"c", b"d")])
    log.close()

    reader = KafkaReader(kafka.address)
    read = with_units(reader.read(["units"], {}), [Path(kafka.properties["log.dirs"])])
    records = read["units"][0]
    later = reader.read(["units"], {("units", 0): records[-1].offset})["units"][0]
    reader.close()

    assert [each.value for each in records] == [b"first", b"a", b"between", b"b", b"c", b"d"]
    a, between, b, c, d = (each.unit for each in records[1:])
    assert a == b != c == d
    assert between not in {a, c}
    assert [each.value for each in later] == [b"d"]
