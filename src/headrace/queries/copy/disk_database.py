"""A database on disk: RocksDB, with keys and values as plain bytes."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from threading import Lock

import rocksdict

from headrace.queries.copy.database import SortedEntries, UnsortedError, WriteBatch

_CACHE_BYTES = 32 << 20
_WRITE_BUFFER_BYTES = 16 << 20
"""How much is written to memory before it goes to a file. Open views keep several such buffers."""
_BUFFER_FILTER_SHARE = 0.02
"""The share of a write buffer for its Bloom filter: few keys that are read are in a buffer."""
_BLOOM_BITS = 10
_NOT_FOUND = "key not found"
_FIRST_CHUNK, _LARGEST_CHUNK = 16, 1024
"""How many entries a scan reads at once: many scans end after a few."""
_FILE_BYTES = 64 << 20
"""How large a file of entries becomes that the database takes over."""
_NOT_ASCENDING = "strict ascending order"
_LARGE_BATCH = 256
"""After a write of so many entries readers in other threads have their turn."""
_PAUSE_SECONDS = 0.0001
INCOMING = "-incoming"
"""The end of the name of the folder beside a database that has such files."""


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
        chunks = self.chunks(start, end, reverse=reverse)
        return chain.from_iterable(zip(*chunk, strict=True) for chunk in chunks)

    def chunks(
        self, start: bytes, end: bytes, /, *, reverse: bool = False
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        size = _FIRST_CHUNK
        while True:
            keys, values = self._read(start, end, size, reverse=reverse)
            if keys:
                yield keys, values
            if len(keys) < size:
                return
            # The first key behind the last one, or all keys before it.
            start, end = (start, keys[-1]) if reverse else (keys[-1] + b"\0", end)
            size = min(4 * size, _LARGEST_CHUNK)

    def _read(
        self, start: bytes, end: bytes, size: int, *, reverse: bool
    ) -> tuple[list[bytes], list[bytes]]:
        """Return up to so many entries from the beginning of a range, or from its end."""
        entries = self._entries
        valid, key_of, value_of = entries.valid, entries.key, entries.value
        step = entries.prev if reverse else entries.next
        keys: list[bytes] = []
        values: list[bytes] = []
        with self._lock:
            if reverse:
                entries.seek_for_prev(end)
                if entries.valid() and entries.key() == end:
                    entries.prev()
            else:
                entries.seek(start)
            # To step on without an entry would end the process.
            for _ in range(size):
                if not valid():
                    break
                key = key_of()
                if key >= end or key < start:
                    break
                keys.append(key)
                values.append(value_of())
                step()
        return keys, values


class DiskEntries:
    """Files of entries that a `DiskDatabase` takes over later.

    The folder goes with them.
    """

    def __init__(self, folder: Path, options: rocksdict.Options) -> None:
        self._folder = folder
        self._options = options
        self._writer: rocksdict.SstFileWriter | None = None
        self._last = b""
        self.paths: list[str] = []

    def add(self, entries: Sequence[tuple[bytes, bytes]], /) -> None:
        if not entries:
            return
        if self._writer is None:
            # The library compares the keys of one file.
            if self.paths and entries[0][0] <= self._last:
                raise UnsortedError(entries[0][0])
            self.paths.append(str(self._folder / f"{len(self.paths)}.sst"))
            self._writer = rocksdict.SstFileWriter(self._options)
            self._writer.open(self.paths[-1])
        put = self._writer.__setitem__
        try:
            for key, value in entries:
                put(key, value)
        except Exception as error:  # the library has no class of its own
            if _NOT_ASCENDING in str(error):
                raise UnsortedError(str(error)) from error
            raise
        self._last = entries[-1][0]
        if self._writer.file_size() >= _FILE_BYTES:
            self.finish()

    def finish(self) -> None:
        """Close the file that is open."""
        if self._writer is not None:
            self._writer.finish()
            self._writer = None

    def discard(self) -> None:
        self._writer = None
        shutil.rmtree(self._folder, ignore_errors=True)


class DiskDatabase:
    """A folder of RocksDB's files. Only one process may open it, and one thread writes."""

    def __init__(self, folder: Path) -> None:
        self._incoming = folder.with_name(folder.name + INCOMING)
        shutil.rmtree(self._incoming, ignore_errors=True)
        table = rocksdict.BlockBasedOptions()
        table.set_bloom_filter(_BLOOM_BITS, block_based=False)
        table.set_block_cache(rocksdict.Cache(_CACHE_BYTES))
        options = rocksdict.Options(raw_mode=True)
        options.set_block_based_table_factory(table)
        options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
        options.set_memtable_prefix_bloom_ratio(_BUFFER_FILTER_SHARE)
        options.set_memtable_whole_key_filtering(True)
        self._options = options
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
        if len(batch.entries) >= _LARGE_BATCH:
            # The library lets no other thread run while it writes (rocksdict 0.3.29). Without a
            # pause the next write begins before a reader wakes up.
            time.sleep(_PAUSE_SECONDS)

    def view(self) -> DiskView:
        return DiskView(self._files)

    def new_entries(self) -> DiskEntries:
        self._incoming.mkdir(mode=0o700, exist_ok=True)
        return DiskEntries(Path(tempfile.mkdtemp(dir=self._incoming)), self._options)

    def take_over(self, entries: SortedEntries) -> None:
        assert isinstance(entries, DiskEntries), "made by this database"
        entries.finish()
        options = rocksdict.IngestExternalFileOptions()
        options.set_move_files(True)
        if entries.paths:
            self._files.ingest_external_file(entries.paths, options)
        entries.discard()

    def close(self) -> None:
        self._files.close()
        shutil.rmtree(self._incoming, ignore_errors=True)
