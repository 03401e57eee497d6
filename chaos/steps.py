"""The named steps of the protocol, and how a process dies when it comes to one of them.

A file in the folder of the round arms a step. Its name has the step, the victim, and how often the
step is passed before. Each process that comes to the step counts it down; the last one kills.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.process_tree import ProcessTree

FOLDER = "CHAOS_FOLDER"
"""The variable that names the folder of the round."""

SPARK_STEPS = ("before-spark-commit", "after-spark-commit")
"""The steps that need no transaction."""

STEPS = (
    "before-begin",
    "after-begin",
    "after-produce",
    "after-offsets",
    "before-commit",
    "after-commit",
    *SPARK_STEPS,
)
"""The steps of a batch, in order."""

_FIRED = "fired"
_REFUSED = "refused"
_LEAP = "leap"


def arm(folder: Path, step: str, victim: str, times: int = 1) -> None:
    """Kill ``victim`` when ``step`` is reached for the ``times``-th time from now."""
    (folder / f"{step}.{victim}.{times}").touch()


def disarm(folder: Path) -> None:
    """Disarm all steps, and forget the victims."""
    for name in (*STEPS, _FIRED):
        for path in folder.glob(f"{name}.*"):
            path.unlink(missing_ok=True)


def has_fired(folder: Path) -> bool:
    """Return whether a process has died."""
    return any(folder.glob(f"{_FIRED}.*"))


def leap(folder: Path, milliseconds: int) -> None:
    """Set the system clock ahead by this much in the processes under test."""
    (folder / _LEAP).write_text(str(milliseconds))


def leap_ms() -> int:
    """Return how far the system clock is ahead."""
    try:
        return int((Path(os.environ[FOLDER]) / _LEAP).read_text() or 0)
    except FileNotFoundError:
        return 0


def reached(step: str) -> None:
    """Report that this process has come to a step; it may be its last."""
    folder = Path(os.environ[FOLDER])
    for path in folder.glob(f"{step}.*"):
        _, victim, times = path.name.split(".")
        left = int(times) - 1
        target = folder / (f"{step}.{victim}.{left}" if left else f"{_FIRED}.{step}.{victim}")
        try:
            path.rename(target)
        except FileNotFoundError:
            continue  # another process counted it
        if not left:
            VICTIMS[victim]()


def refuse() -> None:
    """Report that the disk of this process is full; an empty file needs no room."""
    (Path(os.environ[FOLDER]) / f"{_REFUSED}.{os.getpid()}.{time.monotonic_ns()}").touch()


def refusals(folder: Path) -> int:
    """Return how often a process reported that its disk is full."""
    return len(list(folder.glob(f"{_REFUSED}.*")))


def kill_worker() -> None:
    """End this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def kill_jvm() -> None:
    """End Spark's Java, and this process before it can do more."""
    for member in _session().members():
        if member.name == "java":
            os.kill(member.pid, signal.SIGKILL)
    kill_worker()


def kill_driver() -> None:
    """End the driver's Python alone: the others live on until they notice."""
    os.kill(os.getsid(0), signal.SIGKILL)


def kill_all() -> None:
    """End every process of the application, this one last."""
    for member in list(_session().members()):
        if member.pid != os.getpid():
            os.kill(member.pid, signal.SIGKILL)
    kill_worker()


def _session() -> ProcessTree:
    return ProcessTree(os.getsid(0))


VICTIMS: dict[str, Callable[[], None]] = {
    "worker": kill_worker,
    "jvm": kill_jvm,
    "driver": kill_driver,
    "all": kill_all,
}
"""The processes that may die at a step."""
