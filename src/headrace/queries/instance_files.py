"""The files of an instance: a folder with a lock and a database, or a temporary database."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import tempfile
from pathlib import Path

from headrace.errors import CheckpointInUseError, QueryError
from headrace.home import ApplicationHome, DirectoryLock
from headrace.queries.copy.database import Database
from headrace.queries.copy.disk_database import DiskDatabase

_DATABASE = "copy-1"
"""The folder of the database; the number rises with the format of its keys and values."""

_CORRUPTION = "Corruption"
_RETRIABLE = tuple(
    os.strerror(number)
    for number in (
        errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM,
        errno.EROFS, errno.EIO, errno.ENOMEM,
    )
)  # fmt: skip
"""Reasons of the operating system that do not mean that files are damaged."""

_log = logging.getLogger("headrace")


class InstanceFiles:
    """The folder of one instance. Only this user reads it, and one process uses it.

    Without a name, as ``application.server`` gives one, the folder is temporary.
    """

    def __init__(self, home: ApplicationHome, name: str | None) -> None:
        self._home = home
        self._name = name
        self._folder: Path | None = None
        self._lock: DirectoryLock | None = None

    def open(self) -> Database:
        """Return the database; a damaged one is replaced by an empty one.

        Raises:
            QueryError: Another instance of the same name uses the folder, or the database cannot be
                opened now.
        """
        folder = self._locked()
        database = folder / _DATABASE
        for other in folder.glob("copy-*"):
            if other != database:
                shutil.rmtree(other, ignore_errors=True)
        try:
            return DiskDatabase(database)
        except Exception as error:  # the library has no class of its own
            if not _is_damage(str(error)):
                msg = f"The copy in {database} cannot be opened now, and stays as it is: {error}"
                raise QueryError(msg) from error
            _log.warning("The copy in %s is damaged, and is replaced: %s", database, error)
            shutil.rmtree(database)
            return DiskDatabase(database)

    def close(self) -> None:
        """Release the folder; a temporary one is deleted."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        if self._name is None and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def _locked(self) -> Path:
        if self._folder is not None:
            return self._folder
        if self._name is None:
            self._folder = Path(tempfile.mkdtemp(prefix="headrace-queries-"))
            return self._folder
        folder = self._home.create_queries(self._name)
        lock = DirectoryLock(folder)
        try:
            lock.acquire()
        except CheckpointInUseError as error:
            msg = (
                f"Process {error.holder} answers queries as {self._name!r} already. "
                "Give each instance its own `application.server`."
            )
            raise QueryError(msg) from error
        self._lock, self._folder = lock, folder
        return folder


def _is_damage(message: str) -> bool:
    """Return whether an error of the library means that the files are damaged.

    Other errors pass: a lock that a view of before holds, too many open files, a full disk. The
    library wraps some of them in words that sound like damage (rocksdict 0.3.29).
    """
    is_retriable = any(reason in message for reason in _RETRIABLE)
    is_permanent = message.startswith(_CORRUPTION) or os.strerror(errno.ENOENT) in message
    return is_permanent and not is_retriable
