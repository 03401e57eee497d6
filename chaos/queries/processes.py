"""The processes under test: instances that only answer, and the application."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from chaos.queries.program import APPLICATION
from chaos.queries.running import DIE

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("program.py")
_END_SECONDS = 30.0


class Kept:
    """A process that is killed and started again.

    Args:
        name: Its name, and that of the file with its output.
        command: How it starts.
        folder: Where it runs.
    """

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name = name
        self.lives = 0
        """How often it was started."""
        self.output = folder / f"{name.replace(':', '-')}.log"
        self._command = command
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        self.lives += 1
        search = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, search))},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def is_up(self) -> bool:
        """Return whether it lives."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End it and what it has started, at once."""
        process = self._process
        if process is not None:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def stop(self) -> int:
        """End it in order, and return its exit code."""
        process = self._process
        assert process is not None, "started"
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return -1

    def last_output(self) -> str:
        """Return the end of its output."""
        return self.output.read_text(errors="replace")[-2_000:]


def instance(
    folder: Path, port: int, servers: str | None = None, mistake: str | None = None
) -> Kept:
    """Return an instance at a port of loopback.

    Args:
        folder: The folder of the campaign.
        port: Its port.
        servers: Kafka's addresses; None: the embedded log.
        mistake: One of `chaos.queries.mistakes`, if it is to be wrong on purpose.
    """
    module = ["headrace"] if mistake is None else ["chaos.queries.mistakes", mistake]
    address = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", *module, "serve", str(PROGRAM), "--server", address]
    return Kept(address, [*command, *_place(folder, servers)], folder)


def application(folder: Path, servers: str | None = None, *, on_spark: bool = False) -> Kept:
    """Return the application, in one process or on Spark."""
    if on_spark:
        command = ["-m", "headrace", "run", str(PROGRAM), "--application-id", APPLICATION]
        command += ["--master", "local[2]", *_place(folder, servers)]
    else:
        command = ["-m", "chaos.queries.running", "--folder", str(folder)]
        command += ["--bootstrap-servers", servers] if servers else []
    return Kept("application", [sys.executable, *command], folder)


def die_at(folder: Path, place: str) -> None:
    """Let the application in one process kill itself at a place of its next batch."""
    path = folder / DIE
    new = path.with_suffix(".new")
    new.write_text(place)
    new.replace(path)


def _place(folder: Path, servers: str | None) -> list[str]:
    place = ["--state-dir", str(folder / "state")]
    return [*place, "--bootstrap-servers", servers] if servers else place
