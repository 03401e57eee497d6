"""A damaged file, or one that is no embedded log, raises an error with its name, and no other."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headrace import BrokerError, Headers, ProducerRecord, StreamsError
from headrace.brokers import OffsetAndMetadata, TopicPartition
from headrace.brokers.embedded import EmbeddedLog
from headrace.brokers.sessions import RebalanceListener
from headrace.records import ConsumerRecord

ORDERS = TopicPartition("orders", 0)
PAYMENTS = TopicPartition("payments", 0)
SEEDS = range(50)
INNER_PAGE = 5
NOBODY = RebalanceListener(lambda names: dict.fromkeys(names, 0), lambda _: None, lambda _: None)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small log with something in every table."""
    folder = tmp_path_factory.mktemp("sound")
    log = EmbeddedLog(folder / "topics.db")
    log.create_topic("orders", partitions=2, settings={"retention.ms": "86400000000"})
    log.create_topic("payments", settings={"cleanup.policy": "compact"})
    headers = Headers([("trace", b"12"), ("empty", None)])
    for number in range(40):
        key, value = b"key-%d" % number, b"value-%d" % number
        log.append([ProducerRecord("orders", number % 2, number, key, value, headers)])
        log.append([ProducerRecord("payments", 0, number, key, value)])
    log.commit_offsets("readers", {ORDERS: OffsetAndMetadata(7, "seven")})
    log.fence_producers(["writer"])
    member = log.open_consumer("members", {})
    member.subscribe(["orders"], NOBODY)
    member.poll(0, 1)
    with sqlite3.connect(log.path) as connection:
        connection.execute("VACUUM INTO ?", [str(folder / "sound.db")])
    connection.close()
    member.close()
    log.close()
    return folder / "sound.db"


@pytest.fixture
def path(sound: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return Path(shutil.copy(sound, tmp_path / "topics.db"))


def reads(log: EmbeddedLog) -> list[Callable[[], Any]]:
    """Return everything that can be asked of a log."""
    return [
        log.list_topics,
        log.list_groups,
        lambda: log.partition_count("orders"),
        lambda: log.describe_topic("orders"),
        lambda: records(log, ORDERS),
        lambda: records(log, PAYMENTS),
        lambda: list(log.read_ranges([(ORDERS, 0, 20), (PAYMENTS, 0, 40)])),
        lambda: log.beginning_offsets([ORDERS, PAYMENTS]),
        lambda: log.end_offsets([ORDERS, PAYMENTS]),
        lambda: log.offsets_for_times({ORDERS: 11, PAYMENTS: 11}),
        lambda: log.committed_offsets("readers"),
        lambda: log.committed_offsets("readers", [ORDERS]),
        lambda: log.describe_group("members"),
        lambda: polled(log, None),
        lambda: polled(log, "members"),
    ]


def records(log: EmbeddedLog, partition: TopicPartition) -> list[ConsumerRecord]:
    found = [record for some in log.read(partition, 0, 40) for record in some]
    for record in found:
        assert isinstance(record.key, bytes | None)
        assert isinstance(record.value, bytes | None)
        assert isinstance(record.timestamp, int)
    return found


def polled(log: EmbeddedLog, group: str | None) -> list[ConsumerRecord]:
    """Return what a consumer reads, with a group or without."""
    consumer = log.open_consumer(group, {"auto.offset.reset": "earliest"})
    try:
        if group is None:
            consumer.assign({ORDERS: 0})
        else:
            consumer.subscribe(["orders"], NOBODY)
        return list(consumer.poll(0, 100))
    finally:
        consumer.close()


def damage(path: Path, seed: int) -> None:
    """Change some bytes of a file, or cut it short."""
    chance = random.Random(seed)
    content = bytearray(path.read_bytes())
    if chance.random() < 0.1:
        del content[chance.randrange(len(content)) :]
    for _ in range(chance.choice([1, 1, 2, 5, 20]) if content else 0):
        content[chance.randrange(len(content))] = chance.randrange(256)
    path.write_bytes(content)


def changed(path: Path, statement: str, *values: Any) -> EmbeddedLog:
    """Return a log whose file another program has changed."""
    with sqlite3.connect(path) as connection:
        assert connection.execute(statement, values).rowcount != 0
    connection.close()
    return EmbeddedLog(path)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_damage_raises_an_error_or_changes_nothing(path: Path, seed: int) -> None:
    damage(path, seed)
    with suppress(StreamsError):
        log = EmbeddedLog(path)
        for read in reads(log):
            with suppress(StreamsError):
                read()
        log.close()


@pytest.mark.parametrize(
    ("statement", "value", "read"),
    [
        ("UPDATE record SET headers = ?", b"\xc1", 4),
        ("UPDATE record SET headers = ?", b"\x91\x92\xa1\xff\xc0", 4),
        ("UPDATE record SET headers = ?", "text", 4),
        ("UPDATE record SET key = ?", 5, 4),
        ("UPDATE record SET value = ?", "text", 4),
        ("UPDATE record SET timestamp = ?", "text", 4),
        ("UPDATE record SET timestamp = ?", "text", 9),
        ("UPDATE topic SET settings = ?", "{", 3),
        ("UPDATE topic SET settings = ?", b"{}", 3),
        ("UPDATE topic SET settings = ?", '{"retention.ms": "soon"}', 8),
        ("UPDATE topic SET name = ? WHERE name = 'payments'", b"\xff", 0),
        ("UPDATE topic SET name = CAST(? AS TEXT) WHERE name = 'payments'", b"\xff", 0),
        ("UPDATE partition SET end_offset = ?", "text", 8),
        ("UPDATE partition SET log_start_offset = ?", 1 << 39, 7),
        ("UPDATE committed SET metadata = ?", b"seven", 10),
        ('UPDATE committed SET "offset" = ?', -1, 11),
        ("UPDATE consumer_group SET state = ?", "{}}", 12),
        ("UPDATE consumer_group SET state = ?", b"{}", 12),
        ("UPDATE consumer_group SET state = ?", "[]", 14),
    ],
)
def test_an_impossible_row_is_an_error_that_names_the_file(
    path: Path, statement: str, value: object, read: int
) -> None:
    log = changed(path, statement, value)

    with pytest.raises(BrokerError, match="is damaged, or no embedded log") as caught:
        reads(log)[read]()

    assert repr(str(path)) in str(caught.value)
    assert "Restore a copy of it, or choose another file" in str(caught.value)
    log.close()


def test_records_out_of_order_do_not_send_a_reader_round_and_round(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        question = "SELECT rootpage FROM sqlite_master WHERE name = 'record'"
        (page,) = connection.execute(question).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    content = bytearray(path.read_bytes())
    # An inner page names its children in cells; a leaf names the places of its records in order.
    while content[start := (page - 1) * size] == INNER_PAGE:
        cell = start + int.from_bytes(content[start + 12 : start + 14], "big")
        page = int.from_bytes(content[cell : cell + 4], "big")
    fourth, fifth = content[start + 14 : start + 16], content[start + 16 : start + 18]
    content[start + 14 : start + 18] = fifth + fourth
    path.write_bytes(content)
    log = EmbeddedLog(path)

    with pytest.raises(BrokerError, match="out of order"):
        records(log, ORDERS)
    log.close()


def test_a_record_where_the_next_one_should_go_is_damage(path: Path) -> None:
    log = changed(path, "UPDATE partition SET end_offset = end_offset - 1")

    with pytest.raises(BrokerError, match="is damaged"):
        log.append([ProducerRecord("orders", 0, 1, b"k", b"v")])
    log.close()


def test_a_database_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE notes (text)")
    connection.close()
    before = path.read_bytes()

    with pytest.raises(BrokerError, match="it has tables of another program"):
        EmbeddedLog(path)

    assert path.read_bytes() == before


def test_a_database_without_our_tables_is_reported(path: Path) -> None:
    log = changed(path, "DROP TABLE committed")

    with pytest.raises(BrokerError, match="no such table: committed"):
        log.committed_offsets("readers")
    log.close()
