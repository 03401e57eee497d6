"""Kafka brokers as plain JVM processes, for tests and benchmarks; ``make kafka`` runs one.

KRaft mode, so nothing else is needed; the jars come from Maven Central (`tests/brokers/kafka`).
Everything listens on loopback, on ports that are free, and is stopped by its process id.
"""

from __future__ import annotations

import argparse
import atexit
import fcntl
import json
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from itertools import islice
from pathlib import Path

VERSION = "4.3.1"
JARS = Path(__file__).parent / "brokers" / "kafka"
LIBRARIES = JARS / "target" / "lib"
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m")
"""A broker that lives for a minute is faster without the second compiler."""

LASTING = ("-XX:+UseSerialGC", "-Xmx1g")
"""A broker that is measured, or that users keep running, needs it."""

USER, PASSWORD = "alice", "canary-secret-of-alice"
PORTS = range(15_000, 30_000)
"""Below those that systems give away by themselves, which begin at 32,768 on Linux."""

_DOWNLOAD_SECONDS = 600
_START_SECONDS = 180
_STOP_SECONDS = 60


class MissingToolError(Exception):
    """Java or Maven is not there."""


class RunningBroker:
    """A broker, and how to end it; a ``with`` block stops it and deletes what it made itself.

    Args:
        folder: Keeps its settings, its log and its data.
        properties: All of its settings.
        java_options: How its JVM runs.
        is_passing: Whether the folder is deleted at the end of the block.
    """

    def __init__(
        self,
        folder: Path,
        properties: Mapping[str, str],
        java_options: Sequence[str],
        *,
        is_passing: bool,
    ) -> None:
        self.folder = folder
        self.properties = dict(properties)
        self.node = int(properties["node.id"])
        listeners = (each.partition("://") for each in properties["listeners"].split(","))
        addresses = {name: address for name, _, address in listeners}
        self.address = addresses["PLAINTEXT"]
        self.sasl_address = addresses["SASL_PLAINTEXT"]
        """For clients that log in, as `USER` with `PASSWORD`."""
        self.behind_proxy = addresses.get("PROXIED", "")
        """The target of a proxy; the broker advertises the proxy's port to its clients."""
        self._java_options = java_options
        self._is_passing = is_passing
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RunningBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        if self._is_passing:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        """The process, which is the JVM itself."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> Path:
        """The log file of the broker."""
        return self.folder / "broker.log"

    def start(self) -> None:
        """Start it, also again, with the same data on the same ports; `await_ready` waits."""
        file = self.folder / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in self.properties.items()))
        java = ["java", *self._java_options, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command = [*java, "-cp", f"{jars()}/*", "kafka.Kafka", str(file)]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)

    def await_ready(self) -> None:
        """Wait until it takes connections, or say why it will not."""
        assert self._process is not None
        host, _, port = self.address.rpartition(":")
        deadline = time.monotonic() + _START_SECONDS
        while True:
            if self._process.poll() is not None:
                raise RuntimeError(f"Broker {self.node} ended by itself:\n{self._last_words()}")
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
            except OSError:
                if time.monotonic() > deadline:
                    raise RuntimeError(
                        f"Broker {self.node} is not up after {_START_SECONDS} s:\n"
                        f"{self._last_words()}"
                    ) from None
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        """Let it hand over and write what it holds, as an operator would."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wait(self) -> int:
        """Wait until it ends."""
        assert self._process is not None
        return self._process.wait()

    def _last_words(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]


class RunningCluster:
    """Some brokers that make one cluster; a ``with`` block stops them all.

    Args:
        brokers: Its nodes, in order.
    """

    def __init__(self, brokers: Sequence[RunningBroker]) -> None:
        self.brokers = tuple(brokers)
        self.address = ",".join(broker.address for broker in brokers)
        """All of them, as ``bootstrap.servers`` takes them."""

    def __enter__(self) -> RunningCluster:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as left:
            for broker in self.brokers:
                left.push(broker)


def start_broker(
    folder: Path | None = None,
    *,
    port: int | None = None,
    properties: Mapping[str, str] | None = None,
    java_options: Sequence[str] = QUICK,
    proxy_port: int | None = None,
) -> RunningBroker:
    """Return a broker that answers.

    Args:
        folder: Keeps its data, and may hold those of an earlier one; left out: a passing folder.
        port: Where it listens; left out: a free port.
        properties: Settings that win over ours.
        java_options: How its JVM runs; `LASTING` to measure it.
        proxy_port: The port of a proxy on loopback, which leads to `behind_proxy`.
    """
    proxies = [] if proxy_port is None else [proxy_port]
    cluster = _start_nodes(1, folder, port, properties or {}, java_options, proxies)
    return cluster.brokers[0]


def start_cluster(
    folder: Path | None = None,
    *,
    nodes: int = 3,
    properties: Mapping[str, str] | None = None,
    java_options: Sequence[str] = QUICK,
    proxy_ports: Sequence[int] = (),
) -> RunningCluster:
    """Return a cluster that answers, each node broker and controller; arguments as `start_broker`.

    Topics have a replica on up to three nodes, of which all but one must take each write.
    """
    return _start_nodes(nodes, folder, None, properties or {}, java_options, proxy_ports)


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
            cwd=JARS.parents[2],
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
    deadline = time.monotonic() + _DOWNLOAD_SECONDS + _START_SECONDS
    while not description.exists():
        if time.monotonic() > deadline:
            raise RuntimeError(f"The broker that all tests share has not written {description}.")
        time.sleep(0.05)
    properties = json.loads(description.read_text())
    if "error" in properties:
        raise RuntimeError(f"The broker that all tests share does not start: {properties['error']}")
    return RunningBroker(description.parent, properties, (), is_passing=False)


def _serve(description: Path, folder: Path) -> int:
    """Run a broker until standard input ends, and describe it in a file as soon as it answers."""
    unfinished = description.with_suffix(".new")
    try:
        broker = start_broker(folder)
    except (MissingToolError, RuntimeError, subprocess.SubprocessError) as error:
        unfinished.write_text(json.dumps({"error": str(error)}))
        unfinished.rename(description)
        return 1
    with broker:
        unfinished.write_text(json.dumps(broker.properties))
        unfinished.rename(description)
        sys.stdin.read()
    return 0


def jars() -> Path:
    """Return the folder with the broker's jars, fetching them the first time."""
    _need("java", "openjdk-17-jre-headless")
    with (JARS / "pom.xml").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # processes that share the tests need them at once
        complete = _complete()
        if not complete.exists():
            _need("mvn", "maven")
            command = ["mvn", "--quiet", "--batch-mode", "--file", file.name, "package"]
            subprocess.run(command, check=True, timeout=_DOWNLOAD_SECONDS)
            complete.touch()
    return LIBRARIES


def _complete() -> Path:
    """Return the file that tells that Maven has fetched all: it may have been killed half-way."""
    return JARS / "target" / f"complete-{VERSION}"


def _need(tool: str, package: str) -> None:
    if shutil.which(tool) is None:
        raise MissingToolError(
            f"{tool} is missing. Install it, for example `apt install {package}`."
        )


def free_ports(count: int) -> list[int]:
    """Return unused ports of loopback.

    The system gives none of these to those who ask for any: a client that looks for a broker which
    is gone meets nobody there, and a broker that starts again finds its port free.
    """
    ports: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.append(port)
        if len(ports) == count:
            return ports
    raise RuntimeError(f"There are no {count} free ports in {PORTS}.")


def _start_nodes(
    count: int,
    folder: Path | None,
    port: int | None,
    properties: Mapping[str, str],
    java_options: Sequence[str],
    proxies: Sequence[int],
) -> RunningCluster:
    ports = iter(free_ports(4 * count))
    clients, logins, controllers, proxied = (list(islice(ports, count)) for _ in range(4))
    if port is not None:
        clients[0] = port
    voters = ",".join(f"{node}@127.0.0.1:{at}" for node, at in enumerate(controllers, 1))
    brokers = []
    for node in range(1, count + 1):
        if folder is None:
            own = Path(tempfile.mkdtemp(prefix="headrace-kafka-"))
        else:
            own = folder.resolve() if count == 1 else folder.resolve() / f"node-{node}"
            own.mkdir(parents=True, exist_ok=True)
        listening = clients[node - 1], logins[node - 1], controllers[node - 1]
        configured = _properties(own, node, listening, voters, min(3, count))
        if proxies:
            configured["listeners"] += f",PROXIED://127.0.0.1:{proxied[node - 1]}"
            configured["advertised.listeners"] += f",PROXIED://127.0.0.1:{proxies[node - 1]}"
            configured["listener.security.protocol.map"] += ",PROXIED:PLAINTEXT"
        broker = RunningBroker(
            own, {**configured, **properties}, java_options, is_passing=folder is None
        )
        brokers.append(broker)
    cluster = RunningCluster(brokers)
    with ExitStack() as on_failure:
        on_failure.push(cluster)
        _format(brokers)
        for broker in brokers:
            broker.start()
        for broker in brokers:
            broker.await_ready()
        on_failure.pop_all()
    return cluster


def _properties(
    folder: Path, node: int, ports: tuple[int, int, int], voters: str, replicas: int
) -> dict[str, str]:
    port, sasl_port, controller = ports
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    clients = f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl_port}"
    in_sync = str(max(1, replicas - 1))
    return {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "controller.quorum.voters": voters,
        "listeners": f"{clients},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": clients,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{login} user_{USER}="{PASSWORD}";'
        ),
        "log.dirs": str(folder / "data"),
        "default.replication.factor": str(replicas),
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": str(replicas),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": in_sync,
        # Records of tests carry any time, and stay.
        "log.retention.ms": "-1",
        "log.cleaner.dedupe.buffer.size": str(16 << 20),  # else a quarter of a small heap
        # Groups of tests should neither wait for members who never come nor for the dead.
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "500",
    }


def _format(brokers: Sequence[RunningBroker]) -> None:
    """Prepare the data folders of new brokers; they share the name of their cluster."""
    # The tool would take a name that begins with a hyphen for an option.
    cluster = urlsafe_b64encode(b"\0" + secrets.token_bytes(15)).decode().rstrip("=")
    for broker in brokers:
        if (Path(broker.properties["log.dirs"]) / "meta.properties").exists():
            continue
        file = broker.folder / "format.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in broker.properties.items()))
        java = ["java", *QUICK, "-cp", f"{jars()}/*"]
        command = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(file)]
        subprocess.run(command, check=True, capture_output=True, timeout=_START_SECONDS)


def main() -> int:
    """Run a broker in the foreground until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Run a Kafka broker on loopback.")
    parser.add_argument("--port", type=int, default=9092)
    parser.add_argument("--folder", type=Path, help="keeps the topics; left out: a passing one")
    parser.add_argument("--serve", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        return _serve(given.serve, given.folder)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _check_free(given.port)
        with _dots(f"Starting Kafka {VERSION} on 127.0.0.1:{given.port}"):
            if not _complete().exists():
                print(" (Maven fetches it, once)", end="", flush=True)
            broker = start_broker(given.folder, port=given.port, java_options=LASTING)
        with broker:
            print(f"Kafka {VERSION} listens on {broker.address}, data in {broker.folder}.")
            print("Stop it with Ctrl-C.", flush=True)
            try:
                return broker.wait()
            except KeyboardInterrupt:
                broker.stop()
    except (MissingToolError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass  # it was still starting, or stops too slowly
    return 0


@contextmanager
def _dots(text: str) -> Iterator[None]:
    """Print a text, and a dot every second while the block runs."""
    ended = threading.Event()

    def print_dots() -> None:
        while not ended.wait(1):
            print(".", end="", flush=True)

    print(text, end=" ", flush=True)
    printer = threading.Thread(target=print_dots, daemon=True)
    printer.start()
    try:
        yield
    finally:
        ended.set()
        printer.join()
        print(flush=True)


def _check_free(port: int) -> None:
    """Refuse a port that is in use: who listens there would be taken for the new broker."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Kafka does
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise RuntimeError(
                f"Port {port} of 127.0.0.1 cannot be used: {error.strerror}. If a broker runs "
                "there already, use or stop that one; or choose another port with `--port`."
            ) from error


if __name__ == "__main__":
    raise SystemExit(main())
