"""An application's folders: every path below them, their mode, the directory lock, deletion.

::

    <state.dir>/<application.id>/<cluster>/   checkpoint, which must outlive the process
    <work.dir>/<application.id>/<cluster>/    lock, run files and logs, on this machine

``<cluster>`` is the log's cluster id, so one program has its own state on each Kafka cluster and on
the embedded log.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

try:
    import fcntl
except ModuleNotFoundError:  # pragma: no cover  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

from headrace.config import StreamsConfig
from headrace.errors import BrokerError, CheckpointError, CheckpointInUseError

_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,200}")
_SERVER = re.compile(r"[A-Za-z0-9._:\[\]-]{1,190}:[0-9]{1,5}")
_PROCESS_WIDTH = 10
_RUN_PREFIX = "run-"
_OLD_RUN_SECONDS = 24 * 3600.0


@dataclass(frozen=True)
class ApplicationHome:
    """The folders of one application on one cluster. Making one creates no folder.

    Raises `BrokerError` if the cluster id or the application id cannot name a folder.
    """

    state_dir: Path
    work_dir: Path
    application_id: str
    cluster_id: str

    def __post_init__(self) -> None:
        for name in (self.application_id, self.cluster_id):
            if not _NAME.fullmatch(name):
                msg = (
                    f"{name!r} cannot name a folder of application {self.application_id!r}. An "
                    "application id and a cluster id have 1 to 200 letters, digits, '.', '_' or "
                    "'-'."
                )
                raise BrokerError(msg)

    @classmethod
    def of(cls, config: StreamsConfig, cluster_id: str) -> ApplicationHome:
        state_dir = config.state_dir
        return cls(state_dir, work_dir(config), config.require_application_id(), cluster_id)

    @property
    def state(self) -> Path:
        """The folder of the checkpoint."""
        return self.state_dir / self.application_id / self.cluster_id

    @property
    def work(self) -> Path:
        """The folder of the lock, the run files and the logs."""
        return self.work_dir / self.application_id / self.cluster_id

    @property
    def checkpoint(self) -> Path:
        """Return where Spark keeps state and progress."""
        return self.state / "checkpoint"

    @property
    def spark_log(self) -> Path:
        """Return where Spark and its workers log."""
        return self.work / "spark.log"

    def queries(self, server: str) -> Path:
        """Return the folder of the instance that answers queries under an address.

        Raises `BrokerError` if the address is none.
        """
        if not _SERVER.fullmatch(server):
            msg = f"{server!r} is no `application.server`. Use `host:port`."
            raise BrokerError(msg)
        # Each address has its own name, which is safe in every file system.
        name = re.sub(r"[^A-Za-z0-9._-]", lambda found: f"%{ord(found[0]):02X}", server)
        return self.work / "queries" / name

    @property
    def _older_checkpoint(self) -> Path:
        """The checkpoint of a version that had no folder for each cluster."""
        return self.state_dir / self.application_id / "checkpoint"

    @property
    def _discarded_checkpoint(self) -> Path:
        return self.checkpoint.with_name("checkpoint.reset")

    def create(self) -> None:
        """Create both folders; existing ones keep their mode."""
        for folder in (self.state, self.work):
            _create_folder(folder)

    def create_queries(self, server: str) -> Path:
        """Create the folder of an instance, for this user alone, and return it."""
        _create_folder(self.work)
        folder = self.queries(server)
        for each in (folder.parent, folder):
            each.mkdir(mode=0o700, exist_ok=True)
        return folder

    def check_layout(self) -> None:
        """Raise `CheckpointError` if an older version has left a checkpoint."""
        if self._older_checkpoint.is_dir():
            msg = (
                f"The checkpoint {str(self._older_checkpoint)!r} is of an older version, which did "
                "not keep state by cluster."
            )
            raise CheckpointError(msg, f"Start again with `headrace reset {self.application_id}`.")

    def lock(self, *, log: str = "") -> DirectoryLock:
        return DirectoryLock(self.work, log=log)

    def new_run_folder(self) -> Path:
        """Create a folder for the run files of one run.

        Deletes those of killed runs, unless they are so recent that the run may only be suspended.
        """
        for folder in self.work.glob(f"{_RUN_PREFIX}*"):
            with suppress(OSError):
                if time.time() - folder.stat().st_mtime > _OLD_RUN_SECONDS:
                    shutil.rmtree(folder)
        return Path(tempfile.mkdtemp(prefix=_RUN_PREFIX, dir=self.work))

    def has_checkpoint(self) -> bool:
        """Return whether there is a checkpoint that may be used."""
        return _exists(self.checkpoint)

    def discarded(self) -> list[Path]:
        """Return the checkpoints that no start uses and `delete_discarded` deletes."""
        return [*filter(_exists, (self._discarded_checkpoint, self._older_checkpoint))]

    def discard_checkpoint(self) -> None:
        """Take the checkpoint out of use, in one step; its deletion takes many."""
        if not self.has_checkpoint():
            return
        _delete(self._discarded_checkpoint)
        try:
            self.checkpoint.rename(self._discarded_checkpoint)
        except OSError as error:
            raise _not_deleted(self.checkpoint, error) from error

    def delete_discarded(self) -> None:
        for path in self.discarded():
            _delete(path)


def work_dir(config: StreamsConfig) -> Path:
    """Return the folder of the work folders of applications."""
    return config.work_dir or config.state_dir


def work_dir_of(work: Path) -> Path:
    """Return the setting `work.dir` with which an application has a work folder."""
    return work.parents[1]


def run_folder_before_start(config: StreamsConfig) -> Path:
    """Return the folder of the run files of an application that has not started: there is none."""
    return config.state_dir / "not-started"


def applications_in(state_dir: Path) -> list[str]:
    """Return the ids of the applications that have a folder."""
    folders = state_dir.iterdir() if state_dir.is_dir() else ()
    return [folder.name for folder in folders if folder.is_dir()]


class DirectoryLock:
    """A lock on a folder. The operating system releases it when the process ends, however it ends.

    Processes that run the application on the same ``log`` stand by for each other. A process
    without one does something else, such as a reset, and excludes them all.
    """

    def __init__(self, directory: Path, *, log: str = "") -> None:
        self._path = directory / "lock"
        self._log = log
        self._file: int | None = None

    def acquire(self) -> None:
        """Acquire the lock; raise `CheckpointInUseError` if another process holds it."""
        if not self.try_acquire():
            raise self._in_use(self._holder()[0])

    def try_acquire(self) -> bool:
        """Acquire the lock; return False if another process holds it to run the same application.

        Raises `CheckpointInUseError` if another process holds it for something else.
        """
        if self._file is not None:
            return True
        _create_folder(self._path.parent)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The process id has a fixed width, so a standby's text replaces its leader's at once.
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

    def is_held(self) -> bool:
        """Return whether any process holds the lock, this one included. Changes nothing."""
        try:
            file = os.open(self._path, os.O_RDONLY)
        except OSError:
            return False
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False

    def release(self) -> None:
        if self._file is not None:
            if fcntl is not None:  # a child that is being started has the file open too
                fcntl.flock(self._file, fcntl.LOCK_UN)
            os.close(self._file)
            self._file = None

    def _holder(self) -> tuple[str, str]:
        """Return the process that holds the lock, and the log that it uses."""
        process, _, log = self._path.read_text(errors="replace").partition("\n")
        return process.strip(), log

    def _in_use(self, holder: str) -> CheckpointInUseError:
        return CheckpointInUseError(
            str(self._path.parent), holder=holder or None, is_start=bool(self._log)
        )

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


def _create_folder(folder: Path) -> None:
    """Create the folder of a cluster. Only this user may enter the application's, above it."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(exist_ok=True)


def _exists(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def _delete(path: Path) -> None:
    try:
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.exists():
            shutil.rmtree(path)
    except OSError as error:
        raise _not_deleted(path, error) from error


def _not_deleted(path: Path, error: OSError) -> BrokerError:
    return BrokerError(
        f"{str(path)!r} cannot be deleted ({error}). Correct its permissions, and reset again."
    )
