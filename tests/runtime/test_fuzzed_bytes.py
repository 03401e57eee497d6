"""Whatever bytes a topic holds, the application continues or raises, and counts every drop."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from headrace import (
    DeserializationError,
    ProcessingError,
    RecordError,
    StreamsConfig,
)
from headrace.brokers import open_log
from headrace.brokers.log import TopicPartition
from headrace.records import headers_of
from headrace.runtime.run_files import BatchResult
from headrace.testing import TopologyTestDriver
from tests.hostile import (
    INPUTS,
    NASTY,
    SERDES,
    TOPICS,
    VALID,
    fuzzed,
    hostile_payloads,
    hostile_topology,
)
from tests.runtime.in_process import InProcessQuery

STEPS = ("read", "work")


@pytest.fixture(params=[10_000, pytest.param(100_000, marks=pytest.mark.nightly("faults"))])
def each(request: pytest.FixtureRequest) -> int:
    """The number of records in each topic."""
    records: int = request.param
    return records // len(INPUTS) + 1


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)  # a line for each record that is dropped
    yield
    logging.disable(logging.NOTSET)


class Application:
    """The topology in this process, over topics that are full of hostile records."""

    def __init__(self, folder: Path, each: int, **settings: Any) -> None:
        config = StreamsConfig(application_id="application", state_dir=folder)
        log = open_log(config)
        for topic in INPUTS:
            log.create_topic(topic, partitions=2)
            log.create_topic(f"out-{topic}", partitions=2)
            log.append(
                (topic, number % 2, *record[2:3], *record[:2], headers_of(record[3]))
                for number, record in enumerate(fuzzed(topic, each))
            )
        log.create_topic("dead", partitions=2)
        log.close()
        self.query = InProcessQuery(
            hostile_topology(), folder, statestore_cache_max_bytes=0, **settings
        )

    def held(self, topic: str) -> int:
        names = [TopicPartition(topic, number) for number in range(2)]
        return sum(self.query.log.end_offsets(names).values())

    def processed(self, topic: str) -> int:
        """Return how many records of a topic were read."""
        (subtopology,) = (p for p in self.query.plan.subtopologies if f"read-{topic}" in p.nodes)
        totals = self.query.run_files.read(BatchResult).totals
        return sum(totals.processed[f"{subtopology.id}_{number}"] for number in range(2))

    def dropped(self, node: str) -> Counter[str]:
        """Return how many records a step dropped, by reason."""
        return sum(
            (Counter(by_node.get(node, {})) for by_node in self.query.dropped().values()),
            Counter[str](),
        )


def check_that_all_are_counted(application: Application, each: int) -> None:
    for topic in INPUTS:
        unread = application.dropped(f"read-{topic}")
        step = "count" if topic == "counted" else f"work-{topic}"
        failed = application.dropped(step)

        assert unread["deserialization"] > each // 10
        assert unread.keys() <= {"deserialization"}
        assert failed.keys() == ({"null-key", "late"} if step == "count" else {"processing"})
        assert application.held(f"out-{topic}") > each // 100
        assert application.processed(topic) + unread.total() == each
        assert application.processed(topic) == application.held(f"out-{topic}") + failed.total()


def test_records_that_are_left_out_are_counted(each: int, tmp_path: Path) -> None:
    application = Application(
        tmp_path,
        each,
        deserialization_exception_handler="continue",
        processing_exception_handler="continue",
    )

    application.query.run()

    check_that_all_are_counted(application, each)
    totals = application.query.run_files.read(BatchResult).totals
    counted = {
        (node, reason)
        for nodes in totals.dropped.values()
        for node, reasons in nodes.items()
        for reason in reasons
        if reason in ("deserialization", "processing", "serialization")
    }
    assert counted
    assert {(failure.node, failure.reason) for failure in totals.failures} == counted


def test_records_that_are_left_out_are_dead_letters_each(each: int, tmp_path: Path) -> None:
    application = Application(
        tmp_path,
        each,
        deserialization_exception_handler="continue",
        processing_exception_handler="continue",
        errors_dead_letter_queue_topic_name="dead",
    )

    application.query.run()

    check_that_all_are_counted(application, each)
    failed = [application.dropped(f"{what}-{topic}") for topic in TOPICS for what in STEPS]
    failed.append(application.dropped("read-counted"))
    assert application.held("dead") == sum(each.total() for each in failed)


def test_every_record_that_stops_the_application_is_named(each: int, tmp_path: Path) -> None:
    driver = TopologyTestDriver(
        hostile_topology(), state_dir=tmp_path, statestore_cache_max_bytes=0
    )
    for topic in INPUTS:
        wrong: list[int] = []
        reported: list[tuple[str | None, int]] = []
        for offset, (key, value, timestamp, headers) in enumerate(fuzzed(topic, each)):
            try:
                driver.pipe_raw(topic, key, value, timestamp, headers_of(headers))
            except (DeserializationError, ProcessingError) as error:
                wrong.append(offset)
                reported.append((error.topic, error.offset))
        assert each // 10 < len(wrong) < each
        assert reported == [(topic, offset) for offset in wrong]


def test_a_batch_with_a_record_that_stops_the_application_writes_nothing(tmp_path: Path) -> None:
    application = Application(tmp_path, 40)

    with pytest.raises(RecordError, match=r"(could not read the|failed on the record at) "):
        application.query.run()

    assert [topic for topic in INPUTS if application.held(f"out-{topic}")] == []


@pytest.mark.parametrize("name", SERDES)
def test_a_serde_reads_bytes_or_refuses_them_as_wrong(name: str) -> None:
    serde = SERDES[name]
    refused = 0
    for payload in (*VALID, *NASTY, *islice(hostile_payloads(7), 5_000)):
        try:
            value = serde.deserialize(payload)
        except ValueError:
            refused += 1
        else:
            serde.serialize(value)

    assert (refused == 0) == (name == "bytes")
