"""The brokers of our own tests and benchmarks, with a user who logs in."""

from __future__ import annotations

import argparse
import atexit
import json
import subprocess
import sys
import time
from functools import cache, partial
from pathlib import Path

from headrace.errors import StreamsError
from headrace.testing.kafka import RunningBroker, RunningCluster, starting
from headrace.testing.kafka.jars import MissingToolError, jars
from headrace.testing.kafka.starting import LASTING, QUICK, free_ports

__all__ = [
    "LASTING",
    "PASSWORD",
    "QUICK",
    "USER",
    "MissingToolError",
    "RunningBroker",
    "RunningCluster",
    "free_ports",
    "jars",
    "start_broker",
    "start_cluster",
]

USER, PASSWORD = "alice", "canary-secret-of-alice"
_PATIENCE_SECONDS = 780
"""How long Maven and a broker may take together."""

start_broker = partial(starting.start_broker, users={USER: PASSWORD})
start_cluster = partial(starting.start_cluster, users={USER: PASSWORD})


@cache
def shared_broker() -> RunningBroker:
    """Return the one broker of this process, which ends with it: for fixtures of all folders."""
    broker = start_broker()
    atexit.register(broker.__exit__)
    return broker


class BrokerForAll:
    """A broker that several processes share: it ends when the process that made it does.

    It starts in the background. `broker_described_in` waits for it.

    Args:
        folder: Keeps its data.
    """

    def __init__(self, folder: Path) -> None:
        self.description = folder / "broker.json"
        command = [sys.executable, "-m", "tests.kafka_broker", "--serve", str(self.description)]
        # The broker ends with this pipe, also if this process is killed.
        self._process = subprocess.Popen(
            [*command, "--folder", str(folder)],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )

    def close(self) -> None:
        """Stop the broker."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def broker_described_in(description: Path) -> RunningBroker:
    """Return a broker that another process runs, when it answers."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not description.exists():
        if time.monotonic() > deadline:
            raise RuntimeError(f"The broker that all tests share has not written {description}.")
        time.sleep(0.05)
    properties = json.loads(description.read_text())
    if "error" in properties:
        raise RuntimeError(f"The broker that all tests share does not start: {properties['error']}")
    return RunningBroker(description.parent, properties, (), is_temporary=False)


def _serve(description: Path, folder: Path) -> int:
    """Run a broker until standard input ends, and describe it in a file as soon as it answers."""
    unfinished = description.with_suffix(".new")
    try:
        broker = start_broker(folder)
    except (StreamsError, subprocess.SubprocessError) as error:
        unfinished.write_text(json.dumps({"error": str(error)}))
        unfinished.rename(description)
        return 1
    with broker:
        unfinished.write_text(json.dumps(broker.properties))
        unfinished.rename(description)
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run the broker that all tests share.")
    parser.add_argument("--serve", type=Path, metavar="FILE", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args()
    raise SystemExit(_serve(given.serve, given.folder))
