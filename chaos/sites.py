"""The log of a round: the embedded one, one Kafka broker or a cluster of three."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from kafka import KafkaProducer

from chaos.contract import Log, Offsets
from chaos.segments import with_units
from headrace import StreamsConfig
from headrace.brokers import TopicPartition, open_log
from tests.kafka_broker import RunningCluster, start_broker, start_cluster
from tests.tcp_proxy import TcpProxy

BROKERS = ("embedded", "kafka", "cluster")
"""The places a round can run on."""


class Site(ABC):
    """A place with topics; a ``with`` block ends it."""

    kind: str
    """One of `BROKERS`."""
    address: str
    """Where the harness reads and writes: what a fault cuts off is not between."""

    def __init__(self, config: StreamsConfig) -> None:
        self.log = open_log(config)

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, str]:
        """Return where the application finds the topics, under Kafka's names."""

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        self.log.close()

    def in_transactions(self, log: Log) -> Log:
        """Return records that were read, with the transactions they belong to."""
        return log

    def ends(self, topics: Mapping[str, int]) -> Offsets:
        """Return where topics end, as a reader of what is committed sees it."""
        names = [TopicPartition(topic, p) for topic, count in topics.items() for p in range(count)]
        return {name: end for name, end in self.log.end_offsets(names).items()}  # noqa: C416

    def committed(self, group: str) -> Offsets:
        """Return how far a group has come."""
        found = self.log.committed_offsets(group)
        return {name: each.offset for name, each in found.items()}


class EmbeddedSite(Site):
    """The embedded log, in a file."""

    kind = "embedded"

    def __init__(self, folder: Path) -> None:
        self.address = str(folder / "log.db")
        super().__init__(StreamsConfig(embedded_path=self.address))

    @property
    def settings(self) -> Mapping[str, str]:
        return {"embedded.path": self.address}


class KafkaSite(Site):
    """Kafka: one broker, or a cluster in which each partition has three replicas.

    The application reaches each broker through a proxy; the harness does not.

    Args:
        folder: Keeps the data of the brokers.
        nodes: How many there are.
    """

    def __init__(self, folder: Path, nodes: int) -> None:
        self.kind = "kafka" if nodes == 1 else "cluster"
        with ExitStack() as on_failure:
            self.proxies = [on_failure.enter_context(TcpProxy()) for _ in range(nodes)]
            ports = [proxy.port for proxy in self.proxies]
            if nodes == 1:
                broker = start_broker(folder / "kafka", proxy_port=ports[0])
                cluster = RunningCluster([broker])
            else:
                cluster = start_cluster(folder / "kafka", nodes=nodes, proxy_ports=ports)
            on_failure.enter_context(cluster)
            self._running = on_failure.pop_all()
        self.brokers = cluster.brokers
        for proxy, broker in zip(self.proxies, self.brokers, strict=True):
            proxy.lead_to(broker.behind_proxy)
        self.address = cluster.address
        _await_coordinator(self.address)
        super().__init__(StreamsConfig(bootstrap_servers=self.address, request_timeout="60s"))

    @property
    def settings(self) -> Mapping[str, str]:
        return {"bootstrap.servers": ",".join(proxy.address for proxy in self.proxies)}

    def in_transactions(self, log: Log) -> Log:
        return with_units(log, [Path(broker.properties["log.dirs"]) for broker in self.brokers])

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._running.close()


def _await_coordinator(address: str) -> None:
    """Wait until new brokers give out producer ids: librdkafka has crashed when asked to wait."""
    producer = KafkaProducer(bootstrap_servers=address, transactional_id="chaos")
    producer.init_transactions()
    producer.close()


def open_site(kind: str, folder: Path) -> Site:
    """Start what a round runs on."""
    if kind == "embedded":
        return EmbeddedSite(folder)
    return KafkaSite(folder, nodes=1 if kind == "kafka" else 3)
