"""Keeps an application running, as an operator's supervisor does: it restarts ended processes.

Beside the leader there may be a standby, another process of the same application.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from chaos.patching import BREAK
from chaos.processes import Session
from chaos.registry import REGISTRY
from chaos.steps import FOLDER

ROOT = Path(__file__).parents[1]
DROPPED = "dropped.json"
"""The file to which a process writes how many records it dropped, when it ends in order."""

_PAUSE_SECONDS = 0.2
_STOP_SECONDS = 60.0
_LEFT_OVER_SECONDS = 20.0
_STAND_BY_SECONDS = 60.0
_LAST_WORDS = 2000


class Supervisor:
    """One application, from its first start to its orderly end.

    Args:
        folder: Keeps its state, its settings and its output.
        workload: The name of the workload.
        settings: Its settings, under Kafka's names.
        mistake: One of `chaos.patching.BREAKS`, if it is to be wrong on purpose.
        registry: The URL of its schema registry, if it has one.
    """

    def __init__(
        self,
        folder: Path,
        workload: str,
        settings: Mapping[str, str],
        mistake: str | None = None,
        registry: str | None = None,
    ) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.application_id = settings["application.id"]
        self.starts = 0
        """How often it was started."""
        self.exits: dict[int, int] = {}
        """The codes with which processes of it ended by themselves, or because of a fault."""
        self.settings = folder / "settings.json"
        """The file with its settings."""
        self.settings.write_text(json.dumps({**settings, "state.dir": str(self.state)}))
        self._command = [sys.executable, "-m", "chaos.application", workload, str(self.settings)]
        search = [str(ROOT / "chaos" / "patch"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, search)),
            FOLDER: str(folder),
            **({BREAK: mistake} if mistake else {}),
            **({REGISTRY: registry} if registry else {}),
        }
        self._process: subprocess.Popen[str] | None = None
        self._standby: subprocess.Popen[str] | None = None
        self._sessions: list[Session] = []
        self._clock_ms = self._latest_ms = 0
        self._has_stepped_clock = False
        self._held = threading.RLock()
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True)

    @property
    def checkpoint(self) -> Path:
        """Return where Spark keeps progress and state."""
        home = self.state / self.application_id
        # It runs on one cluster; before the first batch there is no folder yet.
        return next(home.glob("*/checkpoint"), home / "not-started") / "spark"

    @property
    def session(self) -> Session:
        """The processes of the running application, without those that stand by."""
        assert self._process is not None, "started"
        return Session(self._process.pid)

    @property
    def log(self) -> Path:
        """The output of the application."""
        return self.folder / "application.log"

    def dropped(self) -> dict[str, int] | None:
        """Return how many records its last process dropped, by reason; None if it did not say."""
        path = self.folder / DROPPED
        return json.loads(path.read_text()) if path.exists() else None

    def last_output(self) -> str:
        """Return the end of its output."""
        return self.log.read_text(errors="replace")[-_LAST_WORDS:]

    def start(self) -> None:
        """Start it, and keep it running."""
        self._start()
        self._keeper.start()

    def step_clock(self, milliseconds: int) -> int:
        """Move the time of day and continue from there; return the new time."""
        self._clock_ms += milliseconds
        self._latest_ms = max(self._latest_ms, self._clock_ms)
        self._has_stepped_clock = True
        return self.clock_ms()

    def end_clock_faults(self) -> None:
        """Set the clock to the most that it has shown: until then nothing is due."""
        self._clock_ms = self._latest_ms

    def _write_clock(self) -> None:
        assert self._process is not None, "started"
        assert self._process.stdin is not None, "a pipe"
        with suppress(BrokenPipeError, ValueError):  # it has just died; the next one gets the time
            self._process.stdin.write(f"{self.clock_ms()}\n")
            self._process.stdin.flush()

    def clock_ms(self) -> int:
        """Return the time of day, as the application is to see it."""
        return time.time_ns() // 1_000_000 + self._clock_ms

    def stand_by(self) -> bool:
        """Start a second process, unless there is one; return whether it stands by."""
        self._standby = standby = self._standby or self._started()
        says_so = f"{standby.pid} WARNING .* this process stands by"
        give_up = time.monotonic() + _STAND_BY_SECONDS
        while not re.search(says_so, self.log.read_text(errors="replace")):
            if time.monotonic() > give_up or standby.poll() is not None:
                return False
            time.sleep(_PAUSE_SECONDS)
        return True

    def dismiss(self) -> None:
        """End the second process, if there is one."""
        if self._standby is not None:
            Session(self._standby.pid).kill()
            _close_pipe(self._standby)
            self._standby.wait()
            self._standby = None

    def follow(self) -> subprocess.Popen[str]:
        """Keep the second process running from here on, and return the one that was first."""
        with self._held:
            assert self._process is not None, "started"
            assert self._standby is not None, "stands by"
            first, self._process, self._standby = self._process, self._standby, None
            self.starts += 1
        _close_pipe(first)
        return first

    @contextmanager
    def held_down(self) -> Iterator[None]:
        """End the application at once, and do not start it again inside the block."""
        with self._held:
            self.session.kill()
            self._await_end()
            yield

    def is_up(self) -> bool:
        """Return whether its first process lives."""
        return self._process is not None and self._process.poll() is None

    def close(self) -> bool:
        """End it in order, and what is left of it by force; return whether it ended well."""
        self._over.set()
        self._keeper.join()
        process = self._process
        assert process is not None, "started"
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            code = -1
        _close_pipe(process)
        return not self._left_over() and code == 0

    def kill(self) -> None:
        """End everything at once."""
        self._over.set()
        self._keeper.join()
        for session in self._sessions:
            session.kill()
        self.dismiss()
        if self._process is not None:
            self._await_exit()

    def _left_over(self) -> bool:
        """Return whether processes of it live on; they do not after this."""
        give_up = time.monotonic() + _LEFT_OVER_SECONDS
        while any(session.pids() for session in self._sessions):
            if time.monotonic() > give_up:
                self.kill()
                return True
            time.sleep(_PAUSE_SECONDS)
        return False

    def _start(self) -> None:
        self._process = self._started()
        self.starts += 1

    def _started(self) -> subprocess.Popen[str]:
        with self.log.open("a") as output:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=self._environment,
                cwd=self.folder,
                start_new_session=True,
                text=True,
            )
        self._sessions.append(Session(process.pid))
        return process

    def _await_exit(self) -> None:
        assert self._process is not None, "started"
        self.exits[self._process.pid] = self._process.wait()
        _close_pipe(self._process)

    def _await_end(self) -> None:
        self._await_exit()
        while self.session.pids():
            time.sleep(_PAUSE_SECONDS)

    def _keep(self) -> None:
        while not self._over.wait(_PAUSE_SECONDS):
            with self._held:
                if not self.is_up():
                    self._await_exit()
                    self._start()
                elif self._has_stepped_clock:
                    self._write_clock()


def _close_pipe(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None, "a pipe"
    with suppress(BrokenPipeError):
        process.stdin.close()
