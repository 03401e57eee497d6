"""The model is right about transactions: it behaves as the logs that it represents."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from chaos.model.broker import Code, ModelBroker, RequestRefusedError
from chaos.model.client import ModelLog
from chaos.model.network import DirectConnection, Request
from headrace import ProducerFencedError, RecordRefusedError, StreamsConfig, UnknownTopicError
from headrace.brokers import OffsetAndMetadata, TopicPartition, open_log
from headrace.brokers.sessions import Broker
from tests.brokers.appending import assert_holds, record
from tests.unique_names import unique
from tests.waiting import await_that

MARKED = OffsetAndMetadata(7, "marker")


@pytest.fixture(params=["model", "embedded", "kafka"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """The model, and each log that it represents."""
    if request.param == "model":
        opened = cast(Broker, ModelLog(DirectConnection(ModelBroker())))
    elif request.param == "embedded":
        opened = open_log(StreamsConfig(embedded_path=tmp_path / "topics.db"))
    else:
        address = request.getfixturevalue("kafka").address
        opened = open_log(StreamsConfig(bootstrap_servers=address, request_timeout="20s"))
    yield opened
    opened.close()


@pytest.fixture
def name() -> str:
    """A name for the topic, the group and the transactional id of a test: the broker is shared."""
    return unique("facts")


@pytest.fixture
def partition(log: Broker, name: str) -> TopicPartition:
    log.create_topic(name)
    return TopicPartition(name, 0)


def test_records_and_markers_appear_together_at_the_end(
    log: Broker, name: str, partition: TopicPartition
) -> None:
    with log.transaction(name) as transaction:
        transaction.append([record(name, b"a")])
        transaction.commit_offsets(name, {partition: MARKED})
        during = log.end_offsets([partition])[partition], log.committed_offsets(name)

    assert during == (0, {})
    assert log.committed_offsets(name, [partition]) == {partition: MARKED}
    assert_holds(log, partition, [b"a"])


def test_an_open_transaction_hides_what_comes_after_it_or_is_not_in_the_way(
    log: Broker, name: str, partition: TopicPartition
) -> None:
    session = log.open_producer({"transactional.id": name})
    session.begin_transaction()
    session.send(record(name, b"open"), lambda *_: None)
    session.flush()
    log.append([record(name, b"after")])

    during = log.end_offsets([partition])[partition]
    session.abort_transaction()
    session.close()

    assert during == (0 if session.delivers_before_commit else 1)
    assert_holds(log, partition, [b"after"])


def test_fencing_aborts_the_open_transaction_and_locks_its_producer_out(
    log: Broker, name: str, partition: TopicPartition
) -> None:
    def outlive() -> None:
        with log.transaction(name) as zombie:
            zombie.append([record(name, b"zombie")])
            zombie.commit_offsets(name, {partition: MARKED})
            log.fence_producers([name])

    with pytest.raises(ProducerFencedError):
        outlive()

    log.append([record(name, b"after")])
    assert_holds(log, partition, [b"after"])
    assert log.committed_offsets(name, [partition]) == {}


def test_a_fenced_producer_writes_nothing_after_its_successor(
    log: Broker, name: str, partition: TopicPartition
) -> None:
    def outlive() -> None:
        with log.transaction(name) as zombie:
            with log.transaction(name) as successor:
                successor.append([record(name, b"successor")])
            zombie.append([record(name, b"zombie")])

    with pytest.raises(ProducerFencedError):
        outlive()

    assert_holds(log, partition, [b"successor"])


def test_offsets_are_waited_for_while_a_transaction_is_about_to_commit_them(
    log: Broker, name: str, partition: TopicPartition
) -> None:
    consumer = log.open_consumer(name, {})
    session = log.open_producer({"transactional.id": name})
    session.begin_transaction()
    session.send_offsets({partition: MARKED}, consumer.group_metadata())

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(log.committed_offsets, name, [partition])
        if not session.delivers_before_commit:
            assert asked.result() == {}  # nothing is about to happen before the commit itself
        session.commit_transaction()
        found = asked.result()
    session.close()
    consumer.close()

    assert found in ({}, {partition: MARKED})
    assert found or not session.delivers_before_commit
    assert log.committed_offsets(name, [partition]) == {partition: MARKED}


def test_a_record_that_is_too_large_takes_its_transaction_with_it(
    log: Broker, name: str, partition: TopicPartition
) -> None:
    small = f"{name}-small"
    log.create_topic(small, settings={"max.message.bytes": "1000"})

    with pytest.raises(RecordRefusedError), log.transaction(name) as transaction:
        transaction.append([record(name, b"a"), record(small, b"x" * 2_000)])

    log.append([record(name, b"after")])
    assert_holds(log, partition, [b"after"])


def test_a_marker_for_a_partition_that_is_not_there_fails_the_transaction(
    log: Broker, name: str, partition: TopicPartition
) -> None:
    def mark() -> None:
        with log.transaction(name) as transaction:
            transaction.append([record(name, b"a")])
            transaction.commit_offsets(name, {TopicPartition(name, 9): MARKED})

    with pytest.raises(UnknownTopicError):
        mark()

    log.append([record(name, b"after")])
    assert_holds(log, partition, [b"after"])


def test_a_topic_takes_the_offsets_with_it_that_groups_have_there(
    log: Broker, name: str, partition: TopicPartition
) -> None:
    sentinel = TopicPartition(f"{name}-leader", 0)
    log.create_topic(sentinel.topic)
    log.commit_offsets(name, {partition: MARKED, sentinel: MARKED})
    before = log.topic_ids([name])

    log.delete_topic(name)
    log.create_topic(name)

    assert log.topic_ids([name]) != before
    # The coordinator of the group hears of it a moment later.
    await_that(
        lambda: partition not in log.committed_offsets(name, [partition]),
        "the offset to go",
        found=lambda: log.committed_offsets(name, [partition]),
    )
    assert log.committed_offsets(name, [partition, sentinel]) == {sentinel: MARKED}


def test_a_group_is_deleted_with_all_its_offsets(
    log: Broker, name: str, partition: TopicPartition
) -> None:
    log.commit_offsets(name, {partition: MARKED})

    log.delete_group(name)

    assert log.committed_offsets(name, [partition]) == {}
    assert name not in log.list_groups()


class Requests:
    """Sends single requests to the model, as no client of a real broker can."""

    def __init__(self, *, verifies: bool = True) -> None:
        self.broker = ModelBroker(verifies=verifies)
        self.broker.create_topic("out", 1)
        self.partition = TopicPartition("out", 0)
        self.connection = DirectConnection(self.broker)

    def send(self, method: Any, **arguments: Any) -> Any:
        request: Request = partial(method, transactional_id="id", **arguments)
        return self.connection.call(request)

    def take_over(self) -> int:
        with suppress(RequestRefusedError):
            return int(self.send(ModelBroker.init_producer_id)[1])
        return int(self.send(ModelBroker.init_producer_id)[1])  # what it aborted has ended by now

    def begin(self, epoch: int) -> None:
        self.send(ModelBroker.add_partitions_to_txn, epoch=epoch, targets=[self.partition])

    def write(self, epoch: int, value: bytes, sequence: int) -> None:
        self.send(
            ModelBroker.produce,
            epoch=epoch,
            partition=self.partition,
            sequence=sequence,
            records=[record("out", value)],
        )

    def end(self, epoch: int, *, commit: bool = True) -> None:
        self.send(ModelBroker.end_txn, epoch=epoch, commit=commit)

    def values(self) -> list[bytes | None]:
        found = self.broker.fetch(partition=self.partition)
        return [record.value for _, record in found]


def test_a_late_commit_may_end_the_next_transaction_of_its_epoch() -> None:
    """This is why every attempt fences the id: a client without KIP-890 cannot detect it."""
    requests = Requests()
    epoch = requests.take_over()
    for sequence, value in enumerate((b"first", b"second")):
        requests.begin(epoch)
        requests.write(epoch, value, sequence)
        requests.end(epoch)

    assert requests.values() == [b"first", b"second"]
    requests.begin(epoch)
    requests.write(epoch, b"half", 2)
    requests.end(epoch)  # the second commit again, late
    with pytest.raises(RequestRefusedError) as refused:
        requests.write(epoch, b"other half", 3)

    assert refused.value.code is Code.INVALID_TXN_STATE
    assert requests.values() == [b"first", b"second", b"half"]


def test_a_late_commit_of_an_earlier_epoch_is_refused() -> None:
    requests = Requests()
    zombie = requests.take_over()
    requests.begin(zombie)
    requests.write(zombie, b"zombie", 0)
    epoch = requests.take_over()
    requests.begin(epoch)
    requests.write(epoch, b"good", 0)

    with pytest.raises(RequestRefusedError) as refused:
        requests.end(zombie)

    assert refused.value.code is Code.PRODUCER_FENCED
    requests.end(epoch)
    assert requests.values() == [b"good"]


def test_records_that_arrive_twice_are_written_once() -> None:
    requests = Requests()
    epoch = requests.take_over()
    requests.begin(epoch)

    for _ in range(2):
        requests.write(epoch, b"once", 0)
    requests.end(epoch)
    requests.end(epoch)

    assert requests.values() == [b"once"]


@pytest.mark.parametrize(("verifies", "found"), [(True, [b"good"]), (False, [b"late", b"good"])])
def test_records_after_the_abort_of_their_epoch(verifies: bool, found: list[bytes]) -> None:
    """Before Kafka 3.6 such a record opened a transaction that only the next epoch ended."""
    requests = Requests(verifies=verifies)
    aborted = requests.take_over()
    requests.begin(aborted)
    requests.end(aborted, commit=False)
    if verifies:
        with pytest.raises(RequestRefusedError):
            requests.write(aborted, b"late", 0)
    else:
        requests.write(aborted, b"late", 0)

    epoch = requests.take_over()
    requests.begin(epoch)
    requests.write(epoch, b"good", 0)
    requests.end(epoch)

    assert requests.values() == found


def test_pending_offsets_are_not_returned() -> None:
    requests = Requests()
    epoch = requests.take_over()
    requests.send(ModelBroker.add_partitions_to_txn, epoch=epoch, targets=["group"])
    offsets = {requests.partition: MARKED}
    requests.send(ModelBroker.txn_offset_commit, epoch=epoch, group="group", offsets=offsets)

    with pytest.raises(RequestRefusedError) as refused:
        requests.broker.offset_fetch(group="group", partitions=list(offsets))
    requests.end(epoch)

    assert refused.value.code is Code.UNSTABLE_OFFSET_COMMIT
    assert requests.broker.offset_fetch(group="group", partitions=list(offsets)) == offsets


def test_a_transaction_that_is_open_for_too_long_is_aborted() -> None:
    requests = Requests()
    epoch = requests.take_over()
    requests.begin(epoch)
    requests.write(epoch, b"late", 0)

    requests.broker.expire("id", 1)

    with pytest.raises(RequestRefusedError) as refused:
        requests.end(epoch)
    assert refused.value.code is Code.PRODUCER_FENCED
    requests.take_over()
    assert requests.values() == []
    assert requests.broker.partitions[requests.partition].stable == 2
