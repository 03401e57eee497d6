"""Behaviour of the embedded log alone: one file, cleaning by itself, several processes."""

from __future__ import annotations

import re
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import (
    BrokerError,
    BrokerUnavailableError,
    BufferExhaustedError,
    CommitFailedError,
    ProducerFencedError,
    ProducerRecord,
    StreamsConfig,
    StreamsError,
    UnknownTopicError,
)
from headrace.brokers import OffsetAndMetadata, TopicPartition, open_log
from headrace.brokers.embedded import EmbeddedLog
from headrace.brokers.embedded.database import Database
from headrace.brokers.embedded.membership import Membership
from headrace.brokers.sessions import RebalanceListener
from headrace.clients import KafkaProducer
from tests.waiting import PATIENCE, await_that

DAY = 86_400_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "topics.db"


@pytest.fixture
def log(path: Path) -> Iterator[EmbeddedLog]:
    opened = EmbeddedLog(path)
    yield opened
    opened.close()


def now() -> int:
    return time.time_ns() // 1_000_000


def write(
    log: EmbeddedLog, topic: str, *pairs: tuple[str, str | None], timestamp: int | None = None
) -> None:
    stamp = now() if timestamp is None else timestamp
    log.append(
        [
            ProducerRecord(topic, 0, stamp, key.encode(), None if value is None else value.encode())
            for key, value in pairs
        ]
    )


def content(log: EmbeddedLog, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    partition = TopicPartition(topic, 0)
    start, end = (
        log.beginning_offsets([partition])[partition],
        log.end_offsets([partition])[partition],
    )
    return [(r.offset, r.key, r.value) for batch in log.read(partition, start, end) for r in batch]


def test_only_the_owner_may_read_the_file(log: EmbeddedLog, path: Path) -> None:
    log.create_topic("orders")

    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}

    assert set(modes.values()) == {0o600}
    assert "topics.db" in modes
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_names_never_become_paths(log: EmbeddedLog, path: Path) -> None:
    before = set(path.parent.parent.rglob("*"))

    log.create_topic("..a.-_")
    with pytest.raises(BrokerError):
        log.create_topic("../evil")
    log.commit_offsets(
        "../../evil group'; DROP TABLE record; --",
        {TopicPartition("..a.-_", 0): OffsetAndMetadata(0)},
    )

    after = set(path.parent.parent.rglob("*"))
    assert {file.name for file in after - before} <= {"topics.db-wal", "topics.db-shm"}
    assert log.list_topics() == ["..a.-_"]


def test_records_are_there_after_opening_again(path: Path) -> None:
    log = EmbeddedLog(path)
    log.create_topic("orders")
    write(log, "orders", ("a", "1"))
    log.close()

    assert content(EmbeddedLog(path), "orders") == [(0, b"a", b"1")]


def test_the_settings_name_the_path_of_the_file(tmp_path: Path) -> None:
    given = open_log(StreamsConfig(embedded_path=tmp_path / "here.db"))
    default = open_log(StreamsConfig(state_dir=tmp_path / "state"))
    given.close()
    default.close()

    assert (tmp_path / "here.db").exists()
    assert (tmp_path / "state" / "topics.db").exists()


def test_a_file_that_is_something_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("this is not a database, but it is long enough to be looked at " * 10)

    with pytest.raises(BrokerError, match="no embedded log"):
        EmbeddedLog(file)

    assert file.read_text().startswith("this is not")


def test_a_file_of_another_version_is_refused(path: Path) -> None:
    EmbeddedLog(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()

    with pytest.raises(BrokerError, match="has format 99"):
        EmbeddedLog(path)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="cannot be used"):
        EmbeddedLog(tmp_path)


def test_a_writer_waits_for_another_one_but_not_for_ever(path: Path) -> None:
    log = EmbeddedLog(path, busy_ms=50)
    log.create_topic("orders")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(BrokerUnavailableError, match=r"in use by another writer for 0\.05 s"):
        write(log, "orders", ("a", "1"))
    read_meanwhile = content(log, "orders")
    other.execute("ROLLBACK")
    other.close()
    write(log, "orders", ("a", "2"))

    assert read_meanwhile == []
    assert content(log, "orders") == [(0, b"a", b"2")]


def test_a_full_disk_is_an_error_and_nothing_is_half_written(path: Path) -> None:
    log = EmbeddedLog(path)
    log.create_topic("orders")
    pages = log._database._open().execute("PRAGMA page_count").fetchone()[0]
    log._database._open().execute(f"PRAGMA max_page_count = {pages + 2}")

    with pytest.raises(BrokerError, match="disk is full"):
        write(log, "orders", ("a", "1"), ("b", "x" * 100_000))

    assert content(log, "orders") == []


def test_threads_may_share_a_log(log: EmbeddedLog) -> None:
    log.create_topic("orders")

    def write_often() -> None:
        for _ in range(50):
            write(log, "orders", ("k", "v"))

    threads = [threading.Thread(target=write_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [offset for offset, _, _ in content(log, "orders")] == list(range(200))


@pytest.mark.parametrize(
    "settings",
    [{"cleanup.policy": "shred"}, {"retention.ms": "a week"}, {"message.timestamp.type": "Now"}],
)
def test_a_setting_that_cannot_be_followed_is_refused(
    log: EmbeddedLog, settings: dict[str, str]
) -> None:
    with pytest.raises(BrokerError, match="of a topic is"):
        log.create_topic("orders", settings=settings)


@pytest.mark.parametrize("partitions", [0, -1, 10_001])
def test_a_topic_has_a_sensible_number_of_partitions(log: EmbeddedLog, partitions: int) -> None:
    with pytest.raises(BrokerError, match=f"{partitions} partitions"):
        log.create_topic("orders", partitions=partitions)


def test_settings_that_are_not_followed_are_kept(log: EmbeddedLog) -> None:
    log.create_topic("orders", settings={"segment.bytes": "1000"})

    assert log.describe_topic("orders").settings == {"segment.bytes": "1000"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("retentin.ms", "'retentin.ms' is not a setting of a topic. Did you mean 'retention.ms'?"),
        ("colour", "'colour' is not a setting of a topic. Leave it out."),
    ],
)
def test_a_setting_that_no_topic_has_is_refused(log: EmbeddedLog, name: str, said: str) -> None:
    with pytest.raises(BrokerError, match=f"^{re.escape(said)}$"):
        log.create_topic("orders", settings={name: "1"})

    assert log.list_topics() == []


def test_records_cannot_be_deleted_behind_the_end(log: EmbeddedLog) -> None:
    log.create_topic("orders")

    with pytest.raises(BrokerError, match="cannot begin at 5"):
        log.delete_records({TopicPartition("orders", 0): 5})


def test_a_negative_offset_and_long_metadata_are_refused(log: EmbeddedLog) -> None:
    log.create_topic("orders")
    partition = TopicPartition("orders", 0)

    for group, offset in (
        ("g", OffsetAndMetadata(-1)),
        ("g", OffsetAndMetadata(0, "x" * 5_000)),
        ("", OffsetAndMetadata(0)),
    ):
        with pytest.raises(BrokerError):
            log.commit_offsets(group, {partition: offset})

    assert log.list_groups() == []


def test_compaction_keeps_the_last_record_of_each_key(log: EmbeddedLog) -> None:
    log.create_topic("table", settings={"cleanup.policy": "compact"})
    write(log, "table", ("a", "1"), ("b", "1"), ("a", "2"), ("c", None), ("b", None))

    log.clean()

    assert content(log, "table") == [(2, b"a", b"2"), (3, b"c", None), (4, b"b", None)]
    assert log.beginning_offsets([TopicPartition("table", 0)]) == {TopicPartition("table", 0): 0}


def test_tombstones_go_when_readers_have_had_their_time(log: EmbeddedLog) -> None:
    log.create_topic("table", settings={"cleanup.policy": "compact", "delete.retention.ms": "0"})
    write(log, "table", ("a", "1"), ("b", "1"), ("b", None))

    log.clean()
    # A reader of the record that is gone has its time from now on, however old the tombstone is.
    assert content(log, "table") == [(0, b"a", b"1"), (2, b"b", None)]
    log.clean()

    assert content(log, "table") == [(0, b"a", b"1")]


def test_a_tombstone_outlives_the_record_it_deletes(log: EmbeddedLog) -> None:
    settings = {
        "cleanup.policy": "compact",
        "delete.retention.ms": "0",
        "min.compaction.lag.ms": str(DAY),
    }
    log.create_topic("table", settings=settings)
    write(log, "table", ("b", "1"), ("b", None))

    log.clean()

    assert content(log, "table") == [(0, b"b", b"1"), (1, b"b", None)]


def test_retention_drops_old_records_up_to_the_first_young_one(log: EmbeddedLog) -> None:
    log.create_topic("orders", settings={"retention.ms": str(DAY)})
    write(log, "orders", ("old", "1"), timestamp=now() - 2 * DAY)
    write(log, "orders", ("young", "2"))
    write(log, "orders", ("old", "3"), timestamp=now() - 2 * DAY)

    log.clean()

    assert [key for _, key, _ in content(log, "orders")] == [b"young", b"old"]
    assert log.beginning_offsets([TopicPartition("orders", 0)]) == {TopicPartition("orders", 0): 1}


def test_retention_can_drop_everything(log: EmbeddedLog) -> None:
    log.create_topic("orders", settings={"retention.ms": "0"})
    write(log, "orders", ("a", "1"), ("b", "2"), timestamp=1)

    log.clean()

    partition = TopicPartition("orders", 0)
    assert log.beginning_offsets([partition]) == log.end_offsets([partition]) == {partition: 2}


def test_retention_can_go_by_size(log: EmbeddedLog) -> None:
    log.create_topic("orders", settings={"retention.bytes": "25", "retention.ms": str(DAY)})
    write(log, "orders", *[("k", "123456789")] * 5)

    log.clean()

    assert [offset for offset, _, _ in content(log, "orders")] == [3, 4]


def test_without_settings_nothing_expires(log: EmbeddedLog) -> None:
    log.create_topic("orders")
    write(log, "orders", ("k", "v"), timestamp=1)

    log.clean()

    assert content(log, "orders") == [(0, b"k", b"v")]


def test_appending_cleans_from_time_to_time(log: EmbeddedLog) -> None:
    log.create_topic("table", settings={"cleanup.policy": "compact"})
    for number in range(25):
        write(log, "table", *[(f"k{n % 10}", str(number)) for n in range(100)])

    kept = content(log, "table")

    assert len(kept) < 1_000
    assert {key for _, key, _ in kept} == {b"k%d" % n for n in range(10)}


def test_an_offset_is_not_known_inside_a_transaction(path: Path) -> None:
    def ask(producer: KafkaProducer[str, str]) -> None:
        with producer.transaction():
            producer.send("orders", "k", "v").result()

    with KafkaProducer(key=str, value=str, transactional_id="t", embedded_path=path) as producer:
        with pytest.raises(StreamsError, match="Ask after the `with` block"):
            ask(producer)
        with producer.transaction():
            sent = producer.send("orders", "k", "v")

        assert sent.result().offset == 0


def test_a_buffer_that_stays_full_is_an_error(path: Path) -> None:
    EmbeddedLog(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    settings = {"buffer_memory": 10, "max_block": "10ms", "embedded_path": path}
    with KafkaProducer(key=str, value=str, **settings) as producer:  # type: ignore[arg-type]
        producer.send("orders", "k", "made").result(PATIENCE)
        other.execute("BEGIN IMMEDIATE")
        try:
            with pytest.raises(BufferExhaustedError, match=r"stayed full for 0\.01 s"):
                [producer.send("orders", "k", "v" * 20) for _ in range(3)]
            with pytest.raises(BrokerUnavailableError, match="not all written"):
                producer.flush("1ms")
        finally:
            other.execute("ROLLBACK")
            other.close()


def test_a_zombie_commits_no_offsets_either(log: EmbeddedLog) -> None:
    log.create_topic("orders")
    partition = TopicPartition("orders", 0)

    def commit_as_zombie() -> None:
        with log.transaction("t") as zombie:
            zombie.commit_offsets("g", {partition: OffsetAndMetadata(5)})
            with log.transaction("t"):
                pass

    with pytest.raises(ProducerFencedError):
        commit_as_zombie()

    assert log.committed_offsets("g") == {}


def test_a_member_that_was_put_out_cannot_commit_and_is_reported(log: EmbeddedLog) -> None:
    log.create_topic("orders")
    partition = TopicPartition("orders", 0)
    lost: list[TopicPartition] = []
    listener = RebalanceListener(log.beginning_offsets, lambda _: None, lost.extend)
    consumer = log.open_consumer(
        "g", {"session.timeout.ms": "40", "heartbeat.interval.ms": "100000"}
    )
    consumer.subscribe(["orders"], listener)
    consumer.poll(0, 1)
    other = log.open_consumer("g", {"client.id": "other"})
    other.subscribe(
        ["orders"], RebalanceListener(log.beginning_offsets, lambda _: None, lambda _: None)
    )

    def is_put_out() -> bool:
        other.poll(10, 1)
        members = [(member.client_id, member.partitions) for member in log.describe_group("g")]
        return members == [("other", (partition,))]

    await_that(is_put_out, "the other member alone", found=lambda: log.describe_group("g"))

    with pytest.raises(CommitFailedError, match="'g'"):
        consumer.commit({partition: OffsetAndMetadata(1)})
    consumer.poll(0, 1)
    consumer.close()
    other.close()

    assert lost == [partition]


def test_a_member_looks_again_when_the_shortest_session_of_its_group_ends(
    log: EmbeddedLog,
) -> None:
    log.create_topic("orders", partitions=2)
    listener = RebalanceListener(log.beginning_offsets, lambda _: None, lambda _: None)
    quick = {"session.timeout.ms": "2000", "heartbeat.interval.ms": "100000"}
    dying, survivor = (
        Membership(Database(log.path), "g", ["orders"], listener, settings)
        for settings in (quick, {})
    )
    while dying.follow() + survivor.follow():
        pass

    assert len(log.describe_group("g")) == 2
    assert 0 < survivor.next_look_ms <= 2_000
    for member in (dying, survivor):
        member.leave()


def test_a_member_that_does_not_poll_leaves(
    log: EmbeddedLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.create_topic("orders")
    settings = {"max.poll.interval.ms": "20", "heartbeat.interval.ms": "10"}
    consumer = log.open_consumer("g", settings)
    consumer.subscribe(
        ["orders"], RebalanceListener(log.beginning_offsets, lambda _: None, lambda _: None)
    )
    consumer.poll(0, 1)

    await_that(
        lambda: not log.describe_group("g"),
        "the member to leave",
        found=lambda: log.describe_group("g"),
    )
    consumer.close()

    assert "has not polled" in caplog.text


def test_new_partitions_are_shared_out(log: EmbeddedLog) -> None:
    log.create_topic("orders")
    consumer = log.open_consumer("g", {})
    consumer.subscribe(
        ["orders"], RebalanceListener(log.beginning_offsets, lambda _: None, lambda _: None)
    )
    consumer.poll(0, 1)

    log.grow_topic("orders", partitions=3)
    consumer.poll(0, 1)

    (member,) = log.describe_group("g")
    assert member.partitions == tuple(TopicPartition("orders", number) for number in range(3))
    log.delete_topic("orders")
    assert consumer.poll(10, 1) == []
    consumer.close()


def test_an_assigned_partition_that_is_deleted_is_an_error(log: EmbeddedLog) -> None:
    log.create_topic("orders")
    consumer = log.open_consumer(None, {})
    consumer.assign({TopicPartition("orders", 0): 0})
    log.delete_topic("orders")

    with pytest.raises(UnknownTopicError):
        consumer.poll(0, 1)
    consumer.close()


MEMBER = """
import sys
from headrace.clients import KafkaConsumer

path, name = sys.argv[1:]
consumer = KafkaConsumer(
    key=str, value=str, group_id="g", auto_offset_reset="earliest", embedded_path=path,
    client_id=name, session_timeout="2s", heartbeat_interval="50ms", enable_auto_commit=False,
)
consumer.subscribe(["orders"])
while True:
    # A commit covers all polled records: a test that sees it may end this process.
    for record in consumer.poll("20ms"):
        print(record.partition, record.value, flush=True)
    consumer.commit()
"""

WRITER = """
import sys
from headrace import ProducerRecord
from headrace.brokers.embedded import EmbeddedLog

log = EmbeddedLog(sys.argv[1])
for number in range(100):
    log.append([ProducerRecord("orders", 0, 1, sys.argv[2].encode(), b"%d" % number)])
"""


def test_several_processes_write_to_one_file(log: EmbeddedLog, path: Path) -> None:
    log.create_topic("orders")

    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in "ab"]
    codes = [writer.wait(PATIENCE) for writer in writers]

    written = content(log, "orders")
    assert codes == [0, 0]
    assert [offset for offset, _, _ in written] == list(range(200))
    for name in (b"a", b"b"):
        assert [value for _, key, value in written if key == name] == [
            b"%d" % n for n in range(100)
        ]


def test_processes_share_a_group_and_take_over_from_one_that_was_killed(
    log: EmbeddedLog, path: Path
) -> None:
    log.create_topic("orders", partitions=4)
    members = [
        subprocess.Popen(
            [sys.executable, "-c", MEMBER, str(path), name], stdout=subprocess.PIPE, text=True
        )
        for name in ("first", "second")
    ]

    def partitions() -> dict[str, int]:
        return {member.client_id: len(member.partitions) for member in log.describe_group("g")}

    def await_partitions(expected: dict[str, int]) -> None:
        await_that(lambda: partitions() == expected, f"{expected}", found=partitions)

    def committed() -> int:
        return sum(kept.offset for kept in log.committed_offsets("g").values())

    try:
        await_partitions({"first": 2, "second": 2})
        log.append(
            [ProducerRecord("orders", number % 4, 1, b"k", b"%d" % number) for number in range(8)]
        )
        await_that(lambda: committed() >= 8, "8 records to be read", found=committed)
        members[0].kill()
        await_partitions({"second": 4})
        log.append([ProducerRecord("orders", number, 1, b"k", b"late") for number in range(4)])
        await_that(lambda: committed() >= 12, "12 records to be read", found=committed)
    finally:
        for member in members:
            member.kill()
    first, second = (member.communicate()[0].split("\n")[:-1] for member in members)

    assert len(first) == 4
    assert len(second) == 8
    assert not set(first) & set(second[:4])
    assert sorted(second[4:]) == [f"{number} late" for number in range(4)]
