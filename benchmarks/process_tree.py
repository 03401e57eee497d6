"""CPU time and memory of a program and everything it started, from `/proc`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
# Fields of /proc/<pid>/stat after the name, which may hold spaces and parentheses itself.
SESSION, USER_TIME, CHILDREN_TIME_END = 3, 11, 15


class Member(NamedTuple):
    """A process of a session."""

    pid: int
    name: str
    cpu_seconds: float
    """With that of its children that have ended and that it waited for."""


class ProcessTree:
    """All processes of one session: a program started in a session of its own, and its offspring.

    The session, not the parents: a process whose parent ended still belongs to it.

    Args:
        leader: The process that the session began with.
    """

    def __init__(self, leader: int) -> None:
        self.leader = leader

    def members(self) -> Iterator[Member]:
        """Yield the processes that live now."""
        for entry in os.scandir(PROC):
            if not entry.name.isdecimal():
                continue
            try:
                stat = Path(entry.path, "stat").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            name, _, rest = stat.partition(b"(")[2].rpartition(b")")
            fields = rest.split()
            if int(fields[SESSION]) == self.leader:
                ticks = sum(map(int, fields[USER_TIME:CHILDREN_TIME_END]))
                yield Member(int(entry.name), name.decode(), ticks / TICKS)

    def cpu_seconds(self) -> float:
        """Return the CPU time that the session has used."""
        return sum(member.cpu_seconds for member in self.members())

    def memory(self) -> dict[str, int]:
        """Return the bytes in memory by name of process, shared pages counted once (PSS)."""
        sizes: dict[str, int] = {}
        for member in self.members():
            size = proportional_set_size(member.pid)
            sizes[member.name] = sizes.get(member.name, 0) + size
        return sizes

    def kill(self) -> None:
        """Kill the processes that still live."""
        for member in list(self.members()):
            try:
                os.kill(member.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def proportional_set_size(pid: int) -> int:
    """Return a process's share of the memory, in bytes; 0 if it has ended."""
    try:
        for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def own_cpu_seconds(pid: int) -> float:
    """Return the CPU time of one process, without its children."""
    fields = (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    return sum(map(int, fields[USER_TIME : USER_TIME + 2])) / TICKS
