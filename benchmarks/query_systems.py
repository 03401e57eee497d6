"""The systems whose queries are compared: how an instance of each is started and asked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.apps.queried_totals import STORE
from benchmarks.process_tree import proportional_set_size
from benchmarks.query_load import body_of
from benchmarks.query_writer import PROBE
from benchmarks.systems import JAVA, start
from benchmarks.throughput import RunError, end, jvm_exit_reason
from headrace.queries.coordination.local_routes import STATUS_PATH
from headrace.testing.kafka.starting import free_ports

READY_SECONDS = 300.0
_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class QueriedSystem:
    """A system whose stores can be read over HTTP."""

    name: str
    command: Callable[[str, str, Path, str, str], list[str]]
    """Returns the command of an instance, of broker, application, state, input and server."""
    keys: str
    """The path before a key."""
    status: str
    """The path of the state of an instance."""
    copies: Callable[[dict[str, Any]], int]
    """Returns how many copies of partitions a state has."""


def _headrace(
    address: str, application_id: str, state: Path, source: str, server: str
) -> list[str]:
    module = "benchmarks.apps.serve_totals"
    return [sys.executable, "-m", module, address, application_id, str(state), source, server]


def _kafka_streams(
    address: str, application_id: str, state: Path, source: str, server: str
) -> list[str]:
    return [
        "java",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        "-Dsun.net.httpserver.nodelay=true",
        "-Dsun.net.httpserver.maxIdleConnections=1000",
        "-cp",
        f"{JAVA / 'target' / 'benchmark-rival-1.jar'}:{JAVA / 'target' / 'lib'}/*",
        "io.headrace.benchmarks.Queries",
        address,
        application_id,
        str(state / server.replace(":", "-")),
        source,
        server,
        "1",
    ]


HEADRACE = QueriedSystem(
    "headrace",
    _headrace,
    f"/v1/stores/{STORE}/keys/",
    STATUS_PATH,
    lambda status: len(status["shards"]),
)
KAFKA_STREAMS = QueriedSystem(
    "kafka-streams",
    _kafka_streams,
    "/keys/",
    "/status",
    lambda status: int(status["active"] + status["standby"]),
)


class Instance:
    """A process that answers queries.

    Args:
        system: What it is.
        address: Where the broker listens.
        application_id: The application.
        folder: Keeps its state and its log.
        source: The input of the application.
        core: The only core that it may use; None: all.
    """

    def __init__(
        self,
        system: QueriedSystem,
        address: str,
        application_id: str,
        folder: Path,
        source: str,
        *,
        core: int | None = None,
    ) -> None:
        [port] = free_ports(1)
        self.system, self.server = system, f"127.0.0.1:{port}"
        self._log = folder / f"{application_id}-{port}.log"
        command = system.command(address, application_id, folder, source, self.server)
        pinned = [] if core is None else ["taskset", "-c", str(core)]
        self.began = time.monotonic()
        self.process = start([*pinned, *command], self._log)

    def probe(self) -> int | None:
        """Return the number of the newest transaction that a reader sees; None: no answer."""
        found = body_of(self.server, self.system.keys + PROBE.decode())
        return None if found is None else int(json.loads(found)["orders"])

    def status(self) -> dict[str, Any] | None:
        """Return what the instance says about itself."""
        found = body_of(self.server, self.system.status)
        return None if found is None else dict(json.loads(found))

    def await_that(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait for a state of this instance.

        Raises:
            RunError: The process ended, or the state did not come.
        """
        deadline = time.monotonic() + READY_SECONDS
        while not is_so():
            if self.process.poll() is not None or time.monotonic() > deadline:
                msg = f"{self.system.name} did not get to {what}.\n{jvm_exit_reason(self._log)}"
                raise RunError(msg)
            time.sleep(_LOOK_SECONDS)

    def await_transaction(self, number: int) -> None:
        """Wait until it is ready and a reader sees a transaction."""

        def is_there() -> bool:
            status = self.status()
            return status is not None and status["is_ready"] and (self.probe() or 0) >= number

        self.await_that(is_there, f"transaction {number}")

    def memory_mb(self) -> float:
        """Return how much memory the process uses."""
        return proportional_set_size(self.process.pid) / 1e6

    def kill(self) -> float:
        """Kill the process with SIGKILL, and return when."""
        at = time.monotonic()
        self.process.kill()
        self.process.wait()
        return at

    def close(self) -> None:
        """End the process."""
        if self.process.poll() is None:
            end(self.process)


def await_copies(instances: Sequence[Instance], copies: int) -> None:
    """Wait until all instances are ready, and each partition has its copies and no more."""

    def is_settled() -> bool:
        found = [each.status() for each in instances]
        states = [each for each in found if each is not None]
        return (
            len(states) == len(instances)
            and all(each["is_ready"] for each in states)
            and sum(map(instances[0].system.copies, states)) == copies
        )

    instances[0].await_that(is_settled, f"{copies} copies of partitions")


def pin(pid: int, cores: set[int]) -> None:
    """Bind every thread of a process to some cores."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            os.sched_setaffinity(int(thread.name), cores)
        except ProcessLookupError:
            continue


def can_pin() -> bool:
    """Return whether a process can be given a core of its own."""
    return shutil.which("taskset") is not None and len(os.sched_getaffinity(0)) > 1


def run_python(module: str, *arguments: str) -> dict[str, Any]:
    """Run a Python program to its end, and return the JSON that it prints.

    Raises:
        RunError: It failed.
    """
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        check=False,
    )
    if done.returncode:
        msg = f"{module} ended with exit code {done.returncode}."
        raise RunError(msg)
    return dict(json.loads(done.stdout.splitlines()[-1]))
