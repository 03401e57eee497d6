"""The SQLite file of the embedded log: its tables, and transactions with a timeout."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, TypeAlias
from weakref import WeakSet

import msgspec

from headrace.errors import BrokerError, BrokerUnavailableError

BUSY_MS = 30_000
"""How long a writer waits for another one."""

OFFSET_BITS = 40
"""A record's rowid is its partition's id and its offset in one number. So a partition lies in one
piece of the file, in the order of its offsets, and needs no index."""

# The types of rows, which are checked: SQLite stores any value in any column.
PartitionId: TypeAlias = Annotated[int, msgspec.Meta(ge=1, lt=1 << (63 - OFFSET_BITS))]
Offset: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << OFFSET_BITS)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]

_VERSION = 3
_SCHEMA = """
CREATE TABLE topic (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    settings TEXT NOT NULL,
    uuid TEXT NOT NULL DEFAULT (lower(hex(randomblob(16))))
);
CREATE TABLE partition (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    topic INTEGER NOT NULL REFERENCES topic ON DELETE CASCADE,
    number INTEGER NOT NULL,
    log_start_offset INTEGER NOT NULL DEFAULT 0,
    end_offset INTEGER NOT NULL DEFAULT 0,
    cleaned INTEGER NOT NULL DEFAULT 0,
    compacted_records INTEGER NOT NULL DEFAULT 0,
    UNIQUE (topic, number)
);
CREATE TABLE record (
    rowid INTEGER PRIMARY KEY,
    timestamp INTEGER NOT NULL,
    appended INTEGER NOT NULL,
    key BLOB,
    value BLOB,
    headers BLOB
);
CREATE TABLE committed (
    group_id TEXT NOT NULL,
    partition INTEGER NOT NULL REFERENCES partition ON DELETE CASCADE,
    "offset" INTEGER NOT NULL,
    metadata TEXT NOT NULL,
    PRIMARY KEY (group_id, partition)
) WITHOUT ROWID;
CREATE INDEX committed_partition ON committed (partition);
CREATE TABLE transactional (
    id TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE consumer_group (
    id TEXT PRIMARY KEY,
    state TEXT NOT NULL
) WITHOUT ROWID;
"""

# SQLite's codes for a file that it did not write, or that another program changed.
_DAMAGED = {
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_NOTADB,
}
# Errors that show when a row is read: text that is not UTF-8, a number where text belongs.
_UNDECODED = (msgspec.DecodeError, UnicodeDecodeError)
_UNREADABLE = (sqlite3.OperationalError, sqlite3.DataError, *_UNDECODED)
_MOST_QUOTED = 200


_creating = threading.Lock()
_databases: WeakSet[Database] = WeakSet()
_forking = threading.Lock()
"""Held by the thread that forks: others wait, and no database is added."""
_held: list[Database] = []
"""The databases whose locks that thread holds."""


class Database:
    """A connection to the file. Threads may share it; a forked process gets its own."""

    def __init__(self, path: Path, *, busy_ms: int = BUSY_MS) -> None:
        self.path = path
        self._busy_ms = busy_ms
        self.lock = threading.RLock()
        """Held by the thread that uses the connection."""
        self._connection: sqlite3.Connection | None = None
        with _forking:
            _databases.add(self)
        with self.reading():
            pass

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield the file for reading; it does not change inside the block."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield the file for writing; all changes of the block are made, or none."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    def version(self) -> int:
        """Return a number that changes when another connection has changed the file."""
        with self.lock, self._translating_errors():
            (version,) = self._open().execute("PRAGMA data_version").fetchone()
        return int(version)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self.lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self.lock, self._translating_errors():
            connection = self._open()
            connection.execute(begin)
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                # A full disk ends the transaction by itself.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        self._create()
        connection = sqlite3.connect(
            self.path, timeout=self._busy_ms / 1000, isolation_level=None, check_same_thread=False
        )
        try:
            self._check_format(connection)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(f"PRAGMA journal_size_limit = {64 << 20}")
            self._create_tables(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _create(self) -> None:
        """Create the file for this user alone, if it is missing; SQLite's other files get its mode.

        An existing file is not opened: closing it again would drop the locks of every connection of
        this process, and other processes could then delete its newest changes.
        """
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _creating, suppress(FileExistsError):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))

    def _create_tables(self, connection: sqlite3.Connection) -> None:
        if _version_of(connection) == 0:
            connection.execute("BEGIN IMMEDIATE")
            # Another process may have been first.
            if _version_of(connection) == 0:
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {_VERSION}")
            connection.execute("COMMIT")
        self._check_format(connection)

    def _check_format(self, connection: sqlite3.Connection) -> None:
        """Refuse a file that another program or another version wrote, before it is changed."""
        connection.execute("BEGIN")  # so that both answers are of the same moment
        version = _version_of(connection)
        has_tables = connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        connection.execute("COMMIT")
        if version not in (0, _VERSION):
            msg = (
                f"The embedded log {str(self.path)!r} has format {version}, but this version of "
                f"Headrace reads format {_VERSION}. Use the version that wrote it, or another file."
            )
            raise BrokerError(msg)
        if version == 0 and has_tables:
            msg = "it has tables of another program"
            raise sqlite3.DataError(msg)

    @contextmanager
    def _translating_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, *_UNDECODED, OSError) as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> BrokerError:
        file = f"The embedded log {str(self.path)!r}"
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return BrokerUnavailableError(
                f"{file} was in use by another writer for {self._busy_ms / 1000:g} s. "
                "Keep transactions short, allow more time (`request_timeout`), or use Kafka for "
                "this many writers."
            )
        if code == sqlite3.SQLITE_FULL:
            return BrokerError(f"{file} cannot grow: the disk is full. Make room; nothing is lost.")
        if code == sqlite3.SQLITE_IOERR:
            return BrokerError(
                f"{file} could not be read or written ({error}). Make room on its disk, lift a "
                "limit on the size of files, and check the disk; committed records are not lost."
            )
        if code in _DAMAGED or (code == 0 and isinstance(error, _UNREADABLE)):
            return BrokerError(
                f"{file} is damaged, or no embedded log ({str(error)[:_MOST_QUOTED]}). Restore a "
                "copy of it, or choose another file (`embedded_path`)."
            )
        return BrokerError(
            f"{file} cannot be used ({error}). Check `embedded_path` and the file's permissions."
        )


def _version_of(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _hold_all() -> None:
    _forking.acquire()
    for database in sorted(_databases, key=id):
        database.lock.acquire()
        _held.append(database)


def _release_all() -> None:
    while _held:
        _held.pop().lock.release()
    _forking.release()


def _close_all() -> None:
    global _forking
    for database in _held:
        database.close()
    _release_all()
    _forking = threading.Lock()  # threads may have waited for the other that are not here


# In a forked child, SQLite assumes that an inherited connection still holds its locks. Close it, or
# the child writes without a lock.
if hasattr(os, "register_at_fork"):  # pragma: no branch  # Windows does not fork
    os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_close_all)
