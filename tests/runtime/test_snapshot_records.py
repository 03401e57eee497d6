"""The leader writes a snapshot record after each batch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from headrace import Materialized, StreamsBuilder, StreamsConfig, TimeWindows, Topology
from headrace.brokers import open_log
from headrace.brokers.log import OffsetAndMetadata, TopicPartition
from headrace.clients.reset import forget_application
from headrace.errors import BrokerUnavailableError, CheckpointError
from headrace.home import ApplicationHome
from headrace.runtime.checkpoint.batch_log import MemoryBatchLog
from headrace.runtime.in_process import QUERY_ID
from headrace.runtime.leadership import open_leadership
from headrace.runtime.plan import GLOBAL_TASK
from headrace.runtime.planning.snapshot_writer import SnapshotWriter
from headrace.runtime.run_files import BatchResult, Control
from headrace.runtime.snapshots import SnapshotRecord, decode_snapshot
from headrace.topology.naming import leader_name, markers_name, snapshots_name
from tests.kafka_broker import RunningBroker
from tests.runtime.changelogs import changelogs_that_differ, changes
from tests.runtime.in_process import InProcessQuery
from tests.unique_names import unique
from tests.waiting import PATIENCE, await_that


class Application:
    """An application that counts, by key and by window behind a repartition."""

    def __init__(self, folder: Path, address: str | None = None, **settings: Any) -> None:
        self.id = unique("snapshots")
        self._folder = folder
        self._settings: dict[str, Any] = {"application_id": self.id, **settings}
        if address is not None:
            self._settings["bootstrap_servers"] = address
        self.log = open_log(StreamsConfig(**self._settings).with_settings(state_dir=folder))
        self.input = f"{self.id}.in"
        self.log.create_topic(self.input, partitions=2)
        self.batch_log = MemoryBatchLog(QUERY_ID)
        self.query = self._new_query(0)
        self.last_ends: dict[TopicPartition, int] = {}

    def topology(self) -> Topology:
        builder = StreamsBuilder()
        lines = builder.stream(self.input, key=str, value=str)
        lines.group_by_key().count(materialized=Materialized("counts"))
        by_value = lines.group_by(lambda _, value: value, key=str, value=str)
        by_value.windowed_by(TimeWindows("1h")).count(materialized=Materialized("windows"))
        return builder.build()

    def _new_query(self, leader_epoch: int) -> InProcessQuery:
        return InProcessQuery(
            self.topology(),
            self._folder,
            batch_log=self.batch_log,
            leader_epoch=leader_epoch,
            **self._settings,
        )

    @property
    def writer(self) -> SnapshotWriter:
        assert self.query.planner.snapshots is not None
        return self.query.planner.snapshots

    @property
    def changelogs(self) -> list[TopicPartition]:
        return [
            TopicPartition(f"{self.id}-{store}-changelog", partition)
            for store in ("counts", "windows")
            for partition in range(2)
        ]

    def feed(self, number: int) -> None:
        """Write one record to each partition."""
        self.log.append(
            [
                (self.input, partition, number * 60_000 + 1, b"k%d" % (number % 3), b"v", None)
                for partition in range(2)
            ]
        )

    def run(self, number: int) -> SnapshotRecord:
        """Run the batch of some records; return the newest record."""
        self.feed(number)
        self.query.run()
        return self.newest()

    def records(self) -> list[tuple[bytes | None, SnapshotRecord | None]]:
        """Return the keys and records of the snapshots topic."""
        return [
            (record.key, None if record.value is None else decode_snapshot(record.value))
            for record in changes(self.log, snapshots_name(self.id), 0)
        ]

    def newest(self) -> SnapshotRecord:
        found = [record for _, record in self.records() if record is not None]
        return found[-1]

    def take_over(self, leader_epoch: int) -> None:
        """Continue with another leader, from the same checkpoint."""
        before = self.query
        group = leader_name(self.id)
        offset = {TopicPartition(group, 0): OffsetAndMetadata(leader_epoch)}
        self.log.commit_offsets(group, offset)
        self.query = self._new_query(leader_epoch)
        self.query._blobs = before._blobs
        self.query.position, self.query.batches = before.position, before.batches

    def new_changes(self) -> dict[str, dict[int, int]]:
        """Return how many records each changelog has behind the ends of the last call."""
        found: dict[str, dict[int, int]] = {}
        for name in self.changelogs:
            records = [
                record
                for record in changes(self.log, *name)
                if record.offset >= self.last_ends.get(name, 0)
            ]
            if records:
                self.last_ends[name] = records[-1].offset + 1
                found.setdefault(name.topic, {})[name.partition] = len(records)
        return found


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Application]:
    application = Application(tmp_path)
    yield application
    application.log.close()


def check_sequence(app: Application) -> None:
    """Check that each batch has its record, with what the changelogs and tasks have then."""
    for number in range(6):
        record = app.run(number)
        assert (record.snapshot, record.since, record.history) == (number, number - 1, QUERY_ID)
        assert record.changes == app.new_changes()
        assert record.ends == {
            f"{app.id}-{store}-changelog": [
                app.last_ends.get(TopicPartition(f"{app.id}-{store}-changelog", partition), 0)
                for partition in range(2)
            ]
            for store in ("counts", "windows")
        }
        assert record.position == {app.input: app.query.position.offsets[app.input]}
        times = [task.save().store_times.get("windows") for task in app.query.tasks_of("windows")]
        assert record.store_times[f"{app.id}-windows-changelog"] == times
        assert record.store_times[f"{app.id}-counts-changelog"] == [None, None]
        assert record.clock == app.query.position.clock


def test_each_batch_has_its_record(app: Application) -> None:
    check_sequence(app)


def test_each_batch_has_its_record_on_kafka(tmp_path: Path, kafka: RunningBroker) -> None:
    app = Application(tmp_path, kafka.address)

    check_sequence(app)

    [name, *_] = app.changelogs
    ends = app.log.uncommitted_ends([name])
    assert ends[name] == app.last_ends[name] + 1, "the end of the transaction does not count"
    app.log.close()


def test_the_last_record_is_written_again_after_five_seconds(app: Application) -> None:
    record = app.run(0)
    app.query.run()
    seconds = app.writer._clock()
    app.writer._clock = lambda: seconds + 4
    app.writer.step()
    assert len(app.records()) == 1

    app.writer._clock, app.writer._now = lambda: seconds + 6, lambda: record.at + 6_000
    app.writer.step()

    assert app.newest() == msgspec.structs.replace(record, at=record.at + 6_000)


def test_a_record_that_is_written_again_beside_a_batch_keeps_its_time(app: Application) -> None:
    record = app.run(0)
    app.feed(1)
    assert app.query.planner.next(app.query.position) is not app.query.position
    seconds = app.writer._clock()
    app.writer._clock = lambda: seconds + 6

    app.writer.step()

    assert [each for _, each in app.records()] == [record, record]


def lose_record(app: Application, number: int) -> SnapshotRecord:
    """Run the batch of some records whose record is made and not written."""
    app.writer.step = lambda: None  # type: ignore[method-assign]
    app.feed(number)
    app.query.batch()
    app.writer.plans()
    assert app.writer.last is not None
    return app.writer.last


def test_a_replay_makes_the_same_record(app: Application) -> None:
    app.run(0)
    start, before = app.query.position, deepcopy(app.query._blobs)
    expected = lose_record(app, 1)
    end = app.query.position
    app.batch_log.commit(0)
    app.query.batches, app.query._blobs = 1, before
    app.take_over(1)

    app.query.replay(start, end)

    made = [record for key, record in app.records() if key == b"1" and record is not None]
    assert [record.snapshot for record in made] == [0, 1]
    # Figures for people are of one run.
    same = {"leader_epoch": 0, "at": expected.at, "stats": expected.stats}
    assert msgspec.structs.replace(made[1], **same) == expected


def test_a_new_leader_continues_from_the_newest_record(app: Application) -> None:
    app.run(0)
    record = app.run(1)

    app.take_over(7)
    app.writer.step()

    assert app.records()[-2:] == [
        (b"7", msgspec.structs.replace(record, leader_epoch=7)),
        (b"0", None),
    ]
    app.new_changes()
    after = app.run(2)
    assert (after.snapshot, after.since, after.leader_epoch) == (2, 1, 7)
    assert after.changes == app.new_changes()


def test_with_at_least_once_the_first_record_of_a_leader_counts_no_changes(tmp_path: Path) -> None:
    app = Application(tmp_path, processing_guarantee="at_least_once")

    first, second = app.run(0), app.run(1)
    app.take_over(1)  # it may write the last batch again, behind the ends of its record
    third, fourth = app.run(2), app.run(3)

    assert [each.changes is None for each in (first, second, third, fourth)] == [
        True,
        False,
        True,
        False,
    ]
    app.log.close()


def test_with_at_least_once_the_next_record_has_what_a_fenced_leader_wrote_again(
    tmp_path: Path,
) -> None:
    app = Application(tmp_path, processing_guarantee="at_least_once")
    first = app.run(0)
    again = [
        (topic, partition, record.timestamp, record.key, record.value, None)
        for topic, ends in first.ends.items()
        for partition in range(len(ends))
        for record in changes(app.log, topic, partition)
    ]
    assert again
    app.log.append(again)

    app.take_over(1)
    app.log.append([(app.input, 0, 60_001, b"k1", b"v", None)])
    app.query.run()
    second = app.newest()

    names = [
        TopicPartition(topic, n) for topic, ends in first.ends.items() for n in range(len(ends))
    ]
    assert {name: second.end(*name) for name in names} == app.log.end_offsets(names)
    app.log.close()


@pytest.mark.parametrize(("guarantee", "count"), [("exactly_once_v2", 3), ("at_least_once", 2)])
def test_changes_that_are_the_same_count_once_with_at_least_once(
    tmp_path: Path, guarantee: Literal["exactly_once_v2", "at_least_once"], count: int
) -> None:
    builder = StreamsBuilder()
    builder.table(
        "t", key=str, value=str, materialized=Materialized("kept", history_retention="1h")
    )
    log = open_log(StreamsConfig(state_dir=tmp_path))
    log.create_topic("t")
    query = InProcessQuery(builder.build(), tmp_path, processing_guarantee=guarantee)
    log.append([("t", 0, 1_000_000, b"k", b"first", None)])
    query.run()

    # The late version is followed by the latest again.
    log.append([("t", 0, 3_000_000, b"k", b"new", None), ("t", 0, 2_000_000, b"k", b"late", None)])
    query.run()

    writer = query.planner.snapshots
    assert writer is not None
    assert writer.last is not None
    [counts] = (writer.last.changes or {}).values()
    assert counts == {0: count}
    log.close()


def test_after_a_lost_record_every_task_is_called_and_the_number_is_left_out(
    app: Application,
) -> None:
    app.run(0)
    lost = lose_record(app, 1)
    app.log.append([(app.input, 0, 200_000, b"only-one", b"v", None)])

    app.take_over(2)
    app.query.batch()

    record = app.newest()
    assert (record.snapshot, record.since, record.changes) == (2, 1, None)
    app.new_changes()
    assert {
        name: record.end(*name) for name in app.changelogs if name in app.last_ends
    } == app.last_ends
    assert record.store_times.keys() == lost.store_times.keys()
    assert [*map(bool, record.store_times[f"{app.id}-windows-changelog"])] == [
        *map(bool, lost.store_times[f"{app.id}-windows-changelog"])
    ]
    assert app.run(3).changes == app.new_changes()


def test_after_a_lost_record_a_batch_without_input_writes_the_next(app: Application) -> None:
    lost = lose_record(app, 0)

    app.take_over(2)
    app.query.run()

    record = app.newest()
    assert (record.snapshot, record.changes) == (1, None)
    assert (record.ends, record.store_times) == (lost.ends, lost.store_times)
    assert record.position == lost.position
    assert not app.query.batch()


def test_an_older_copy_of_a_checkpoint_is_refused(app: Application) -> None:
    app.run(0)
    app.run(1)
    app.batch_log = MemoryBatchLog(QUERY_ID)

    with pytest.raises(CheckpointError, match=r"snapshot 1 .* an older copy"):
        app.take_over(2)


def test_records_that_cannot_be_written_stop_no_batch_and_are_merged(
    app: Application, caplog: pytest.LogCaptureFixture
) -> None:
    app.run(0)
    app.new_changes()
    append = app.query.log.append
    tried: list[Any] = []

    def fail(records: Any) -> Any:
        tried.append(records)
        raise BrokerUnavailableError("nobody answers")

    app.query.log.append = fail  # type: ignore[method-assign]
    for number in (1, 2, 3):
        app.feed(number)
        app.query.batch()
    assert tried
    assert "snapshot 1 could not be written" in caplog.text
    app.query.log.append = append  # type: ignore[method-assign]
    seconds = app.writer._clock()
    app.writer._clock = lambda: seconds + 2

    app.writer.step()

    record = app.newest()
    assert (record.snapshot, record.since) == (3, 0)
    found = app.new_changes()
    assert record.changes is not None
    assert record.changes.keys() == found.keys()
    assert sum(record.changes[f"{app.id}-counts-changelog"].values()) == 6


def test_a_deleted_topic_is_created_again(app: Application) -> None:
    app.run(0)
    app.log.delete_topic(snapshots_name(app.id))

    record = app.run(1)

    assert (record.snapshot, record.since) == (1, 0)


def test_the_thread_writes_the_records(app: Application) -> None:
    writer = app.writer
    step, app.writer.step = writer.step, lambda: None  # type: ignore[method-assign]
    app.feed(0)
    app.query.batch()
    writer.step = step  # type: ignore[method-assign]

    writer.start()
    await_that(lambda: bool(app.records()), "the record")
    writer.close()

    assert app.newest().snapshot == 0


def test_an_orderly_end_waits_for_the_last_record(app: Application) -> None:
    writer = app.writer
    step, app.writer.step = writer.step, lambda: None  # type: ignore[method-assign]
    app.feed(0)
    app.query.batch()
    writer.step = step  # type: ignore[method-assign]
    app.query.run_files.write(Control(stopping=True))

    assert not app.query.batch()

    assert app.newest().snapshot == 0


def test_an_orderly_end_does_not_wait_for_a_broker_that_blocks(app: Application) -> None:
    writer, released, append = app.writer, threading.Event(), app.query.log.append
    blocked: set[str] = set()

    def block(records: Any) -> Any:
        blocked.add(threading.current_thread().name)
        released.wait(PATIENCE)
        return append(records)

    step, writer.step = writer.step, lambda: None  # type: ignore[method-assign]
    writer.start()
    app.feed(0)
    app.query.batch()
    writer.plans()
    app.query.log.append = block  # type: ignore[method-assign]
    seconds = count(0, 2)
    writer._clock = lambda: float(next(seconds))
    writer.step = step  # type: ignore[method-assign]

    writer.drain()
    released.set()
    await_that(lambda: bool(app.records()), "the record")
    writer.close()

    assert blocked == {snapshots_name(app.id)}


def test_the_thread_continues_after_an_unexpected_error(
    app: Application, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headrace.runtime.planning.snapshot_writer._RETRY_SECONDS", 0.0)
    writer, step = app.writer, app.writer.step
    failures = [ValueError("unexpected")]

    def fail_once() -> None:
        if failures:
            raise failures.pop()
        step()

    writer.step = lambda: None  # type: ignore[method-assign]
    app.feed(0)
    app.query.batch()
    writer.step = fail_once  # type: ignore[method-assign]

    writer.start()
    await_that(lambda: bool(app.records()), "the record")
    writer.close()

    assert "ValueError: unexpected" in caplog.text


def test_without_a_store_to_query_there_are_no_snapshots(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).group_by_key().count().to_stream().to("out")
    log = open_log(StreamsConfig(application_id="application", state_dir=tmp_path))
    log.create_topic("in")

    query = InProcessQuery(builder.build(), tmp_path)

    assert query.planner.snapshots is None
    assert "application-snapshots" not in log.list_topics()
    log.close()


def query_of_tables(folder: Path, batch_log: MemoryBatchLog) -> InProcessQuery:
    """Return a query with a global store, and a table that reuses its source topic."""
    builder = StreamsBuilder()
    everywhere = builder.global_table("g", key=str, value=str, materialized="everywhere")
    table = builder.table("t", key=str, value=str, materialized="kept")
    joined = table.to_stream().join(
        everywhere, lambda a, b: a + b, on=lambda key, _: key, value=str
    )
    joined.to("out")
    return InProcessQuery(builder.build(), folder, batch_log=batch_log, topology_optimization="all")


def test_global_stores_and_tables_over_their_source_have_changelogs_of_their_own(
    tmp_path: Path,
) -> None:
    log = open_log(StreamsConfig(application_id="application", state_dir=tmp_path))
    for topic in ("g", "t", "out"):
        log.create_topic(topic, partitions=2)
    everywhere, kept = "application-everywhere-changelog", "application-kept-changelog"
    query = query_of_tables(tmp_path, MemoryBatchLog(QUERY_ID))
    for number in range(3):
        start, before = query.position, deepcopy(query._blobs)
        for topic in ("g", "t"):
            log.append([(topic, p, number + 1, b"k%d" % p, b"v%d" % number, None) for p in (0, 1)])
        query.batch()

    [*_, newest] = changes(log, snapshots_name("application"), 0)
    assert newest.value is not None
    record = decode_snapshot(newest.value)
    assert record.ends == {everywhere: [6], kept: [3, 3]}
    assert record.changes == {everywhere: {0: 2}, kept: {0: 1, 1: 1}}
    assert changelogs_that_differ(query) == []

    query.batches, query._blobs = 2, before
    query.replay(start, query.position)

    names = [TopicPartition(everywhere, 0), TopicPartition(kept, 0)]
    assert log.end_offsets(names) == {names[0]: 6, names[1]: 3}
    log.close()


def test_after_a_lost_record_the_task_of_global_stores_is_called_too(tmp_path: Path) -> None:
    log = open_log(StreamsConfig(application_id="application", state_dir=tmp_path))
    for topic in ("g", "t", "out"):
        log.create_topic(topic)
    batch_log = MemoryBatchLog(QUERY_ID)
    query = query_of_tables(tmp_path, batch_log)
    log.append([("g", 0, 1, b"k", b"v", None)])
    query.run()
    log.delete_topic(snapshots_name("application"))
    query.restart_planner()

    query.run()

    tasks = {report.task for report in query.run_files.read(BatchResult).reports}
    assert tasks == {GLOBAL_TASK, "1_0"}
    [newest] = changes(log, snapshots_name("application"), 0)
    assert newest.value is not None
    record = decode_snapshot(newest.value)
    assert (record.snapshot, record.changes) == (1, None)
    assert record.ends == {
        "application-everywhere-changelog": [1],
        "application-kept-changelog": [0],
    }
    log.close()


def test_a_reset_deletes_snapshots_before_changelogs(app: Application) -> None:
    app.run(0)
    home = ApplicationHome.of(app.query.config, app.log.cluster_id())
    deleted: list[str] = []
    delete = app.log.delete_topic

    def note(topic: str) -> None:
        deleted.append(topic)
        delete(topic)

    app.log.delete_topic = note  # type: ignore[method-assign]

    forget_application(app.log, home)

    assert deleted[:2] == [markers_name(app.id), snapshots_name(app.id)]
    assert {name.topic for name in app.changelogs} <= {*deleted[2:]}


def test_a_first_leader_has_an_epoch_above_that_of_any_record(app: Application) -> None:
    far = 1 << 40
    app.take_over(far)
    app.run(0)
    home = ApplicationHome.of(app.query.config, app.log.cluster_id())
    for group in (leader_name(app.id), markers_name(app.id)):
        app.log.delete_group(group)

    leadership = open_leadership(app.query.config, home)

    assert leadership.wait(5)
    assert leadership.leader_epoch == far + 1
    leadership.release()
