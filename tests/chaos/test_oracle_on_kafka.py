"""The same rounds on a real broker: written by librdkafka, read by kafka-python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition

from chaos.checks import Verdict
from chaos.contract import Expected
from chaos.judging import judge
from chaos.oracle import ids_in
from chaos.reading import KafkaReader
from chaos.segments import with_units
from chaos.watching import Watch
from chaos.workloads import WORKLOADS
from headrace.brokers import open_log
from headrace.brokers.log import OffsetAndMetadata, RawRecord, TopicLog
from headrace.brokers.log import TopicPartition as Partition
from headrace.config import StreamsConfig
from tests.chaos.in_process_round import run_round
from tests.kafka_broker import RunningBroker
from tests.waiting import await_that

pytestmark = pytest.mark.nightly("faults")


@pytest.mark.parametrize("name", ["running_aggregate", "read_back", "bad_input"])
def test_a_round_without_faults_is_clean(name: str, tmp_path: Path, kafka: RunningBroker) -> None:
    done = run_round(WORKLOADS[name], tmp_path, seed=5, count=200, brokers=kafka.address)

    found = done.verdict()

    assert found.examples == []
    assert found.is_clean
    assert done.watched.examples == []
    assert done.open_ends == []
    assert all(any(partitions.values()) for partitions in done.outputs.values())


def await_end(kafka: RunningBroker, end: int, topic: str = "units") -> None:
    """Wait until what a transaction sends has arrived, open as it is."""
    with closing(
        KafkaConsumer(bootstrap_servers=kafka.address, isolation_level="read_uncommitted")
    ) as consumer:
        name = TopicPartition(topic, 0)
        await_that(
            lambda: consumer.end_offsets([name])[name] >= end,
            f"{end} records in {topic!r}",
            found=lambda: consumer.end_offsets([name]),
        )


def test_records_of_one_transaction_share_a_unit_and_aborted_ones_are_not_read(
    tmp_path: Path, kafka: RunningBroker
) -> None:
    log = open_log(
        StreamsConfig(application_id="units", state_dir=tmp_path, bootstrap_servers=kafka.address)
    )
    log.create_topic("units")
    log.create_topic("others")
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
        transaction.append([("others", 0, 1, b"k", b"e", None)])
    log.close()

    reader = KafkaReader(kafka.address)
    read = with_units(reader.read(["units", "others"], {}), [Path(kafka.properties["log.dirs"])])
    records, (other,) = read["units"][0], read["others"][0]
    later = reader.read(["units"], {("units", 0): records[-1].offset})["units"][0]
    reader.close()

    assert [each.value for each in records] == [b"first", b"a", b"between", b"b", b"c", b"d"]
    a, between, b, c, d = (each.unit for each in records[1:])
    assert a == b != c == d
    assert between not in {a, c}
    assert other.unit == d
    assert [each.value for each in later] == [b"d"]


@pytest.fixture
def log(tmp_path: Path, kafka: RunningBroker) -> Iterator[TopicLog]:
    config = StreamsConfig(
        application_id="watched", state_dir=tmp_path, bootstrap_servers=kafka.address
    )
    with closing(open_log(config)) as log:
        yield log


def commit(log: TopicLog, topic: str, offset: int) -> None:
    log.commit_offsets("watched", {Partition(topic, 0): OffsetAndMetadata(offset)})


def look_until(watch: Watch, is_so: Callable[[], bool], what: str) -> None:
    """Look until the end of a transaction shows."""

    def is_seen() -> bool:
        watch.look()
        return is_so()

    await_that(is_seen, what, found=lambda: (watch._missing, watch._batches, watch.found))


def look_until_it_is_judged(watch: Watch) -> None:
    look_until(watch, lambda: not watch._missing, "a verdict on each record that is missing")


def test_an_offset_is_ahead_if_its_record_is_not_there_once_every_transaction_has_ended(
    log: TopicLog, kafka: RunningBroker
) -> None:
    for topic in ("watched-in", "watched-out"):
        log.create_topic(topic)
    log.append([("watched-in", 0, 1, b"k", b'{"id": "%d"}' % n, None) for n in range(2)])
    commit(log, "watched-in", 0)
    workload = replace(
        WORKLOADS["running_aggregate"],
        topics={"watched-in": 1},
        outputs={"watched-out": 1},
        traced=lambda outputs: ids_in(outputs, "watched-out"),
    )
    with closing(Watch(workload, "kafka", kafka.address, "watched")) as watch:
        with log.transaction("watched-0") as transaction:
            transaction.append([("watched-out", 0, 1, b"k", b'{"id": "0"}', None)])
            await_end(kafka, 1, "watched-out")
            # As if it had committed, and the partition did not show it yet.
            commit(log, "watched-in", 1)
            watch.look()
            while_open = watch.found.offsets_ahead
        look_until_it_is_judged(watch)
        once_committed = watch.found.offsets_ahead
        commit(log, "watched-in", 2)
        look_until_it_is_judged(watch)

    assert (while_open, once_committed) == (0, 0)
    assert watch.found.counts() == {**Verdict().counts(), "offsets_ahead": 1}


def test_a_batch_may_show_in_parts_while_another_transaction_is_open_between_them(
    log: TopicLog, kafka: RunningBroker
) -> None:
    log.create_topic("mixed-in")
    log.create_topic("mixed-out")
    commit(log, "mixed-in", 0)
    workload = replace(
        WORKLOADS["running_aggregate"],
        topics={"mixed-in": 1},
        outputs={"mixed-out": 1},
        traced=None,
    )

    def written(batch: bytes) -> RawRecord:
        return ("mixed-out", 0, 1, b"k", b"{}", [("batch", batch)])

    with closing(Watch(workload, "kafka", kafka.address, "watched")) as watch:
        watch.look()
        with log.transaction("mixed-1") as other:
            with log.transaction("mixed-0") as transaction:
                transaction.append([written(b"0_0/1")])
                await_end(kafka, 1, "mixed-out")
                other.append([written(b"0_1/1")])
                await_end(kafka, 2, "mixed-out")
                transaction.append([written(b"0_0/1")])
            look_until(watch, lambda: bool(watch._batches), "a batch")
            of_first = set(watch._batches)
        look_until(watch, lambda: len(watch._batches) == 2, "two batches")
        mixed = watch.found.torn
        with log.transaction("mixed-0") as transaction:
            transaction.append([written(b"0_0/1")])
        look_until(watch, lambda: watch.found.torn > 0, "a torn batch")

    assert of_first == {("mixed-out", 0, b"0_0/1")}
    assert mixed == 0
    assert watch.found.counts() == {**Verdict().counts(), "torn": 1}


def test_a_changelog_that_ends_in_an_open_transaction_is_torn(
    log: TopicLog, kafka: RunningBroker
) -> None:
    for topic in ("judged-in", "judged-out", "watched-judged-store-changelog"):
        log.create_topic(topic)
    workload = replace(
        WORKLOADS["running_aggregate"],
        topics={"judged-in": 1},
        outputs={"judged-out": 1},
        stores={"judged-store": "key_value"},
        expected=lambda _: Expected({}),
        observed=lambda _: {},
        traced=None,
        twins=None,
    )
    site: Any = SimpleNamespace(
        kind="kafka", address=kafka.address, in_transactions=lambda records: records
    )
    with log.transaction("judged-0") as transaction:
        transaction.append([("watched-judged-store-changelog", 0, 1, b"k", b"1", None)])
        await_end(kafka, 1, "watched-judged-store-changelog")
        found = judge(workload, site, "watched")

    assert found.counts() == {**Verdict().counts(), "torn": 1}
