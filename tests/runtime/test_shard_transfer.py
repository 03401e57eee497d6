"""An instance takes a shard that it begins at nothing from another instance, and catches up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from headrace.brokers.log import TopicPartition
from headrace.queries.copy.copy_progress import ApplierLimits
from headrace.queries.copy.database import prefix_end
from headrace.queries.copy.disk_database import DiskDatabase
from headrace.queries.copy.keys import entry_from_bytes, entry_prefix
from headrace.queries.copy.layout import Shard
from headrace.queries.copy.memory_database import MemoryDatabase
from headrace.queries.copy.reader import CopyReader
from headrace.queries.copy.views import KeptSnapshots
from headrace.queries.instance import Instance
from headrace.queries.members import MemberStatus
from headrace.queries.problems import QueryProblemError
from headrace.queries.transfer.exporting import export_shard
from headrace.queries.transfer.imports import ShardImports
from headrace.queries.transfer.messages import frame_of, frames, header_of
from tests.runtime.counting import COUNTS, Application
from tests.waiting import await_that

SHARDS = [Shard("0", 0), Shard("0", 1)]
LIMITS = ApplierLimits(marker_offsets=0)


def counts(snapshots: KeptSnapshots, shard: Shard) -> dict[bytes, int]:
    """Return the entries of a shard at the newest snapshot."""
    shown = snapshots.newest_of(shard)
    assert shown is not None
    prefix = entry_prefix(TopicPartition(COUNTS, shard.partition))
    return {
        key[len(prefix) :]: int.from_bytes(entry_from_bytes(data).value or b"")
        for key, data in shown.view.scan(prefix, prefix_end(prefix))
    }


def delete_changelogs(application: Application) -> None:
    """Delete the records of the changelogs, so that only instances have what was in them."""
    names = [TopicPartition(COUNTS, partition) for partition in range(2)]
    application.log.delete_records(application.log.end_offsets(names))


class Copy:
    """A copy that the test steps, and the transfers to it."""

    def __init__(
        self, application: Application, source: Sender, database: DiskDatabase | None = None
    ) -> None:
        self.database = database or MemoryDatabase()
        catalog = application.catalog
        self.reader = CopyReader(
            application.log,
            catalog.layout,
            catalog.snapshots_topic,
            self.database,
            _now(),
            LIMITS,
        )
        self.imports = ShardImports(
            source, source.holders, catalog.layout, self.reader, self.database
        )
        self.held: list[set[Shard]] = []

    def follow(self) -> CopyReader:
        """Follow until all shards are shown at the newest snapshot."""
        applier = self.reader.applier

        def is_shown() -> bool:
            self.reader.step(_now(), 0.001)
            if applier.identity is None:
                return False
            self.held.append(self.imports.hold_back({*SHARDS} - applier.kept))
            applier.keep({*SHARDS} - self.held[-1])
            self.reader.step(_now())
            return applier.kept == {*SHARDS} and applier.is_ready()

        await_that(is_shown, "all shards", found=lambda: self.held[-1:])
        return self.reader


@dataclass
class Sender:
    """Other instances, which have the same copy. Some die, or have another one."""

    application: Application
    copy: CopyReader | None
    members: list[str] | None
    asked: list[tuple[str, Shard]] = field(default_factory=list)

    def holders(self, _shard: Shard) -> list[str] | None:
        return self.members

    @contextmanager
    def shard(self, member: str, shard: Shard, /) -> Iterator[Iterator[bytes]]:
        self.asked.append((member, shard))
        shown = self.copy.copy.snapshots.newest_of(shard) if self.copy else None
        assert shown is not None
        sent = [*export_shard(self.application.catalog.layout, shown, shard)]
        if member == "dies:1":
            header, *_ = frames(sent)
            sent = [sent[0][: len(header) + 14]]
        if member == "other-topic:1":
            sent = [_with_other_topic(sent)]
        yield iter(sent)
        if member == "dies:1":
            raise ConnectionResetError


def _with_other_topic(sent: list[bytes]) -> bytes:
    header, *parts = frames(sent)
    decoded = header_of(header)
    identity = msgspec.structs.replace(decoded.identity, topic_ids={COUNTS: "another"})
    other = frame_of(msgspec.structs.replace(decoded, identity=identity))
    return other + b"".join(len(part).to_bytes(4) + part for part in parts)


def _now() -> int:
    return time.time_ns() // 1_000_000


def test_a_shard_comes_from_another_instance_and_catches_up(
    application: Application, tmp_path: Path
) -> None:
    application.run(b"a", b"b")
    first = Copy(application, Sender(application, None, [])).follow()
    delete_changelogs(application)
    # The first instance has not seen this batch.
    application.run(b"a", b"c")
    database = DiskDatabase(tmp_path / "copy-1")
    sender = Sender(application, first, ["b:1"])

    reader = Copy(application, sender, database).follow()

    assert sorted(sender.asked) == [("b:1", shard) for shard in SHARDS]
    for shard in SHARDS:
        assert counts(reader.copy.snapshots, shard) == {b"a": 2, b"b": 1, b"c": 1}
    application.run(b"b")
    reader.step(_now())
    await_that(
        lambda: [_stepped(reader, shard) for shard in SHARDS] == [{b"a": 2, b"b": 2, b"c": 1}] * 2,
        "the next snapshot",
    )
    reader.copy.snapshots.clear()
    database.close()


def _stepped(reader: CopyReader, shard: Shard) -> dict[bytes, int]:
    reader.step(_now(), 0.001)
    return counts(reader.copy.snapshots, shard)


@pytest.mark.parametrize("members", [["dies:1"], ["other-topic:1"], []], ids=repr)
def test_a_shard_that_no_instance_sends_comes_from_the_changelogs(
    application: Application, members: list[str]
) -> None:
    application.run(b"a", b"b")
    first = Copy(application, Sender(application, None, [])).follow()
    sender = Sender(application, first, members)
    copy = Copy(application, sender)

    reader = copy.follow()

    assert sorted(sender.asked) == [(member, shard) for member in members for shard in SHARDS]
    for shard in SHARDS:
        assert counts(reader.copy.snapshots, shard) == {b"a": 1, b"b": 1}


def test_the_next_instance_is_asked_after_one_that_dies(application: Application) -> None:
    application.run(b"a")
    first = Copy(application, Sender(application, None, [])).follow()
    delete_changelogs(application)
    sender = Sender(application, first, ["dies:1", "b:1"])

    reader = Copy(application, sender).follow()

    assert [name for name, _ in sender.asked] == ["dies:1", "b:1"] * 2
    assert counts(reader.copy.snapshots, SHARDS[0]) == {b"a": 1}


def test_a_shard_waits_until_the_other_instances_are_known(application: Application) -> None:
    application.run(b"a")
    first = Copy(application, Sender(application, None, [])).follow()
    sender = Sender(application, first, None)
    copy = Copy(application, sender)
    reader = copy.reader
    await_that(lambda: _knows(reader), "the newest record")

    assert copy.imports.hold_back(SHARDS) == {*SHARDS}
    assert copy.imports.hold_back([]) == set()
    sender.members = ["b:1"]
    assert copy.imports.hold_back(SHARDS) == {*SHARDS}
    # The shard that is on its way is not wanted any more.
    assert copy.imports.hold_back(SHARDS[1:]) == {SHARDS[1]}
    copy.imports.close()

    assert reader.copy.saved().shards == {}


def _knows(reader: CopyReader) -> bool:
    reader.step(_now(), 0.001)
    return reader.applier.identity is not None


def test_a_shard_from_before_a_reset_is_not_adopted(application: Application) -> None:
    application.run(b"a")
    first = Copy(application, Sender(application, None, [])).follow()
    sender = Sender(application, first, ["b:1"])
    copy = Copy(application, sender)
    await_that(lambda: _knows(copy.reader), "the newest record")
    copy.imports.hold_back(SHARDS[:1])
    application.log.delete_topic(COUNTS)
    application.log.create_topic(COUNTS, partitions=2)

    def is_forgotten() -> bool:
        copy.reader.applier._ask_topic_ids()
        copy.reader.step(_now(), 0.001)
        identity = copy.reader.applier.identity
        return identity is None or identity.topic_ids != application.log.topic_ids([COUNTS])

    await_that(is_forgotten, "the topic to be another one")
    sender.members = []

    def is_over() -> bool:
        copy.imports.hold_back(SHARDS[:1])
        return copy.imports._fetch is None

    await_that(is_over, "the transfer to end")

    assert copy.reader.copy.saved().shards == {}


class Peers:
    """Answers for instances of this process."""

    def __init__(self) -> None:
        self.instances: dict[str, Instance] = {}
        self.sent: list[tuple[str, Shard]] = []

    async def status(self, member: str, /) -> MemberStatus:
        return self.instances[member].status()

    @contextmanager
    def shard(self, member: str, shard: Shard, /) -> Iterator[Iterator[bytes]]:
        chunks = self.instances[member].export_shard(shard)
        self.sent.append((member, shard))
        yield chunks

    def start(self, application: Application, name: str, database: DiskDatabase) -> Instance:
        """Start an instance that knows the others."""
        instance = Instance(
            application.catalog,
            application.config,
            name=name,
            database=database,
            transport=self,
            source=self,
        )
        self.instances[name] = instance
        instance.start()
        return instance


def test_a_new_instance_has_what_only_another_instance_still_has(
    application: Application, tmp_path: Path
) -> None:
    application.run(b"a", b"b")
    peers = Peers()
    first = peers.start(application, "localhost:1", DiskDatabase(tmp_path / "1"))
    await_that(first.is_ready, "the first instance", found=first.status)
    delete_changelogs(application)

    second = peers.start(application, "localhost:4", DiskDatabase(tmp_path / "2"))
    await_that(second.is_ready, "the second instance", found=second.status)

    assert sorted(peers.sent) == [("localhost:1", shard) for shard in SHARDS]
    for shard in SHARDS:
        assert counts(second.snapshots, shard) == {b"a": 1, b"b": 1}
    with pytest.raises(QueryProblemError, match="does not have partition 7"):
        first.export_shard(Shard("0", 7))
    second.close()
    first.close()
