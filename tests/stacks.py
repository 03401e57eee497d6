"""The stacks of a process and of all that it started, for a test that hangs."""

from __future__ import annotations

import faulthandler
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_SECONDS = 30
"""How long one process may take to show its stacks."""
_COMMAND_LENGTH = 160


def stacks_below(pid: int) -> str:
    """Return the stacks of this process's threads, and those of every process below ``pid``."""
    shown = ["-- this process", _own_stacks()]
    for child in _processes_below(pid):
        command = _command(child)
        if command:
            shown += [
                f"-- process {child}: {command[:_COMMAND_LENGTH]}",
                _stacks_of(child, command),
            ]
    return "\n".join(shown)


def _own_stacks() -> str:
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return file.read()


def _processes_below(pid: int) -> Iterator[int]:
    """Yield the children of a process and their children; none where there is no ``/proc``."""
    for listed in sorted(_PROC.glob(f"{pid}/task/*/children")):
        try:
            children = listed.read_text().split()
        except OSError:
            continue  # the thread has ended
        for child in map(int, children):
            yield child
            yield from _processes_below(child)


def _command(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "cmdline").read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        return ""


def _stacks_of(pid: int, command: str) -> str:
    name = Path(command.split()[0]).name
    if name.startswith("java"):
        return _output_of("jstack", str(pid))
    if "python" in name or name in ("headrace", "pytest"):
        return _output_of("py-spy", "dump", "--pid", str(pid))
    return "(neither Python nor Java)"


def _output_of(tool: str, *arguments: str) -> str:
    found = shutil.which(tool, path=str(Path(sys.executable).parent)) or shutil.which(tool)
    if found is None:
        return f"({tool} is missing)"
    try:
        done = subprocess.run(
            [found, *arguments], capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"({tool} gave no answer within {_SECONDS} s)"
    return done.stdout if done.returncode == 0 else f"({tool} failed: {done.stderr.strip()})"
