"""Whole queries on the embedded log: which records a batch reads, and the results."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace import (
    OffsetOutOfRangeError,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    StreamsBuilder,
    StreamsConfig,
)
from headrace.brokers import open_log
from headrace.brokers.log import TopicPartition
from headrace.brokers.sessions import Broker
from headrace.runtime.run_files import BatchResult
from tests.runtime.changelogs import changes
from tests.runtime.in_process import InProcessQuery

Build = Callable[[StreamsBuilder], object]


def log_with(folder: Path, **topics: int) -> Broker:
    log = open_log(StreamsConfig(application_id="application", state_dir=folder))
    for topic, partitions in topics.items():
        log.create_topic(topic, partitions=partitions)
    return log


def append(log: Broker, topic: str, *values: int, key: str = "k", partition: int = 0) -> None:
    log.append(
        [
            (topic, partition, value, key.encode(), value.to_bytes(8, "big"), None)
            for value in values
        ]
    )


def values(log: Broker, topic: str, partition: int = 0) -> list[int]:
    name = TopicPartition(topic, partition)
    end = log.end_offsets([name])[name]
    return [
        int.from_bytes(record.value or b"", "big")
        for some in log.read(name, 0, end)
        for record in some
    ]


def start(build: Build, folder: Path, **settings: Any) -> InProcessQuery:
    builder = StreamsBuilder()
    build(builder)
    return InProcessQuery(builder.build(), folder, **settings)


def copying(builder: StreamsBuilder) -> None:
    builder.stream("in", key=str, value=int).to("out")


def test_topics_that_the_query_writes_are_read_to_their_end_in_a_later_batch(
    tmp_path: Path,
) -> None:
    def build(builder: StreamsBuilder) -> None:
        builder.stream("in", key=str, value=int).to("middle")
        again = builder.stream("middle", key=str, value=int)
        again.map_values(lambda value: value + 1, value=int).to("out")

    log = log_with(tmp_path, **{"in": 1, "middle": 1})
    append(log, "in", 1, 2)
    query = start(build, tmp_path)
    query.planner.stop_at_current_ends()
    append(log, "in", 3)

    query.run()

    assert values(log, "out") == [2, 3]
    assert query.batches == 2


class Ticking(Processor[str, int, str, int]):
    """Forwards how many records it has seen, every millisecond."""

    def init(self, context: ProcessorContext[str, int]) -> None:
        super().init(context)
        self._seen = 0
        context.schedule(timedelta(milliseconds=1), PunctuationType.WALL_CLOCK_TIME, self.tick)

    def process(self, record: Record[str, int]) -> None:
        self._seen += 1

    def tick(self, timestamp: int) -> None:
        self.context.forward(Record("k", self._seen, timestamp))


@pytest.mark.parametrize("target", ["out", "in"])
def test_a_schedule_that_is_shorter_than_a_batch_does_not_keep_a_query_from_its_end(
    tmp_path: Path, target: str
) -> None:
    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("in", key=str, value=int)
        stream.process(Ticking, key=str, value=int).to(target)

    log = log_with(tmp_path, **{"in": 1, "out": 1})
    append(log, "in", 1, 2)
    query = start(build, tmp_path)
    query.planner.stop_at_current_ends()

    ended = not all(query.batch() for _ in range(20))

    assert ended
    assert values(log, target)


def test_a_foreign_key_join_goes_through_the_log_and_ends(tmp_path: Path) -> None:
    def build(builder: StreamsBuilder) -> None:
        orders = builder.table("orders", key=str, value=int)
        customers = builder.table("customers", key=str, value=int)
        joined = orders.join(
            customers, lambda o, c: o * 100 + c, foreign_key=lambda o: f"c{o}", value=int
        )
        joined.to_stream().to("out")

    log = log_with(tmp_path, orders=1, customers=1, out=1)
    append(log, "orders", 1, key="o1")
    append(log, "orders", 2, key="o2")
    append(log, "customers", 7, key="c1")
    query = start(build, tmp_path)

    query.run()

    assert values(log, "out") == [107]


def test_global_tables_are_loaded_before_the_first_record(tmp_path: Path) -> None:
    def build(builder: StreamsBuilder) -> None:
        rates = builder.global_table("rates", key=str, value=int)
        stream = builder.stream("in", key=str, value=int)
        stream.left_join(
            rates, lambda v, r: v * 10 + (r or 0), on=lambda key, _v: key, value=int
        ).to("out")

    log = log_with(tmp_path, **{"in": 2, "rates": 1, "out": 1})
    append(log, "in", 1)
    append(log, "in", 2, partition=1)
    append(log, "rates", 7)
    query = start(build, tmp_path)
    query.run()

    append(log, "rates", 9)
    append(log, "in", 3)
    query.run()

    assert sorted(values(log, "out")) == [17, 27, 39]


def test_new_tasks_read_a_new_topic_that_matches_a_pattern(tmp_path: Path) -> None:
    def build(builder: StreamsBuilder) -> None:
        builder.stream(re.compile("log-.*"), key=str, value=int).to("out")

    log = log_with(tmp_path, **{"log-a": 1, "out": 1})
    append(log, "log-a", 1)
    query = start(build, tmp_path)
    query.run()

    log.create_topic("log-b", partitions=2)
    append(log, "log-b", 2, partition=1)
    query.planner._bounds._refreshed_at = float("-inf")
    query.run()

    assert sorted(values(log, "out")) == [1, 2]
    assert query.run_files.read(BatchResult).totals.processed == {"0_0": 1, "0_1": 1}


def test_the_first_topic_that_a_pattern_matches_is_counted_and_a_restart_has_its_tasks(
    tmp_path: Path,
) -> None:
    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream(re.compile("log-.*"), key=str, value=int)
        stream.group_by_key().count(materialized="counts").to_stream().to("out")

    log = log_with(tmp_path, out=1)
    query = start(build, tmp_path, statestore_cache_max_bytes=0)
    query.run()

    log.create_topic("log-a", partitions=2)
    append(log, "log-a", 7, 8, partition=1)
    query.planner._bounds._refreshed_at = float("-inf")
    query.run()
    again = start(build, tmp_path, batch_log=query._batch_log)

    assert values(log, "out") == [1, 2]
    assert len(changes(log, "application-counts-changelog", 1)) == 1
    assert again.layout.count_of(0) == 2


def test_the_first_topic_that_a_pattern_matches_is_counted_behind_a_repartition(
    tmp_path: Path,
) -> None:
    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream(re.compile("log-.*"), key=str, value=int)
        grouped = stream.group_by(lambda _, value: str(value), key=str)
        grouped.count(materialized="counts").to_stream().to("out")

    log = log_with(tmp_path, out=1)
    query = start(build, tmp_path, statestore_cache_max_bytes=0)
    query.run()

    log.create_topic("log-a", partitions=2)
    append(log, "log-a", 7, 7, partition=1)
    query.planner._bounds._refreshed_at = float("-inf")
    query.run()

    assert values(log, "out") == [1, 2]


def test_the_group_of_the_application_has_its_progress(tmp_path: Path) -> None:
    log = log_with(tmp_path, **{"in": 1})
    append(log, "in", 1, 2, 3)

    start(copying, tmp_path).run()

    committed = log.committed_offsets("application")
    assert {name: each.offset for name, each in committed.items()} == {TopicPartition("in", 0): 3}


def test_a_record_that_is_buffered_behind_a_repartition_is_not_committed_until_it_is_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(builder: StreamsBuilder) -> None:
        table = builder.table("table", key=str, value=int)
        stream = builder.stream("in", key=str, value=int).repartition()
        stream.join(table, lambda a, b: a + b, value=int).to("out")

    for bound in ("FIRST_RECORDS", "FIRST_TABLE_RECORDS"):
        monkeypatch.setattr(f"headrace.runtime.planning.admission.{bound}", 5)
    monkeypatch.setattr("headrace.runtime.planning.admission.MIN_RECORDS", 1)
    log = log_with(tmp_path, **{"in": 1, "table": 1, "out": 1})
    append(log, "table", *range(1, 21))
    append(log, "in", 100, 101)
    query = start(build, tmp_path)
    read = TopicPartition("in", 0)
    seen: list[tuple[int, int]] = []

    def plan_next() -> None:
        query.planner.next(query.position)
        committed = log.committed_offsets("application").get(read)
        seen.append((0 if committed is None else committed.offset, len(values(log, "out"))))

    while query.batch():
        plan_next()
        query.restart_planner()
        plan_next()

    assert seen[0] == (0, 0)
    assert seen[-1] == (2, 2)
    assert all(processed <= results for processed, results in seen)


def lose_under_way(folder: Path, **settings: Any) -> InProcessQuery:
    """Plan a batch, delete its first records, and run it."""
    log = log_with(folder, **{"in": 1})
    append(log, "in", *range(1, 7))
    query = start(copying, folder, **settings)
    end = query.planner.next(query.position)
    log.delete_records({TopicPartition("in", 0): 4})
    query.replay(query.position, end)
    return query


def test_records_that_are_deleted_between_planning_and_reading_stop_the_query(
    tmp_path: Path,
) -> None:
    with pytest.raises(OffsetOutOfRangeError, match="Offset 0 of 'in', partition 0, is gone"):
        lose_under_way(tmp_path)


def test_records_that_are_deleted_between_planning_and_reading_may_be_skipped_and_counted(
    tmp_path: Path,
) -> None:
    query = lose_under_way(tmp_path, fail_on_data_loss=False)

    assert values(query.log, "out") == [5, 6]
    assert query.dropped() == {"0_0": {"in": {"lost": 4}}}
    assert query.run_files.read(BatchResult).totals.lost == 4


def lose_before(folder: Path, **settings: Any) -> InProcessQuery:
    """Delete two of three records before their batch is planned."""
    log = log_with(folder, **{"in": 1})
    append(log, "in", 1, 2, 3)
    query = start(copying, folder, **settings)
    log.delete_records({TopicPartition("in", 0): 2})
    return query


def test_records_lost_before_a_batch_stop_the_query(tmp_path: Path) -> None:
    query = lose_before(tmp_path)

    with pytest.raises(OffsetOutOfRangeError, match="Offset 0 of 'in', partition 0, is gone"):
        query.run()


def test_records_lost_before_a_batch_may_be_skipped_and_counted(tmp_path: Path) -> None:
    query = lose_before(tmp_path, fail_on_data_loss=False)

    query.run()

    assert values(query.log, "out") == [3]
    assert query.run_files.read(BatchResult).totals.lost == 2


def test_lost_records_are_counted_once_if_the_planner_restarts(tmp_path: Path) -> None:
    query = lose_before(tmp_path, fail_on_data_loss=False)
    query.run()

    query.restart_planner()
    append(query.log, "in", 4)
    query.run()

    assert values(query.log, "out") == [3, 4]
    assert query.run_files.read(BatchResult).totals.lost == 2


def test_records_that_a_batch_skips_are_counted_although_its_first_attempt_fails(
    tmp_path: Path,
) -> None:
    query = lose_before(tmp_path, fail_on_data_loss=False)
    planned = query.planner.next(query.position)

    query.restart_planner()
    query.replay(query.position, planned)
    query.position = planned
    query.run()

    assert query.run_files.read(BatchResult).totals.lost == 2


def test_lost_records_of_an_empty_partition_are_counted(tmp_path: Path) -> None:
    def build(builder: StreamsBuilder) -> None:
        builder.global_table("rates", key=str, value=int)
        copying(builder)

    log = log_with(tmp_path, **{"in": 2, "rates": 2})
    query = start(build, tmp_path, fail_on_data_loss=False)
    append(log, "in", 1, 2, 3)
    append(log, "rates", 1, 2, 3, partition=1)
    gone = {TopicPartition("in", 0): 3, TopicPartition("rates", 1): 1}
    log.delete_records(gone)
    append(log, "in", 4, partition=1)

    query.run()

    assert query.dropped() == {"-1_0": {"rates": {"lost": 1}}, "1_0": {"in": {"lost": 3}}}
    assert query.run_files.read(BatchResult).totals.lost == 4


def test_refused_and_written_records_are_counted(tmp_path: Path) -> None:
    log = log_with(tmp_path, **{"in": 1})
    log.create_topic("out", settings={"cleanup.policy": "compact"})
    append(log, "in", 1, 2)
    log.append([("in", 0, 3, None, (3).to_bytes(8, "big"), None)])
    query = start(
        copying,
        tmp_path,
        production_exception_handler="continue",
        errors_dead_letter_queue_topic_name="letters",
    )

    query.run()

    totals = query.run_files.read(BatchResult).totals
    assert values(log, "out") == [1, 2]
    assert totals.written == {"out": 2, "letters": 1}
    assert totals.refused == {"out": 1}
    [[dead_letter]] = log.read(TopicPartition("letters", 0), 0, 1)
    facts = dict(dead_letter.headers)
    assert [facts[f"__streams.errors.{name}"] for name in ("topic", "partition", "offset")] == [
        *(b"in", b"0", b"2")
    ]


@pytest.mark.parametrize("repartitioned", [False, True])
def test_tasks_report_how_much_they_make_of_their_records(
    tmp_path: Path, *, repartitioned: bool
) -> None:
    def many(builder: StreamsBuilder) -> None:
        stream = builder.stream("in", key=bytes, value=bytes)
        made = stream.flat_map_values(lambda value: [value * 100] * 50, value=bytes)
        if repartitioned:
            made = made.repartition(name="again")
        made.to("out")

    log = log_with(tmp_path, **{"in": 1, "out": 1})
    log.append([("in", 0, 1, b"k", bytes(10), None) for _ in range(4)])
    query = start(many, tmp_path)

    query.run()

    reports = query.run_files.read(BatchResult).reports
    size = 4 * 50 * 1_000
    stages = 2 if repartitioned else 1
    assert sum(each.bytes_read for each in reports) < size
    assert stages * size <= sum(each.bytes_written for each in reports) < 1.2 * stages * size
