"""Several instances in one process: real copies and answers, and messages that a test may lose."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import msgspec

from headrace import StreamsBuilder
from headrace.brokers.log import TopicPartition
from headrace.config import StreamsConfig
from headrace.queries.catalog import Catalog, catalog_of
from headrace.queries.coordination.coordinator import Coordinator
from headrace.queries.coordination.local_answers import answer_locally
from headrace.queries.coordination.local_changes import answer_changes
from headrace.queries.coordination.local_reads import (
    ChangesAnswer,
    LocalAnswer,
    LocalChanges,
    LocalRead,
    MessagePack,
    PeerUnreachableError,
)
from headrace.queries.copy.actions import (
    Change,
    Changes,
    CopyState,
    ShardState,
    ShardWrite,
    Show,
    Write,
)
from headrace.queries.copy.layout import Shard
from headrace.queries.copy.local_copy import LocalCopy
from headrace.queries.copy.memory_database import MemoryDatabase
from headrace.queries.copy.views import KeptSnapshots
from headrace.queries.members import MemberStatus, shard_name
from headrace.queries.placement import place_shards
from headrace.queries.problems import QueryProblemError
from headrace.queries.tokens import Token, token_of
from headrace.runtime.plan import plan_topology
from headrace.runtime.snapshots import SnapshotRecord
from headrace.serdes.partitioner import partition_for_key
from tests.unit.queries.snapshot_records import HISTORY, make_record
from tests.unit.queries.virtual_time import inline, loop_time

STORE = "counts"
OTHER_STORE = "names"


@cache
def make_catalog() -> Catalog:
    """Return the catalog of a program with two tables."""
    builder = StreamsBuilder()
    builder.table("numbers", key=str, value=str, materialized=STORE)
    builder.table("people", key=str, value=str, materialized=OTHER_STORE)
    return catalog_of(plan_topology(builder.build(), StreamsConfig(application_id="app")))


class FakeApplication:
    """The output of an application: its snapshots, and the stores at each of them."""

    def __init__(self, partitions: int = 3) -> None:
        self.catalog = make_catalog()
        self.partitions = partitions
        """How many partitions the next snapshots have."""
        self.history = HISTORY
        self.records: dict[int, SnapshotRecord] = {}
        self.changes: dict[int, dict[str, dict[bytes, bytes | None]]] = {}
        self.states: dict[int, dict[str, dict[bytes, bytes]]] = {}
        self.commit({})

    @property
    def newest(self) -> int:
        """The number of the newest snapshot."""
        return max(self.records)

    def token(self, number: int | None = None) -> Token:
        """Return the token of a snapshot, by default the newest."""
        return token_of(self.records[self.newest if number is None else number])

    def commit(self, changes: Mapping[str, Mapping[bytes, bytes | None]], *, step: int = 1) -> int:
        """Write a snapshot with some changes of stores; return its number."""
        before = max(self.records, default=0)
        number = before + step
        state = {name: dict(self.states[before][name]) if before else {} for name in self._stores}
        for name, changed in changes.items():
            for key, value in changed.items():
                if value is None:
                    state[name].pop(key, None)
                else:
                    state[name][key] = value
        self.states[number] = state
        self.changes[number] = {name: dict(changes.get(name, {})) for name in self._stores}
        self.records[number] = make_record(
            number,
            history=self.history,
            layout=self.catalog.layout.digest,
            since=before,
            ends={store.changelog: [number] * self.partitions for store in self._stores.values()},
            position={"numbers": [number] * self.partitions},
        )
        return number

    def _partitions_at(self, number: int) -> int:
        return len(next(iter(self.records[number].ends.values())))

    @property
    def _stores(self) -> Mapping[str, Any]:
        return self.catalog.stores

    def shards(self) -> list[Shard]:
        """Return all shards."""
        return [
            Shard(group.name, partition)
            for group in self.catalog.layout.groups
            for partition in range(self.partitions)
        ]

    def shard_changes(
        self, shard: Shard, numbers: Iterable[int]
    ) -> dict[TopicPartition, list[Change]]:
        """Return the changelog records of a shard in some snapshots."""
        found: dict[TopicPartition, list[Change]] = {}
        for store in self._stores.values():
            if store.group == shard.group:
                found[TopicPartition(store.changelog, shard.partition)] = [
                    Change(number, number, key, value)
                    for number in numbers
                    for key, value in self.changes[number][store.name].items()
                    if partition_for_key(key, self._partitions_at(number)) == shard.partition
                ]
        return found


class FakeInstance:
    """An instance whose test decides what it reads, when, and whether it is ready."""

    def __init__(self, cluster: FakeCluster, name: str, shards: Iterable[Shard]) -> None:
        self.cluster = cluster
        self.application = cluster.application
        self.catalog = self.application.catalog
        self.name: str | None = name
        self.kept = [*shards]
        self.unready: set[Shard] = set()
        self.is_alive = True
        self.known: dict[str, MemberStatus] = {}
        self.given_problem: QueryProblemError | None = None
        self._database = MemoryDatabase()
        self._copy = self._open_copy()
        self._whole: dict[Shard, int] = {}
        self._read: SnapshotRecord | None = None
        self._listeners: list[Callable[[], None]] = []
        self.coordinator = Coordinator(self, cluster, clock=loop_time, in_thread=inline)

    def _open_copy(self) -> LocalCopy:
        snapshots = KeptSnapshots(lambda: int(loop_time() * 1_000))
        return LocalCopy(self.catalog.layout, self._database, snapshots)

    @property
    def snapshots(self) -> KeptSnapshots:
        return self._copy.snapshots

    def newest_record(self) -> SnapshotRecord | None:
        return self._read

    def problem(self) -> QueryProblemError | None:
        return self.given_problem

    def shard_problem(self, shard: Shard, /) -> QueryProblemError | None:
        return self.given_problem

    def is_shard_ready(self, shard: Shard, /) -> bool:
        return shard in self._whole and shard not in self.unready

    def status(self) -> MemberStatus:
        assert self.name is not None
        shown = {shard: self.snapshots.newest_of(shard) for shard in self._whole}
        return MemberStatus(
            name=self.name,
            history=None if self._read is None else self._read.history,
            snapshot=None if self._read is None else self._read.snapshot,
            shards={shard_name(k): v.record.snapshot for k, v in shown.items() if v is not None},
            ready=tuple(shard_name(each) for each in self._whole if self.is_shard_ready(each)),
        )

    def members(self) -> Mapping[str, MemberStatus]:
        return {**self.known, self.name or "": self.status()}

    def placement(self) -> Mapping[Shard, tuple[str, ...]]:
        return self.cluster.placement

    def note_status(self, status: MemberStatus, /) -> None:
        self.known[status.name] = status

    def add_listener(self, callback: Callable[[], None], /) -> Callable[[], None]:
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    @property
    def listeners(self) -> int:
        """Return how many listeners there are."""
        return len(self._listeners)

    def notify(self) -> None:
        """Call the listeners."""
        for listener in [*self._listeners]:
            listener()

    def read_record(self, number: int) -> None:
        """Read a snapshot record."""
        self._read = self.application.records[number]
        self.notify()

    def apply(
        self, number: int, shards: Iterable[Shard] | None = None, *, jumps: bool = False
    ) -> None:
        """Show a snapshot of some shards, by default all that are kept.

        Shards that are not whole at the snapshot before, and all if asked so, jump to it. The other
        shards stay behind, and join at the newest snapshot that is shown or a later one.
        """
        record = self.application.records[number]
        head = self.head
        assert number >= head, "a copy never shows a snapshot before its newest"
        if self._read is None or self._read.snapshot < number:
            self._read = record
        parts, shown = [], {}
        for shard in self.kept if shards is None else shards:
            before = self._whole.get(shard, 0)
            if before >= number:
                continue
            has_jumped = jumps or before != record.since or number == head
            shown[shard] = None if has_jumped else before
            numbers = [each for each in self.application.records if before < each <= number]
            changes = self.application.shard_changes(shard, numbers)
            state = ShardState(number, {}, 0)
            columns = {name: Changes.of(rows) for name, rows in changes.items()}
            parts.append(ShardWrite(shard, state, columns, lists_changes=not has_jumped))
            self._whole[shard] = number
        if parts:
            now = int(loop_time() * 1_000)
            copy = CopyState(record.layout, {}, record)
            self._copy.carry_out(Write(parts, copy), now)
            if number == head:
                shown = {**self.snapshots.at(token_of(record)).shards, **shown}
            self._copy.carry_out(Show(record, shown), now)
        self.notify()

    @property
    def head(self) -> int:
        """The newest snapshot that is shown; 0: none."""
        return max(self._whole.values(), default=0)

    def restart(self) -> None:
        """Begin again with the files: of each shard only its newest snapshot is there."""
        self.is_alive = True
        self.snapshots.clear()
        self.known.clear()
        self._copy = self._open_copy()
        self.coordinator = Coordinator(self, self.cluster, clock=loop_time, in_thread=inline)
        newest = self.head
        shards: dict[Shard, int | None] = dict.fromkeys(
            shard for shard, number in self._whole.items() if number == newest
        )
        self._whole = dict.fromkeys(shards, newest)
        if newest:
            record = self.application.records[newest]
            self._copy.carry_out(Show(record, shards), int(loop_time() * 1_000))
        self.notify()


class FakeCluster:
    """All instances of an application, and the messages between them."""

    def __init__(
        self, application: FakeApplication, names: Iterable[str] = "abc", *, standbys: int = 1
    ) -> None:
        self.application = application
        self.names = [*names]
        self.placement = place_shards(application.shards(), self.names, standbys)
        self.delay: Callable[[str], float] = lambda _member: 0.001
        self.asked: list[str] = []
        self.is_closed = False
        self.instances = {
            name: FakeInstance(
                self, name, [each for each, placed in self.placement.items() if name in placed]
            )
            for name in self.names
        }

    def apply_everywhere(self, number: int | None = None) -> None:
        """Show a snapshot on all instances, by default the newest, and spread the word."""
        for instance in self.instances.values():
            instance.apply(self.application.newest if number is None else number)
        self.gossip()

    def gossip(self) -> None:
        """Show all living instances the status of each other."""
        for instance in self.instances.values():
            for other in self.instances.values():
                if instance.is_alive and other.is_alive and other is not instance:
                    instance.note_status(other.status())

    async def read(self, member: str, request: LocalRead, /) -> LocalAnswer:
        instance = await self._reach(member)
        read = MessagePack.decode_read(MessagePack.encode(request))
        answer = await answer_locally(instance, read, in_thread=inline)
        await self._reach(member, instance)
        return MessagePack.decode_answer(MessagePack.encode(answer))

    async def changes(self, member: str, request: LocalChanges, /) -> ChangesAnswer:
        instance = await self._reach(member)
        asked = MessagePack.decode_changes(MessagePack.encode(request))
        answer = await answer_changes(instance, asked, in_thread=inline)
        await self._reach(member, instance)
        return MessagePack.decode_changes_answer(MessagePack.encode(answer))

    async def status(self, member: str, /) -> MemberStatus:
        status = (await self._reach(member)).status()
        return msgspec.msgpack.decode(msgspec.msgpack.encode(status), type=MemberStatus)

    async def close(self) -> None:
        self.is_closed = True

    async def _reach(self, member: str, before: FakeInstance | None = None) -> FakeInstance:
        self.asked.append(member)
        await asyncio.sleep(self.delay(member))
        instance = self.instances[member]
        if not instance.is_alive:
            if before is None:
                await asyncio.sleep(0.2)
            raise PeerUnreachableError(f"{member} does not answer")
        return instance
