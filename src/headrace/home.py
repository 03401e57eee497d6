"""A lock on the state of an application: only the process that holds it may use it."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

try:
    import fcntl
except ModuleNotFoundError:  # pragma: no cover  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

from headrace.errors import CheckpointInUseError

_PROCESS_WIDTH = 10


def application_directory(state_dir: Path, application_id: str) -> Path:
    """Return where the state of an application is."""
    return state_dir / application_id


class DirectoryLock:
    """A lock on a file; the operating system frees it when the process ends, however it ends.

    Args:
        directory: What is held.
        log: Where the topics of the application are, if it is held to run one: processes that run
            one application stand by for each other, all else is in their way.
    """

    def __init__(self, directory: Path, *, log: str = "") -> None:
        self._path = directory / "lock"
        self._log = log
        self._file: int | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            CheckpointInUseError: Another process holds it.
        """
        if not self.try_acquire():
            raise self._in_use(self._holder()[0])

    def try_acquire(self) -> bool:
        """Take the lock, unless another process holds it to run the same application.

        Raises:
            CheckpointInUseError: Another process holds it for something else.
        """
        if self._file is not None:
            return True
        # For this user alone: it holds what the topics hold.
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # As long as what others who run the application wrote: it is replaced in one step.
            text = f"{os.getpid():<{_PROCESS_WIDTH}}\n{self._log}".encode()
            os.pwrite(file, text, 0)
            os.ftruncate(file, len(text))
        except BlockingIOError:
            os.close(file)
            holder, log = self._holder()
            if holder and log != self._log:
                raise self._in_use(holder) from None
            return False
        except OSError:
            os.close(file)
            raise
        self._file = file
        return True

    def release(self) -> None:
        """Give the lock back."""
        if self._file is not None:
            if fcntl is not None:  # a child that is being started has the file open too
                fcntl.flock(self._file, fcntl.LOCK_UN)
            os.close(self._file)
            self._file = None

    def _holder(self) -> tuple[str, str]:
        """Return the process that holds the lock, and where the topics are that it works on."""
        process, _, log = self._path.read_text(errors="replace").partition("\n")
        return process.strip(), log

    def _in_use(self, holder: str) -> CheckpointInUseError:
        return CheckpointInUseError(str(self._path.parent), holder=holder or None)

    def __enter__(self) -> DirectoryLock:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
