"""A lease on the state of an application: only the process that holds it may run it."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

try:
    import fcntl
except ModuleNotFoundError:  # pragma: no cover  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

from headrace.errors import CheckpointInUseError


def application_directory(state_dir: Path, application_id: str) -> Path:
    """Return where the state of an application is."""
    return state_dir / application_id


class Lease:
    """A lock on a file; the operating system frees it when the process ends, however it ends."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "lock"
        self._file: int | None = None

    def acquire(self) -> None:
        """Take the lease.

        Raises:
            CheckpointInUseError: Another process holds it.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(file, 32).decode(errors="replace").strip()
            os.close(file)
            raise CheckpointInUseError(str(self._path.parent), holder=holder or None) from None
        os.ftruncate(file, 0)
        os.pwrite(file, str(os.getpid()).encode(), 0)
        self._file = file

    def release(self) -> None:
        """Give the lease back."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Lease:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
