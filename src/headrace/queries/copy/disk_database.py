"""A database on disk: RocksDB, with keys and values as plain bytes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from threading import Lock

import rocksdict

from headrace.queries.copy.database import WriteBatch

_CACHE_BYTES = 64 << 20
_BLOOM_BITS = 10
_NOT_FOUND = "key not found"
_SCANNED_AT_ONCE = 256


class DiskView:
    """A state of RocksDB: a snapshot for single keys, and an iterator for scans.

    An iterator keeps the state in which it was made. The library's snapshots do so for single keys
    alone: their iterators see later writes (rocksdict 0.3.29).
    """

    def __init__(self, files: rocksdict.Rdict) -> None:
        self._snapshot = files.snapshot()
        self._entries = files.iter()
        self._lock = Lock()

    def get(self, key: bytes, /) -> bytes | None:
        try:
            value: bytes = self._snapshot[key]
        except Exception as error:
            # The library has no class of its own for it.
            if str(error) == _NOT_FOUND:
                return None
            raise
        return value

    def scan(
        self, start: bytes, end: bytes, /, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        return chain.from_iterable(self._chunks(start, end, reverse=reverse))

    def _chunks(
        self, start: bytes, end: bytes, *, reverse: bool
    ) -> Iterator[list[tuple[bytes, bytes]]]:
        while chunk := self._read(start, end, reverse=reverse):
            yield chunk
            last = chunk[-1][0]
            # The first key behind the last one, or all keys before it.
            start, end = (start, last) if reverse else (last + b"\0", end)

    def _read(self, start: bytes, end: bytes, *, reverse: bool) -> list[tuple[bytes, bytes]]:
        entries = self._entries
        valid, key_of, value_of = entries.valid, entries.key, entries.value
        step = entries.prev if reverse else entries.next
        chunk: list[tuple[bytes, bytes]] = []
        with self._lock:
            if reverse:
                entries.seek_for_prev(end)
                if entries.valid() and entries.key() == end:
                    entries.prev()
            else:
                entries.seek(start)
            for _ in range(_SCANNED_AT_ONCE):
                if not valid() or not start <= (key := key_of()) < end:
                    break
                chunk.append((key, value_of()))
                step()
        return chunk


class DiskDatabase:
    """A folder of RocksDB's files. Only one process may open it, and one thread writes."""

    def __init__(self, folder: Path) -> None:
        table = rocksdict.BlockBasedOptions()
        table.set_bloom_filter(_BLOOM_BITS, block_based=False)
        table.set_block_cache(rocksdict.Cache(_CACHE_BYTES))
        options = rocksdict.Options(raw_mode=True)
        options.set_block_based_table_factory(table)
        self._files = rocksdict.Rdict(str(folder), options)

    def write(self, batch: WriteBatch) -> None:
        changes = rocksdict.WriteBatch(raw_mode=True)
        for start, end in batch.deleted_ranges:
            changes.delete_range(start, end)
        put, delete = changes.put, changes.delete
        for key, value in batch.entries.items():
            if value is None:
                delete(key)
            else:
                put(key, value)
        self._files.write(changes)

    def view(self) -> DiskView:
        return DiskView(self._files)

    def close(self) -> None:
        self._files.close()
