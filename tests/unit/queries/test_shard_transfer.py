"""A shard travels between databases byte for byte, and a damaged one does not arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from headrace.queries.copy.actions import CopyIdentity, ShardState
from headrace.queries.copy.database import Database, WriteBatch
from headrace.queries.copy.disk_database import DiskDatabase
from headrace.queries.copy.keys import EVERYTHING, entry_prefix
from headrace.queries.copy.layout import Shard
from headrace.queries.copy.local_copy import LocalCopy
from headrace.queries.copy.memory_database import MemoryDatabase
from headrace.queries.transfer.exporting import export_shard
from headrace.queries.transfer.fetching import ShardFetch
from headrace.queries.transfer.messages import (
    MOST_BYTES,
    TransferError,
    frame_of,
    frames,
    header_of,
)
from tests.unit.queries.copied_stores import CHANGELOG, SHARD, CopiedStore, copied
from tests.unit.queries.snapshot_records import make_record
from tests.unit.state.written_stores import CASES, written

HISTORY = make_record(1, ends={}).history
IDENTITY = CopyIdentity("layout", HISTORY, {CHANGELOG: "id"})


class Sent:
    """An instance that sends chunks, and fails at the end if it should."""

    def __init__(self, chunks: Iterable[bytes], failure: Exception | None = None) -> None:
        self._chunks, self._failure = chunks, failure

    @contextmanager
    def shard(self, _member: str, _shard: Shard, /) -> Iterator[Iterator[bytes]]:
        yield self._sent()

    def _sent(self) -> Iterator[bytes]:
        yield from self._chunks
        if self._failure is not None:
            raise self._failure


def fetched(store: CopiedStore, database: Database, source: Sent) -> ShardFetch:
    """Return a transfer that has ended."""
    fetch = ShardFetch(source, "b:1", store.layout, SHARD, IDENTITY, database.new_entries())
    fetch.start()
    fetch.join(60)
    assert not fetch.is_running()
    return fetch


def exported(store: CopiedStore) -> list[bytes]:
    return [*export_shard(store.layout, store.snapshots[-1], SHARD)]


def entries(database: Database) -> list[tuple[bytes, bytes]]:
    return [entry for entry in database.view().scan(*EVERYTHING) if entry[0][:1] == b"e"]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("is_on_disk", [False, True], ids=["to memory", "to disk"])
def test_a_shard_of_every_kind_of_store_arrives_as_it_was_sent(
    case: str, is_on_disk: bool, tmp_path: Path
) -> None:
    sender: Database = MemoryDatabase() if is_on_disk else DiskDatabase(tmp_path / "sender")
    receiver: Database = DiskDatabase(tmp_path / "receiver") if is_on_disk else MemoryDatabase()
    store = copied(written(case, 1), sender)
    # The entries of an earlier copy of the shard go.
    left = entry_prefix(store.layout.partitions(SHARD)[0]) + b"left"
    receiver.write(WriteBatch(entries={left: b"1"}))
    copy = LocalCopy(store.layout, receiver)

    fetch = fetched(store, receiver, Sent(exported(store)))

    number = store.snapshots[-1].record.snapshot
    assert fetch.state == ShardState(number, {CHANGELOG: number}, 0)
    assert [key for key, _ in entries(receiver)] == [left]
    state = ShardState(None, fetch.state.offsets, 0)
    copy.adopt(SHARD, state, fetch.entries)
    assert entries(receiver) == entries(sender) != []
    assert copy.saved().shards == {SHARD: state}
    receiver.close()
    store.snapshots.clear()
    sender.close()


@pytest.fixture
def store() -> CopiedStore:
    return copied(written("key_value", 1))


def cut_in_a_message(sent: bytes) -> bytes:
    return sent[:-1]


def cut_between_messages(sent: bytes) -> bytes:
    return sent[: -len(frame_of(0))] if sent[-1] < 128 else sent[: -len(frame_of(128))]


def nothing(_sent: bytes) -> bytes:
    return b""


def more(sent: bytes) -> bytes:
    return sent + frame_of(1)


def too_long(sent: bytes) -> bytes:
    return (MOST_BYTES + 1).to_bytes(4) + sent


def another_type(sent: bytes) -> bytes:
    return frame_of(7) + sent


def damaged_part(sent: bytes) -> bytes:
    header, *_ = frames([sent])
    return len(header).to_bytes(4) + header + (2).to_bytes(4) + b"\xc1\xc1"


@pytest.mark.parametrize(
    "damage",
    [
        *(cut_in_a_message, cut_between_messages, nothing, more, too_long, another_type),
        damaged_part,
    ],
)
def test_a_damaged_shard_does_not_arrive(
    store: CopiedStore, damage: Callable[[bytes], bytes]
) -> None:
    sent = b"".join(exported(store))
    assert fetched(store, MemoryDatabase(), Sent([sent])).state is not None

    assert fetched(store, MemoryDatabase(), Sent([damage(sent)])).state is None


def test_a_shard_of_an_instance_that_dies_leaves_nothing(
    store: CopiedStore, tmp_path: Path
) -> None:
    database = DiskDatabase(tmp_path / "copy-1")
    sent = b"".join(exported(store))
    failure = ConnectionResetError()

    fetch = fetched(store, database, Sent([sent[:-10]], failure))

    assert fetch.state is None
    assert [*(tmp_path / "copy-1-incoming").iterdir()] == []
    assert entries(database) == []
    database.close()


@pytest.mark.parametrize(
    "changed",
    [
        {"identity": msgspec.structs.replace(IDENTITY, topic_ids={CHANGELOG: "another"})},
        {"identity": msgspec.structs.replace(IDENTITY, history="another")},
        {"identity": msgspec.structs.replace(IDENTITY, layout="another")},
        {"partition": 1},
        {"state": ShardState(1, {}, 0)},
        {"format": 2},
    ],
    ids=["topic", "history", "layout", "shard", "changelogs", "format"],
)
def test_a_shard_of_something_else_is_refused(
    store: CopiedStore, changed: dict[str, object]
) -> None:
    sent = b"".join(exported(store))
    header, *parts = frames([sent])
    other = msgspec.structs.replace(header_of(header), **changed)
    framed = [frame_of(other), *(len(part).to_bytes(4) + part for part in parts)]

    assert fetched(store, MemoryDatabase(), Sent(framed)).state is None


@pytest.mark.parametrize("makes_files", [False, True], ids=["memory", "disk"])
@pytest.mark.parametrize(
    "keys", [(b"m",), (b"s\0\0\0\x000",), (b"e", b"z"), (b"2", b"1"), (b"1", b"1")], ids=repr
)
def test_entries_elsewhere_and_in_another_order_are_refused(
    store: CopiedStore, tmp_path: Path, makes_files: bool, keys: Sequence[bytes]
) -> None:
    header, *_ = frames(exported(store))
    prefix = entry_prefix(store.layout.partitions(SHARD)[0])
    keys = [prefix + key if key.isdigit() else key for key in keys]
    part = frame_of([(key, b"") for key in keys])
    sent = [len(header).to_bytes(4) + header, part, frame_of(len(keys))]
    database: Database = DiskDatabase(tmp_path / "copy-1") if makes_files else MemoryDatabase()

    assert fetched(store, database, Sent(sent)).state is None
    database.close()


def test_a_shard_that_is_not_whole_is_not_sent(store: CopiedStore) -> None:
    with pytest.raises(TransferError, match="not whole"):
        export_shard(store.layout, store.snapshots[-1], Shard("0", 1))


def test_a_cancelled_transfer_leaves_nothing(store: CopiedStore, tmp_path: Path) -> None:
    database = DiskDatabase(tmp_path / "copy-1")
    sent = b"".join(exported(store))
    fetch: ShardFetch

    def chunks() -> Iterator[bytes]:
        header, *_ = frames([sent])
        yield sent[: len(header) + 4]
        fetch.cancel()
        yield sent[len(header) + 4 :]

    fetch = ShardFetch(Sent(chunks()), "b:1", store.layout, SHARD, IDENTITY, database.new_entries())
    fetch.start()
    fetch.join(60)

    assert fetch.state is None
    assert [*(tmp_path / "copy-1-incoming").iterdir()] == []
    database.close()
