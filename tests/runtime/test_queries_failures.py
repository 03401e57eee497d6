"""Copies keep their promises in each failure of the table in `docs/queries-protocol.md`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace import Materialized, StreamsBuilder, TimeWindows
from headrace.brokers.log import TopicPartition
from headrace.clients.reset import forget_application
from headrace.errors import QueryError
from headrace.home import ApplicationHome
from headrace.queries.copy.copy_progress import ApplierLimits
from headrace.queries.copy.database import Database
from headrace.queries.copy.layout import Shard
from headrace.queries.copy.memory_database import MemoryDatabase
from headrace.queries.reads import FetchVersions, FetchWindows
from headrace.queries.tokens import token_of
from headrace.runtime.output.batch_writer import BatchWriter
from headrace.runtime.snapshots import encode_snapshot
from headrace.topology.naming import snapshots_name
from tests.kafka_broker import RunningBroker
from tests.runtime.copied_application import APPLICATION, INPUT, CopiedApplication, Copy
from tests.unique_names import unique
from tests.waiting import await_that

SNAPSHOTS = snapshots_name(APPLICATION)
CHANGELOG = f"{APPLICATION}-counts-changelog"
FIRST = Shard("0", 0)

Starter = Callable[..., Copy]


@pytest.fixture
def application(tmp_path: Path) -> Iterator[CopiedApplication]:
    application = CopiedApplication(tmp_path)
    yield application
    application.close()


@pytest.fixture
def start() -> Iterator[Starter]:
    """Starts copies, which are closed at the end."""
    copies: list[Copy] = []

    def start(
        application: CopiedApplication,
        database: Database | None = None,
        now: int = 0,
        limits: ApplierLimits | None = None,
    ) -> Copy:
        copies.append(Copy(application, database, now, limits))
        return copies[-1]

    yield start
    for copy in copies:
        copy.close()


@pytest.fixture
def compacting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the log compact after every write."""
    monkeypatch.setattr("headrace.brokers.embedded.log_cleaner._DIRTY_RECORDS", 1)
    monkeypatch.setattr("headrace.brokers.embedded.log_cleaner._DIRTY_RATIO", 0.0)


class DiedError(Exception):
    """The death of a driver."""


def test_half_a_batch_is_not_shown_before_its_replay(
    application: CopiedApplication, start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    application.run("a")
    copy = start(application)
    copy.step()
    write: Callable[..., Any] = BatchWriter.write

    def write_and_die(writer: BatchWriter, *blobs: Any) -> Any:
        write(writer, *blobs)
        raise DiedError

    blobs = deepcopy(application.query._blobs)
    with monkeypatch.context() as dying:
        dying.setattr(BatchWriter, "write", write_and_die)
        with pytest.raises(DiedError):
            application.run("a", "b")
    copy.step()
    ends = application.log.end_offsets([TopicPartition(CHANGELOG, 0), TopicPartition(CHANGELOG, 1)])
    assert sorted(ends.values()) == [1, 3]
    assert (copy.shown, copy.counts(), copy.counts(1)) == ([0], {"a": 1}, {"a": 1})

    application.query._blobs = blobs
    end = application.batch_log.end_of(1)
    assert end is not None
    application.query.replay(application.query.position, end)
    copy.step()

    assert copy.shown == [0, 1]
    assert copy.counts() == copy.counts(1) == {"a": 2, "b": 1}


def test_a_lost_record_leaves_a_number_out_and_copies_catch_up(
    application: CopiedApplication, start: Starter
) -> None:
    application.run("a")
    old = start(application)
    old.step()
    application.lose_record("a")
    new = start(application)
    for copy in (old, new):
        copy.step()
    assert (old.shown, old.counts()) == ([0], {"a": 1})
    assert (new.shown, new.applier.is_ready()) == ([], False)

    application.take_over(1)
    application.run("b")
    for copy in (old, new):
        copy.step()

    assert (old.shown, new.shown) == ([0, 2], [2])
    assert old.counts() == new.counts() == {"a": 2, "b": 1}
    assert old.reader.copy.snapshots.changes_after(token_of(application.newest()), FIRST) == []


def test_a_late_record_of_a_dead_leader_is_ignored(
    application: CopiedApplication, start: Starter
) -> None:
    late = application.run("a")
    application.take_over(1)
    application.run("a")
    copy = start(application)
    copy.step()

    application.log.append([(SNAPSHOTS, 0, 1, b"0", encode_snapshot(late), None)])
    copy.step()
    new = start(application)
    new.step()

    for each in (copy, new):
        assert (each.shown[-1], each.counts()) == (1, {"a": 2})
        assert each.applier.is_ready()
    application.run("a")
    copy.step()
    assert copy.shown[-1] == 2


def test_a_deleted_snapshots_topic_is_written_again_and_followed(
    application: CopiedApplication, start: Starter
) -> None:
    application.run("a")
    copy = start(application)
    copy.step()
    application.log.delete_topic(SNAPSHOTS)
    copy.step(30_000)
    assert (copy.shown, copy.counts()) == ([0], {"a": 1})

    application.run("a")
    copy.step(60_000)

    assert (copy.shown[-1], copy.counts()) == (1, {"a": 2})


@pytest.mark.usefixtures("compacting")
def test_compaction_between_snapshots_makes_a_slow_copy_jump(
    application: CopiedApplication, start: Starter
) -> None:
    first = application.run("a", "b")
    copy = start(application)
    copy.step()
    for _ in range(4):
        application.run("a")

    copy.step(3_000, 10)

    assert copy.counts() == {"a": 5, "b": 1}
    assert copy.shown == [0, 4]
    assert copy.reader.copy.snapshots.changes_after(token_of(first), FIRST) is None
    assert copy.applier.is_ready()


def test_a_copy_that_is_too_old_begins_at_nothing(
    application: CopiedApplication, start: Starter
) -> None:
    limits = ApplierLimits(marker_offsets=0, delete_retention_ms=1_000)
    database = MemoryDatabase()
    now = application.run("a", "b").at
    copy = start(application, database, now, limits)
    copy.step()
    # A deletion that the log no longer has: the old entry would stay for ever.
    application.log.delete_records({TopicPartition(CHANGELOG, 0): 1})
    application.run("c")

    young = start(application, copy_of(database), now + 100, limits)
    young.step()
    assert set(young.counts()) == {"a", "b", "c"}
    old = start(application, copy_of(database), now + 501, limits)
    old.step(count=10)

    assert set(old.counts()) == {"b", "c"}


def copy_of(database: MemoryDatabase) -> MemoryDatabase:
    """Return a database with the same contents."""
    copied = MemoryDatabase()
    copied.__dict__.update(deepcopy(database.__dict__))
    return copied


def test_a_copy_that_was_stopped_for_minutes_answers_old_and_then_catches_up(
    application: CopiedApplication, start: Starter
) -> None:
    application.run("a")
    copy = start(application)
    copy.step()
    for _ in range(8):
        application.run("a")

    assert copy.counts() == {"a": 1}
    copy.step(300_000, 10)

    assert copy.counts() == {"a": 9}
    assert copy.applier.is_ready()


def test_after_a_reset_the_copy_is_thrown_away_and_old_tokens_are_gone(
    application: CopiedApplication, start: Starter, tmp_path: Path
) -> None:
    old = token_of(application.run("a", "b"))
    copy = start(application)
    copy.step()
    assert copy.reader.copy.snapshots.at(old).record.snapshot == 0

    home = ApplicationHome.of(application.query.config, application.log.cluster_id())
    forget_application(application.log, home)
    again = CopiedApplication(tmp_path, history="22222222")
    new = again.run("c")
    copy.step(30_000, 10)

    assert set(copy.counts()) == {"a", "b", "c"}
    assert token_of(new).snapshot == old.snapshot
    with pytest.raises(QueryError, match=str(old)):
        copy.reader.copy.snapshots.at(old)
    again.close()


def test_a_changelog_that_is_deleted_and_made_again_throws_the_copy_away(
    application: CopiedApplication, start: Starter
) -> None:
    application.run("a")
    copy = start(application)
    copy.step()
    application.log.delete_topic(CHANGELOG)
    application.log.create_topic(CHANGELOG, partitions=2, settings={"cleanup.policy": "compact"})

    copy.step(60_000, 10)

    assert copy.shown == []
    assert not copy.applier.is_ready()


def test_a_changelog_that_was_cut_is_reported_as_lost(
    application: CopiedApplication, start: Starter
) -> None:
    record = application.run("a")
    ends = {name: [end + 5 for end in ends] for name, ends in record.ends.items()}
    cut = msgspec.structs.replace(record, ends=ends, snapshot=1)
    application.log.append([(SNAPSHOTS, 0, 1, b"0", encode_snapshot(cut), None)])
    copy = start(application)
    copy.step(0)
    copy.step(20_000)

    assert copy.shown == []
    assert copy.applier.has_lost_records(FIRST)
    assert "lost records" in (copy.applier.problem_of(FIRST) or "")


def test_new_partitions_are_shown_from_the_snapshot_on_that_has_them(
    tmp_path: Path, start: Starter
) -> None:
    """Stores get new partitions only where they had none: of a pattern without topics."""
    builder = StreamsBuilder()
    named = builder.stream(re.compile("more-.*"), key=str, value=str).group_by_key()
    named.count(materialized=Materialized("counts"))
    lines = builder.stream(INPUT, key=str, value=str).group_by_key()
    lines.count(materialized=Materialized("others"))
    application = CopiedApplication(tmp_path, builder.build())
    before = application.run("a")
    copy = start(application)
    copy.step()
    application.log.create_topic("more-lines", partitions=2)
    application.log.append([("more-lines", 1, 1, b"z", b"v", None)])
    application.take_over(1)
    after = application.run("a")
    copy.applier.keep(copy.shards(after))
    copy.step(1_000, 10)

    assert (len(copy.shards(before)), len(copy.shards(after))) == (2, 4)
    assert (copy.counts(), copy.counts(1)) == ({}, {"z": 1})
    assert len(copy.rows("others")) == 1
    assert copy.applier.is_ready()
    application.close()


def test_a_copy_joins_an_idle_application(application: CopiedApplication, start: Starter) -> None:
    application.run("a")
    application.run("a")

    copy = start(application)
    copy.step()

    assert (copy.shown, copy.counts()) == ([1], {"a": 2})
    assert copy.applier.is_ready()
    copy.step(600_000)
    assert copy.applier.is_ready()


def versioned(folder: Path, **logging: str) -> CopiedApplication:
    """Return an application that keeps the versions of each line."""
    builder = StreamsBuilder()
    kept = Materialized("kept", history_retention="1h", logging=logging)
    builder.table(INPUT, key=str, value=str, materialized=kept)
    return CopiedApplication(folder, builder.build())


@pytest.mark.usefixtures("compacting")
@pytest.mark.parametrize("new", [b"new", None])
def test_the_latest_version_is_that_of_the_store_when_compaction_removes_others(
    tmp_path: Path, start: Starter, new: bytes | None
) -> None:
    application = versioned(tmp_path, **{"min.compaction.lag.ms": "0"})
    application.run("k", value=new, timestamp=2_000_000)
    following = start(application)
    following.step()
    application.run("k", value=b"late", timestamp=1_000_000)
    changelog = TopicPartition(f"{APPLICATION}-kept-changelog", 0)
    end = application.log.end_offsets([changelog])[changelog]
    left = [each.value for some in application.log.read(changelog, 0, end) for each in some]
    assert left == [new]

    following.step(3_000, 10)
    joining = start(application)
    joining.step()

    for copy in (following, joining):
        assert [row.value for row in copy.rows("kept")] == ([] if new is None else [new])
    application.close()


@pytest.mark.usefixtures("compacting")
def test_late_versions_survive_compaction(tmp_path: Path, start: Starter) -> None:
    application = versioned(tmp_path)
    application.run("k", value=b"new", timestamp=2_000_000)
    following = start(application)
    following.step()
    application.run("k", value=b"late", timestamp=1_000_000)

    following.step(3_000, 10)
    joining = start(application)
    joining.step()

    for copy in (following, joining):
        [latest] = copy.rows("kept")
        assert latest.value == b"new"
    versions = following.rows("kept", 0, FetchVersions(b"k"))
    assert [row.value for row in versions] == [b"new", b"late"]
    application.close()


def test_windows_are_those_of_the_store_while_history_is_replayed(
    tmp_path: Path, start: Starter
) -> None:
    builder = StreamsBuilder()
    lines = builder.stream(INPUT, key=str, value=str).group_by_key()
    lines.windowed_by(TimeWindows("1m", grace="0s")).count(
        materialized=Materialized("windows", retention="2m")
    )
    application = CopiedApplication(tmp_path, builder.build())
    copy = start(application)
    minute = 60_000
    for number in range(8):
        application.run("k", timestamp=1_000_000_000 + number * minute)
        copy.step(number * 1_000)
        new = start(application)
        new.step(number * 1_000)
        for each in (copy, new):
            found = {row.start: row.value for row in each.rows("windows", 0, FetchWindows())}
            store = application.query.store("windows")
            expected = {window.window.start: value for window, value in store.fetch_all(0, 2**62)}
            assert found.keys() == expected.keys()
    assert len(found) < 8
    application.close()


def test_a_transaction_that_a_dead_worker_left_open_holds_the_snapshot_back(
    tmp_path: Path, start: Starter, kafka: RunningBroker
) -> None:
    name = unique("open")
    application = CopiedApplication(
        tmp_path, name=name, source=f"{name}.in", bootstrap_servers=kafka.address
    )
    application.run("a")
    copy = start(application, None, 0, ApplierLimits())

    def counted() -> dict[str, int]:
        copy.step()
        return copy.counts() if copy.shown else {}

    await_that(lambda: counted() == {"a": 1}, "the first snapshot", found=counted)
    changelog = TopicPartition(f"{name}-counts-changelog", 0)
    left_open = application.log.transaction(unique("dead"))
    with suppress(DiedError), left_open as transaction:
        transaction.append([(*changelog, 1, b"k", b"not this", None)])
        transaction.ask_ends([changelog])
        application.run("a")
        await_that(
            lambda: counted() is not None and copy.applier.newest == application.newest(),
            "the next record",
        )
        committed = application.log.end_offsets([changelog])[changelog]
        assert committed < application.newest().end(*changelog)
        copy.step()
        assert (copy.shown, copy.counts()) == ([0], {"a": 1})
        raise DiedError

    await_that(lambda: counted() == {"a": 2}, "the next snapshot", found=counted)
    assert copy.shown == [0, 1]
    application.close()
