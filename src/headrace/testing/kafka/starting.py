"""Starts Kafka brokers in KRaft mode, on free ports of loopback."""

from __future__ import annotations

import random
import secrets
import socket
import subprocess
import tempfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from headrace.errors import BrokerError
from headrace.testing.kafka.broker import START_SECONDS, RunningBroker, RunningCluster
from headrace.testing.kafka.jars import jars

QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m")
"""Java's options for a broker that lives for a minute: it is faster without the second compiler."""

LASTING = ("-XX:+UseSerialGC", "-Xmx1g")
"""Java's options for a broker that is measured, or that runs for long."""

PORTS = range(15_000, 30_000)
"""Below those that systems assign by themselves, which begin at 32,768 on Linux."""


def start_broker(
    folder: Path | None = None,
    *,
    port: int | None = None,
    properties: Mapping[str, str] | None = None,
    java_options: Sequence[str] = QUICK,
    users: Mapping[str, str] | None = None,
    proxy_port: int | None = None,
) -> RunningBroker:
    """Return a broker that answers, on loopback.

    Args:
        folder: Holds its data, and may have those of an earlier one; left out: a temporary folder.
        port: The port to listen on; left out: a free port.
        properties: Settings of the broker that win over the defaults for tests.
        java_options: The options of its Java process; `LASTING` if you measure or keep it.
        users: Names and passwords of those who log in at `RunningBroker.sasl_address`.
        proxy_port: The port of a proxy on loopback, which leads to `RunningBroker.behind_proxy`.

    Raises:
        MissingToolError: Java or Maven is not installed.
        BrokerError: The broker did not start.
    """
    proxies = [] if proxy_port is None else [proxy_port]
    nodes = _Nodes(folder, properties or {}, java_options, users or {}, proxies)
    return nodes.started(1, port).brokers[0]


def start_cluster(
    folder: Path | None = None,
    *,
    nodes: int = 3,
    properties: Mapping[str, str] | None = None,
    java_options: Sequence[str] = QUICK,
    users: Mapping[str, str] | None = None,
    proxy_ports: Sequence[int] = (),
) -> RunningCluster:
    """Return a cluster that answers. Each node is broker and controller.

    Topics have a replica on up to three nodes, and all but one of them must accept each write.

    Args:
        folder: Holds a folder of each node; left out: temporary folders.
        nodes: How many brokers there are.
        properties: As in `start_broker`, for every node.
        java_options: As in `start_broker`.
        users: As in `start_broker`.
        proxy_ports: The port of a proxy for each node.
    """
    own = _Nodes(folder, properties or {}, java_options, users or {}, proxy_ports)
    return own.started(nodes, None)


def free_ports(count: int) -> list[int]:
    """Return unused ports of loopback.

    They are below those that the system assigns by itself, so a broker that starts again finds its
    port free, and a client of an ended broker reaches no other process.
    """
    ports: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.append(port)
        if len(ports) == count:
            return ports
    msg = f"There are no {count} free ports in {PORTS}. End the processes that use them."
    raise BrokerError(msg)


@dataclass(frozen=True)
class _Nodes:
    """The settings of the brokers of one cluster."""

    folder: Path | None
    properties: Mapping[str, str]
    java_options: Sequence[str]
    users: Mapping[str, str]
    proxies: Sequence[int]

    def started(self, count: int, port: int | None) -> RunningCluster:
        """Return the cluster when all its brokers answer."""
        ports = iter(free_ports(4 * count))
        clients, logins, controllers, proxied = (list(islice(ports, count)) for _ in range(4))
        if port is not None:
            clients[0] = port
        voters = ",".join(f"{node}@127.0.0.1:{at}" for node, at in enumerate(controllers, 1))
        brokers = []
        for node in range(1, count + 1):
            index = node - 1
            own = self._folder_of(node, count)
            configured = _properties(own, node, voters, min(3, count))
            add = partial(_add_listener, configured)
            add("PLAINTEXT", "PLAINTEXT", clients[index], clients[index])
            if self.users:
                add("SASL_PLAINTEXT", "SASL_PLAINTEXT", logins[index], logins[index])
                configured |= _logins(self.users)
            if self.proxies:
                add("PROXIED", "PLAINTEXT", proxied[index], self.proxies[index])
            configured["listeners"] += f",CONTROLLER://127.0.0.1:{controllers[index]}"
            merged = {**configured, **self.properties}
            brokers.append(
                RunningBroker(own, merged, self.java_options, is_temporary=self.folder is None)
            )
        return _answering(RunningCluster(brokers))

    def _folder_of(self, node: int, count: int) -> Path:
        if self.folder is None:
            return Path(tempfile.mkdtemp(prefix="headrace-kafka-"))
        whole = self.folder.resolve()
        own = whole if count == 1 else whole / f"node-{node}"
        own.mkdir(parents=True, exist_ok=True)
        return own


def _answering(cluster: RunningCluster) -> RunningCluster:
    with ExitStack() as on_failure:
        on_failure.push(cluster)
        _format(cluster.brokers)
        for broker in cluster.brokers:
            broker.start()
        for broker in cluster.brokers:
            broker.await_ready()
        on_failure.pop_all()
    return cluster


def _add_listener(
    properties: dict[str, str], name: str, protocol: str, port: int, advertised: int
) -> None:
    """Make a broker listen on a port, and give its clients another one."""
    for setting, text in (
        ("listeners", f"{name}://127.0.0.1:{port}"),
        ("advertised.listeners", f"{name}://127.0.0.1:{advertised}"),
        ("listener.security.protocol.map", f"{name}:{protocol}"),
    ):
        before = properties[setting]
        properties[setting] = f"{before},{text}" if before else text


def _logins(users: Mapping[str, str]) -> dict[str, str]:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    listed = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{module} {listed};",
    }


def _properties(folder: Path, node: int, voters: str, replicas: int) -> dict[str, str]:
    in_sync = str(max(1, replicas - 1))
    return {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "controller.quorum.voters": voters,
        "listeners": "",
        "advertised.listeners": "",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
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
        # Records of tests may have any timestamp, and must stay.
        "log.retention.ms": "-1",
        "log.cleaner.dedupe.buffer.size": str(16 << 20),  # else a quarter of a small heap
        # Groups of tests wait neither for members that never come nor for dead ones.
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "500",
    }


def _format(brokers: Sequence[RunningBroker]) -> None:
    """Prepare the data folders of new brokers, with the id of their cluster."""
    # The tool reads an id that begins with a hyphen as an option.
    cluster = urlsafe_b64encode(b"\0" + secrets.token_bytes(15)).decode().rstrip("=")
    for broker in brokers:
        if (Path(broker.properties["log.dirs"]) / "meta.properties").exists():
            continue
        file = broker.folder / "format.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in broker.properties.items()))
        java = ["java", *QUICK, "-cp", f"{jars()}/*"]
        command = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(file)]
        subprocess.run(  # noqa: S603
            command, check=True, capture_output=True, timeout=START_SECONDS
        )
