"""An instance's copy follows a running application over the embedded log."""

from __future__ import annotations

from pathlib import Path

from headrace import Materialized, StreamsBuilder, StreamsConfig, TimeWindows
from headrace.brokers import open_log
from headrace.brokers.log import TopicPartition
from headrace.queries.copy.copy_progress import ApplierLimits
from headrace.queries.copy.database import prefix_end
from headrace.queries.copy.disk_database import DiskDatabase
from headrace.queries.copy.keys import entry_from_bytes, entry_prefix
from headrace.queries.copy.layout import CopyLayout, Shard, ShardGroup, StoreLayout
from headrace.queries.copy.reader import CopyReader
from headrace.queries.copy.views import ShownSnapshot
from headrace.queries.tokens import token_of
from headrace.runtime.snapshots import decode_snapshot
from tests.runtime.changelogs import changes
from tests.runtime.in_process import InProcessQuery

SNAPSHOTS = "application-snapshots"
COUNTS, WINDOWS = "application-counts-changelog", "application-windows-changelog"
LIMITS = ApplierLimits(marker_offsets=0)


def latest_changes(query: InProcessQuery) -> dict[TopicPartition, dict[bytes | None, bytes | None]]:
    """Return what each changelog partition holds under each key."""
    names = [
        TopicPartition(topic, partition)
        for topic in (COUNTS, WINDOWS)
        for partition in range(query.log.partition_count(topic))
    ]
    return {
        name: {record.key: record.value for record in changes(query.log, *name)} for name in names
    }


def contents(shown: ShownSnapshot, name: TopicPartition) -> dict[bytes, bytes | None]:
    prefix = entry_prefix(name)
    return {
        key[len(prefix) :]: entry_from_bytes(data).value
        for key, data in shown.view.scan(prefix, prefix_end(prefix))
    }


def query_of_two_stores(folder: Path) -> InProcessQuery:
    builder = StreamsBuilder()
    lines = builder.stream("lines", key=str, value=str).group_by_key()
    lines.count(materialized=Materialized("counts"))
    lines.windowed_by(TimeWindows("1h")).count(materialized=Materialized("windows"))
    return InProcessQuery(builder.build(), folder)


def test_a_copy_follows_the_application_and_keeps_its_snapshots(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    log = open_log(StreamsConfig(application_id="application", state_dir=tmp_path / "app"))
    log.create_topic("lines", partitions=2)
    log.close()
    query = query_of_two_stores(tmp_path / "app")
    group = ShardGroup("0", (StoreLayout(COUNTS), StoreLayout(WINDOWS)))
    layout = CopyLayout(query.plan.stores_digest, (group,))
    shards = [Shard("0", 0), Shard("0", 1)]
    database = DiskDatabase(tmp_path / "copy")
    reader = CopyReader(query.log, layout, SNAPSHOTS, database, 0, LIMITS)
    reader.applier.keep(shards)

    expected_contents = []
    for number in range(6):
        query.log.append(
            [
                ("lines", partition, number, b"k%d" % (number % 4), b"", None)
                for partition in range(2)
            ]
        )
        query.run()
        [*_, newest] = changes(query.log, SNAPSHOTS, 0)
        assert newest.value is not None
        record = decode_snapshot(newest.value)
        expected_contents.append(latest_changes(query))
        for _ in range(5):
            reader.step(number * 1_000)
        assert reader.applier.is_ready()
        assert reader.copy.snapshots.at(token_of(record)).shards.keys() == {*shards}

    followed = [shown for shown in reader.copy.snapshots if shown.shards[shards[0]] is not None]
    assert [shown.record.snapshot for shown in followed] == [1, 2, 3, 4, 5]
    for shown in reader.copy.snapshots:
        for name, expected in expected_contents[shown.record.snapshot].items():
            assert contents(shown, name) == expected
    assert [len([*shown.changed_keys(TopicPartition(COUNTS, 0))]) for shown in followed] == [1] * 5

    again = CopyReader(query.log, layout, SNAPSHOTS, database, 6_000, LIMITS)
    again.applier.keep(shards)
    for _ in range(3):
        again.step(6_000)
    assert [shown.record.snapshot for shown in again.copy.snapshots] == [5]
    assert again.applier.is_ready()
    query.log.close()
