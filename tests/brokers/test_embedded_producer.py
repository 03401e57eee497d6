"""The thread of a producer of the embedded log: its reports of records that it cannot write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace import BrokerUnavailableError, ProducerRecord, StreamsError, UnknownTopicError
from headrace.brokers import TopicPartition
from headrace.brokers.embedded import EmbeddedLog
from headrace.brokers.embedded.database import Database
from headrace.brokers.embedded.producer import EmbeddedProducer
from headrace.brokers.embedded.writing import write
from headrace.brokers.log import RawRecord
from headrace.errors import RecordRefusedError
from headrace.records import RecordMetadata
from tests.brokers.appending import record, values

ORDERS = TopicPartition("orders", 0)


class Sending:
    """A producer that gathers what it is sent until it is flushed, and what it tells of that."""

    def __init__(self, session: EmbeddedProducer) -> None:
        self._session = session
        self.reports: dict[bytes | None, RecordMetadata | StreamsError | None] = {}

    def send(self, *records: ProducerRecord) -> None:
        for each in records:
            self._session.send(each, self._teller(each.value))
        self._session.flush(20_000)

    def _teller(
        self, value: bytes | None
    ) -> Callable[[RecordMetadata | None, StreamsError | None], None]:
        def tell(where: RecordMetadata | None, error: StreamsError | None) -> None:
            assert value not in self.reports
            self.reports[value] = where or error

        return tell


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    opened = EmbeddedLog(tmp_path / "topics.db", busy_ms=200)
    opened.create_topic("orders", settings={"max.message.bytes": "1000"})
    yield opened
    opened.close()


@pytest.fixture
def sending(log: EmbeddedLog) -> Iterator[Sending]:
    session = log.open_producer({"linger.ms": "60000"})
    yield Sending(session)
    session.close()


def test_records_that_a_busy_log_rejects_raise_at_once(log: EmbeddedLog, sending: Sending) -> None:
    names = [b"%d" % number for number in range(20)]

    with log._database.writing():
        sending.send(*(record("orders", name) for name in names))

    assert list(sending.reports) == names
    assert isinstance(sending.reports[b"0"], BrokerUnavailableError)
    assert len({id(error) for error in sending.reports.values()}) == 1  # it was tried once


def test_refused_records_do_not_hold_back_the_others(log: EmbeddedLog, sending: Sending) -> None:
    large = b"x" * 2_000

    sending.send(
        record("orders", b"a"),
        record("orders", large),
        record("elsewhere", b"lost"),
        record("orders", b"b"),
    )

    assert values(log, ORDERS) == [b"a", b"b"]
    assert sending.reports[b"b"] == RecordMetadata("orders", 0, 1)
    assert isinstance(sending.reports[large], RecordRefusedError)
    assert isinstance(sending.reports[b"lost"], UnknownTopicError)


def test_a_log_that_becomes_busy_while_records_are_tried_alone_is_tried_no_more(
    sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []

    def write_twice(database: Database, records: list[RawRecord]) -> list[RecordMetadata]:
        attempts.append(len(records))
        if len(attempts) > 2:
            raise BrokerUnavailableError("It is in use.")
        return write(database, records)

    monkeypatch.setattr("headrace.brokers.embedded.producer.write", write_twice)

    sending.send(*(record("orders", value) for value in (b"a", b"x" * 2_000, b"b", b"c")))

    assert attempts == [4, 1, 1]
    assert sending.reports[b"a"] == RecordMetadata("orders", 0, 0)
    untold = [sending.reports[value] for value in (b"x" * 2_000, b"b", b"c")]
    assert [str(error) for error in untold] == ["It is in use."] * 3
