"""The processes under test: instances that only answer, and the application."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from chaos.processes import Session
from chaos.queries.program import APPLICATION, SETTINGS
from chaos.queries.running import DIE, HALF_WRITTEN, LEADING, STANDS_BY
from chaos.steps import FOLDER, arm

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("program.py")
_END_SECONDS = 60.0
_PAUSE_SECONDS = 0.05
_COVERAGE = "COVERAGE_PROCESS_"
"""Variables that let coverage measure the processes of a process, which slows them."""


class Kept:
    """A process that is killed and started again.

    Args:
        name: Its name, and that of the file with its output.
        command: How it starts.
        folder: Where it runs.
        search: Where it finds modules before all others.
        variables: Variables of its environment.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        folder: Path,
        search: tuple[Path, ...] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.lives = 0
        """How often it was started."""
        self.stands_still = False
        """Whether it gets no processor time."""
        self.output = folder / f"{name.replace(':', '-')}.log"
        self._command = command
        self._folder = folder
        self._search = search
        self._variables = variables or {}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        self.lives += 1
        search = [*map(str, self._search), str(ROOT), os.environ.get("PYTHONPATH", "")]
        kept = {name: os.environ[name] for name in os.environ if not name.startswith(_COVERAGE)}
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env={
                    **kept,
                    "PYTHONPATH": os.pathsep.join(filter(None, search)),
                    **self._variables,
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def is_up(self) -> bool:
        """Return whether it lives."""
        return self._process is not None and self._process.poll() is None

    def stand_still(self, may: Callable[[], bool]) -> None:
        """Stop it and what it has started, at an instant at which they may stand still."""
        assert self._process is not None, "started"
        session = Session(self._process.pid)
        self.stands_still = True
        while session.stop(session.pids()) and not may():
            session.resume(session.pids())
            time.sleep(_PAUSE_SECONDS)

    def resume(self) -> None:
        """Continue it."""
        assert self._process is not None, "started"
        session = Session(self._process.pid)
        session.resume(session.pids())
        self.stands_still = False

    def kill(self) -> None:
        """End it and what it has started, at once."""
        self.stands_still = False
        if self._process is not None:
            Session(self._process.pid).kill()
            self._process.wait()

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

    def has_said(self, text: str, since: int = 0) -> bool:
        """Return whether a text is in its output, behind so many characters."""
        return text in self._said()[since:]

    def size(self) -> int:
        """Return how many characters its output has."""
        return len(self._said())

    def _said(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def last_output(self) -> str:
        """Return the end of its output."""
        return self._said()[-2_000:]


@dataclass
class Site:
    """The folder and the settings of the processes of a campaign."""

    folder: Path
    servers: str | None = None
    """Kafka's addresses; None: the embedded log."""
    on_spark: bool = False
    guarantee: str = "exactly_once_v2"
    _applications: int = field(default=0, init=False)

    def instance(self, port: int, mistake: str | None = None) -> Kept:
        """Return an instance at a port of loopback.

        Args:
            port: Its port.
            mistake: One of `chaos.queries.mistakes`, if it is to be wrong on purpose.
        """
        module = ["headrace"] if mistake is None else ["chaos.queries.mistakes", mistake]
        address = f"127.0.0.1:{port}"
        command = [sys.executable, "-m", *module, "serve", str(PROGRAM), "--server", address]
        return Kept(address, [*command, *self._options()], self.folder)

    def application(self) -> Kept:
        """Return a process of the application, with Spark or without; it leads or stands by."""
        self._applications += 1
        name = f"application-{self._applications}"
        if not self.on_spark:
            command = ["-m", "chaos.queries.running", "--folder", str(self.folder)]
            command += ["--guarantee", self.guarantee]
            command += ["--bootstrap-servers", self.servers] if self.servers else []
            return Kept(name, [sys.executable, *command], self.folder)
        command = ["-m", "headrace", "run", str(PROGRAM), "--application-id", APPLICATION]
        command += ["--master", "local[2]", *self._options()]
        steps = {FOLDER: str(self.folder)}
        patch = (ROOT / "chaos" / "patch",)
        return Kept(name, [sys.executable, *command], self.folder, patch, steps)

    def stands_by(self, process: Kept, since: int = 0) -> bool:
        """Return whether a process of the application waits for another one to end.

        Args:
            process: The process.
            since: What it has written by then does not count, in characters.
        """
        return process.has_said(STANDS_BY, since)

    def nobody_writes(self) -> bool:
        """Return whether no process holds the lock of the embedded log."""
        if self.servers is not None:
            return True
        path = self.folder / "state" / "topics.db"
        with closing(sqlite3.connect(path, timeout=0.0, isolation_level=None)) as database:
            try:
                database.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            database.execute("ROLLBACK")
        return True

    @property
    def has_sessions(self) -> bool:
        """Return whether a leader that stands still loses its place to the next one."""
        return not self.on_spark or self.servers is not None

    def end_session(self) -> None:
        """Make the next process of the application lead, as the end of a session does on Spark."""
        if not self.on_spark:
            (self.folder / LEADING).unlink()

    def die_at(self, moment: str) -> None:
        """End the application at a place of a batch, soon.

        Spark's processes end between two transactions, or before Spark's commit; the record of the
        snapshot may be written by then.
        """
        if self.on_spark:
            step = "after-commit" if moment == HALF_WRITTEN else "before-spark-commit"
            arm(self.folder, step, "all")
            return
        path = self.folder / DIE
        new = path.with_suffix(".new")
        new.write_text(moment)
        new.replace(path)

    def _options(self) -> list[str]:
        options = ["--state-dir", str(self.folder / "state")]
        settings = {"processing.guarantee": self.guarantee, **SETTINGS}
        for name, value in settings.items():
            options += ["--setting", f"{name}={value}"]
        return [*options, "--bootstrap-servers", self.servers] if self.servers else options
