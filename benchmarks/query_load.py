"""Clients that ask over HTTP: as fast as possible, for one key again and again, through a kill."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import randrange
from threading import Event, Thread
from typing import Any

import httptools
from msgspec import Struct

from benchmarks.latency import percentile
from benchmarks.systems import ROOT

CONNECTIONS = 32
_ASK_SECONDS = 1.0
_PAUSE_SECONDS = 0.001
_SCRIPT = """
request = function()
  return wrk.format("GET", string.format("{path}loc-%06d", math.random(0, {keys} - 1)))
end
done = function(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    '{{"requests":%d,"seconds":%f,"p50_ms":%f,"p99_ms":%f,"errors":%d}}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3,
    latency:percentile(99) / 1e3,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
"""


class Load(Struct):
    """The result of asking as fast as possible."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    errors: int
    """Requests without an answer, or with another status than 2xx."""

    @property
    def answers(self) -> int:
        """Return how many keys were answered."""
        return self.requests - self.errors

    @property
    def per_second(self) -> float:
        """Return how many keys were answered in a second."""
        return self.answers / self.seconds


def client_name() -> str:
    """Return what asks as fast as possible."""
    return "wrk" if shutil.which("wrk") else "asyncio and httptools"


def ask_for_keys(
    server: str, path: str, keys: int, seconds: float, cores: set[int] | None = None
) -> Load:
    """Ask for random keys as fast as one process can, over `CONNECTIONS` connections.

    Args:
        server: Host and port.
        path: The path before the key.
        keys: How many keys there are.
        seconds: For how long.
        cores: Where the client runs; None: anywhere.
    """
    pinned = [] if cores is None else ["taskset", "-c", ",".join(map(str, sorted(cores)))]
    if shutil.which("wrk") is None:
        command = [sys.executable, "-m", "benchmarks.query_load", server, path, str(keys)]
        command = [*pinned, *command, str(seconds)]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
        return Load(**json.loads(done.stdout))
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(_SCRIPT.format(path=path, keys=keys))
        script.flush()
        command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds:.0f}s", "--timeout", "5s"]
        command = [*pinned, *command, "-s", script.name, f"http://{server}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return Load(**json.loads(done.stdout.splitlines()[-1]))


class _Connection(asyncio.Protocol):
    """Asks for one key after the other."""

    def __init__(self, path: str, keys: int) -> None:
        self._path, self._keys = path, keys
        self.waits: list[float] = []
        self.errors = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self.waits.append(time.perf_counter() - self._asked)
        self.errors += self._parser.get_status_code() != http.client.OK
        self._ask()

    def _ask(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._asked = time.perf_counter()
        path = f"{self._path}loc-{randrange(self._keys):06d}"
        self._transport.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())


async def _ask_alone(server: str, path: str, keys: int, seconds: float) -> Load:
    host, _, port = server.rpartition(":")
    loop = asyncio.get_running_loop()
    connections = []
    for _ in range(CONNECTIONS):
        made = await loop.create_connection(lambda: _Connection(path, keys), host, int(port))
        connections.append(made[1])
    began = time.perf_counter()
    await asyncio.sleep(seconds)
    took = time.perf_counter() - began
    waits = [wait * 1_000 for each in connections for wait in each.waits]
    errors = sum(each.errors for each in connections)
    return Load(len(waits), took, percentile(waits, 0.5), percentile(waits, 0.99), errors)


class Reader(Thread):
    """Reads one key again and again, and notes which number it saw when.

    Args:
        server: Host and port.
        path: The path with the key. Its value is an object with the field ``orders``.
    """

    def __init__(self, server: str, path: str) -> None:
        super().__init__(daemon=True)
        self._server, self._path = server, path
        self._stopping = Event()
        self.sightings: list[tuple[int, float]] = []
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            self._read()
        except Exception as error:
            self.failure = error

    def _read(self) -> None:
        last = -1
        connection = http.client.HTTPConnection(self._server, timeout=30)
        while not self._stopping.is_set():
            connection.request("GET", self._path)
            answer = connection.getresponse()
            body = answer.read()
            number = json.loads(body)["orders"] if answer.status == http.client.OK else last
            if number > last:
                last = number
                self.sightings.append((number, time.monotonic()))
            time.sleep(_PAUSE_SECONDS)
        connection.close()

    @property
    def newest(self) -> int:
        """The highest number that it saw."""
        return self.sightings[-1][0] if self.sightings else -1

    def stop(self) -> None:
        """Stop reading."""
        self._stopping.set()
        self.join()
        if self.failure is not None:
            raise self.failure


class Prober(Thread):
    """Reads some keys of one instance in turn, and notes when each had an answer.

    Args:
        server: Host and port.
        paths: The path of each key.
    """

    def __init__(self, server: str, paths: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self._server, self._paths = server, paths
        self._stopping = Event()
        self.answers: list[tuple[float, object]] = []

    def run(self) -> None:
        connection = http.client.HTTPConnection(self._server, timeout=_ASK_SECONDS)
        while not self._stopping.is_set():
            for path in self._paths:
                try:
                    connection.request("GET", path)
                    answer = connection.getresponse()
                    answer.read()
                except (OSError, http.client.HTTPException):
                    connection.close()
                else:
                    if answer.status == http.client.OK:
                        self.answers.append((time.monotonic(), (self._server, path)))
            time.sleep(_PAUSE_SECONDS)
        connection.close()

    def stop(self) -> None:
        """Stop reading."""
        self._stopping.set()
        self.join()


def body_of(server: str, path: str, document: object = None) -> bytes | None:
    """Return the body of an answer; None: there is none, or its status is not 200.

    Args:
        server: Host and port.
        path: What to ask for.
        document: Sent as JSON with POST; None: a GET.
    """
    connection = http.client.HTTPConnection(server, timeout=30)
    try:
        if document is None:
            connection.request("GET", path)
        else:
            body = json.dumps(document)
            connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        found = answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return found if answer.status == http.client.OK else None


def main(arguments: Sequence[str]) -> int:
    server, path, keys, seconds = arguments
    load = asyncio.run(_ask_alone(server, path, int(keys), float(seconds)))
    print(json.dumps({name: getattr(load, name) for name in load.__struct_fields__}))
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    raise SystemExit(main(sys.argv[1:]))
