"""An instance's copy follows a running application over the embedded log."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from headrace import Materialized, StreamsBuilder, StreamsConfig, TimeWindows
from headrace.brokers import open_log
from headrace.brokers.log import TopicPartition
from headrace.queries.copy_progress import ApplierLimits
from headrace.queries.database import prefix_end
from headrace.queries.disk_database import DiskDatabase
from headrace.queries.keys import entry_from_bytes, entry_prefix
from headrace.queries.layout import CopyLayout, Shard, ShardGroup, StoreLayout
from headrace.queries.reader import CopyReader
from headrace.queries.tokens import token_of
from headrace.queries.views import ShownSnapshot
from headrace.runtime.snapshots import SnapshotRecord, digest_topic_ids, encode_snapshot
from tests.runtime.changelogs import changes
from tests.runtime.in_process import InProcessQuery

SNAPSHOTS = "application-snapshots"
COUNTS, WINDOWS = "application-counts-changelog", "application-windows-changelog"
LIMITS = ApplierLimits(marker_offsets=0)


class Writer:
    """Writes a snapshot record after each batch, as the leader will."""

    def __init__(self, query: InProcessQuery) -> None:
        self._query = query
        self._log = query.log
        self._names = [
            TopicPartition(topic, partition)
            for topic in (COUNTS, WINDOWS)
            for partition in range(self._log.partition_count(topic))
        ]
        self._topics = digest_topic_ids(self._log.topic_ids([COUNTS, WINDOWS]))
        self._counts: Counter[TopicPartition] = Counter()
        self.contents: list[dict[TopicPartition, dict[bytes, bytes | None]]] = []
        """What each changelog partition says at each snapshot."""
        self._log.create_topic(SNAPSHOTS, settings={"cleanup.policy": "compact"})

    def write(self, at: int) -> SnapshotRecord:
        """Write the record of the last batch."""
        found = {name: changes(self._log, *name) for name in self._names}
        counts = Counter({name: len(records) for name, records in found.items()})
        number = len(self.contents)
        ends: dict[str, list[int]] = {COUNTS: [], WINDOWS: []}
        changed: dict[str, dict[int, int]] = {}
        for name, end in sorted(self._log.end_offsets(self._names).items()):
            ends[name.topic].append(end)
            if counts[name] > self._counts[name]:
                by_partition = changed.setdefault(name.topic, {})
                by_partition[name.partition] = counts[name] - self._counts[name]
        self._counts = counts
        latest = {name: {r.key: r.value for r in records} for name, records in found.items()}
        self.contents.append(latest)
        record = SnapshotRecord(
            history="in-process", leader_epoch=1, snapshot=number, layout="layout",
            topics=self._topics, clock=0, at=at, ends=ends, since=number - 1, changes=changed,
        )  # fmt: skip
        self._log.append([(SNAPSHOTS, 0, 0, b"1", encode_snapshot(record), None)])
        return record


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
    writer = Writer(query)
    group = ShardGroup("0", (StoreLayout(COUNTS), StoreLayout(WINDOWS)))
    layout = CopyLayout("layout", (group,))
    shards = [Shard("0", 0), Shard("0", 1)]
    database = DiskDatabase(tmp_path / "copy")
    reader = CopyReader(query.log, layout, SNAPSHOTS, database, 0, LIMITS)
    reader.applier.keep(shards)

    for number in range(6):
        query.log.append(
            [
                ("lines", partition, number, b"k%d" % (number % 4), b"", None)
                for partition in range(2)
            ]
        )
        query.run()
        record = writer.write(at=number * 1_000)
        for _ in range(5):
            reader.step(number * 1_000)
        assert reader.applier.is_ready()
        assert reader.copy.snapshots.at(token_of(record)).shards.keys() == {*shards}

    followed = [shown for shown in reader.copy.snapshots if shown.shards[shards[0]] is not None]
    assert [shown.record.snapshot for shown in followed] == [1, 2, 3, 4, 5]
    for shown in reader.copy.snapshots:
        for name, expected in writer.contents[shown.record.snapshot].items():
            assert contents(shown, name) == expected
    assert [len([*shown.changed_keys(TopicPartition(COUNTS, 0))]) for shown in followed] == [1] * 5

    again = CopyReader(query.log, layout, SNAPSHOTS, database, 6_000, LIMITS)
    again.applier.keep(shards)
    for _ in range(3):
        again.step(6_000)
    assert [shown.record.snapshot for shown in again.copy.snapshots] == [5]
    assert again.applier.is_ready()
    query.log.close()
