"""The processes of an application under test, by what they are to it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.process_tree import PROC, ProcessTree, proportional_set_size

_WARM_BATCHES = 3
"""How many batches a run plans until Java and all workers are there."""
_FEWEST = 6
_GROWTH = 1.2
_ROOM = (100_000_000, 50)
"""The permitted growth of a run besides that factor, in bytes and in files."""
_PAUSE_SECONDS = 0.001
_STATE, _PARENT = 0, 1  # the fields of /proc/<pid>/stat after the name


class Usage(NamedTuple):
    """Memory and files of the processes of an application."""

    bytes: int
    """Memory, shared pages counted once."""
    files: int
    """Open files and connections."""
    batch: int = 0
    """The last batch that was planned by then."""


class Session:
    """All processes of one run of an application.

    Args:
        driver: The first of them: the driver's Python, which leads a session of its own.
    """

    def __init__(self, driver: int) -> None:
        self.driver = driver
        self._tree = ProcessTree(driver)

    def pids(self) -> list[int]:
        """Return all that live."""
        return [member.pid for member in self._tree.members()]

    def jvm(self) -> list[int]:
        """Return Spark's Java; nothing while it starts."""
        return [member.pid for member in self._tree.members() if member.name == "java"]

    def workers(self) -> list[int]:
        """Return the Pythons that Spark uses: planner, sink, daemon and its workers."""
        parents = dict(self._parents())
        warm = {pid for pid in parents if parents[pid] == self.driver and _is_warm(pid)}
        found: set[int] = set()
        while more := {pid for pid in parents if parents[pid] in warm | found} - found:
            found |= more
        return sorted(found)

    def kill(self, pids: list[int] | None = None) -> list[int]:
        """End processes at once; left out: all of them. Return those that lived until then."""
        return _signal(self.pids() if pids is None else pids, signal.SIGKILL)

    def stop(self, pids: list[int]) -> list[int]:
        """Stop processes, and wait until they stand still; return those that lived."""
        met = _signal(pids, signal.SIGSTOP)
        while any(lives(pid) and not _stands_still(pid) for pid in met):
            time.sleep(_PAUSE_SECONDS)
        return met

    def resume(self, pids: list[int]) -> list[int]:
        """Continue stopped processes; return those that lived."""
        return _signal(pids, signal.SIGCONT)

    def usage(self) -> Usage:
        """Return what all of them hold together."""
        pids = self.pids()
        return Usage(sum(map(proportional_set_size, pids)), sum(map(_open_files, pids)))

    def _parents(self) -> Iterator[tuple[int, int]]:
        for pid in self.pids():
            if stat := _stat(pid):
                yield pid, int(stat[_PARENT])


def lives(pid: int) -> bool:
    """Return whether a process has not ended; a zombie process has."""
    stat = _stat(pid)
    return bool(stat) and stat[_STATE] not in (b"Z", b"X")


def _stands_still(pid: int) -> bool:
    stat = _stat(pid)
    return bool(stat) and stat[_STATE] in (b"T", b"t")


def _stat(pid: int) -> list[bytes]:
    try:
        stat = (PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return stat.rpartition(b")")[2].split()


def _is_warm(pid: int) -> bool:
    try:
        return b"warm_python" in (PROC / str(pid) / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def _open_files(pid: int) -> int:
    try:
        return len(list(Path(PROC, str(pid), "fd").iterdir()))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0


def _signal(pids: list[int], number: signal.Signals) -> list[int]:
    met = [pid for pid in pids if lives(pid)]
    for pid in list(met):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            met.remove(pid)
    return met


def leaks(runs: Iterable[list[Usage]]) -> Iterator[str]:
    """Yield what grew without end in a run of an application, given samples of each run."""
    for early, late in growths(runs):
        for name, before, after, room in zip(Usage._fields, early, late, _ROOM, strict=False):
            if after > _GROWTH * before + room:
                yield f"A run grew from {before:,} to {after:,} {name}."


def warm(samples: list[Usage]) -> list[Usage]:
    """Return the samples of a run that count: those after it had planned some batches."""
    first = min((each.batch for each in samples), default=0) + _WARM_BATCHES
    return [each for each in samples if each.batch >= first]


def growths(runs: Iterable[list[Usage]]) -> Iterator[tuple[Usage, Usage]]:
    """Yield the most that each run held early, and the least that it held late.

    Samples from before a run has planned some batches do not count, nor those of a standby.
    """
    for all_samples in runs:
        samples = warm(all_samples)
        third = len(samples) // 3
        if third < _FEWEST:
            continue
        early, late = samples[:third], samples[-third:]
        yield Usage(*map(max, *early)), Usage(*map(min, *late))
