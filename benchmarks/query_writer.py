"""Writes totals in transactions: as the leader of an application, or as an input of a rival.

A leader of our own makes the figures of queries independent of Spark.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from threading import Event, Thread

from confluent_kafka import Producer

from benchmarks.dataset import PARTITIONS, location_key
from headrace import StreamsConfig, Topology
from headrace.brokers import open_log
from headrace.brokers.log import TopicPartition
from headrace.runtime.internal_topics import (
    changelog_settings,
    ensure_snapshots_topic,
    ensure_topic,
)
from headrace.runtime.plan import plan_topology
from headrace.runtime.snapshots import SnapshotRecord, digest_topic_ids, encode_snapshot
from headrace.serdes.partitioner import partition_for_key
from headrace.topology.naming import snapshots_name

HISTORY = "be9c4a11-0000-4000-8000-000000000000"
LOADED_AT_ONCE = 100_000
PROBE = b"probe"
"""A key of which the value counts the transactions."""


def totals_json(orders: int) -> bytes:
    """Return the value of a key after some orders."""
    return b'{"orders":%d,"amount":%d.5}' % (orders, orders * 9)


class Writer:
    """Writes totals to the partitions of a topic, one transaction after the other.

    Args:
        address: Where the broker listens.
        topic: The topic, with `PARTITIONS` partitions.
    """

    def __init__(self, address: str, topic: str) -> None:
        self.topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "transactional.id": f"benchmark-{topic}",
                "linger.ms": 5,
                "batch.num.messages": 20_000,
                "queue.buffering.max.messages": 500_000,
                "queue.buffering.max.kbytes": 1 << 19,
                "delivery.report.only.error": True,
                "log_level": 2,
            }
        )
        self._producer.init_transactions(30)
        self._partitions: dict[bytes, int] = {}
        self.transactions = 0

    def load(self, keys: int) -> None:
        """Write the first total of each key."""
        every = ((location_key(number), totals_json(1)) for number in range(keys))
        while chunk := [*islice(every, LOADED_AT_ONCE)]:
            self.write(chunk)

    def write(self, records: Iterable[tuple[bytes, bytes]]) -> float:
        """Write one transaction, and return when it was committed."""
        self._producer.begin_transaction()
        counts = [0] * PARTITIONS
        self.transactions += 1
        for key, value in (*records, (PROBE, totals_json(self.transactions))):
            partition = self._partition(key)
            counts[partition] += 1
            self._producer.produce(self.topic, value, key, partition)
        self._producer.flush(30)
        self._written(counts)
        self._producer.commit_transaction(30)
        committed = time.monotonic()
        self._committed(counts)
        return committed

    def _partition(self, key: bytes) -> int:
        found = self._partitions.get(key)
        if found is None:
            found = self._partitions[key] = partition_for_key(key, PARTITIONS)
        return found

    def _written(self, counts: list[int]) -> None:
        """The records are written, and the transaction is open."""

    def _committed(self, counts: list[int]) -> None:
        """The transaction has ended."""


class Leader(Writer):
    """Writes a changelog, and a snapshot record after each transaction, as an application does.

    Args:
        topology: The program; it has one store.
        config: Its settings.
        source: Its input.
    """

    def __init__(self, topology: Topology, config: StreamsConfig, source: str) -> None:
        self._plan = plan_topology(topology, config)
        self._log = open_log(config)
        ensure_topic(self._log, source, PARTITIONS)
        [(topic, (_, store))] = self._plan.changelogs.items()
        ensure_topic(self._log, topic, PARTITIONS, changelog_settings(store, config))
        ensure_snapshots_topic(self._plan, config, self._log)
        self._source = source
        self._names = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        self._ends: list[int] = []
        self._topics = digest_topic_ids(self._log.topic_ids([topic]))
        self.records = 0
        """How many records the changelog has."""
        address = config.bootstrap_servers
        assert address is not None, "the log is Kafka's"
        super().__init__(address, topic)

    def close(self) -> None:
        """Close the connection to the log."""
        self._log.close()

    def _written(self, counts: list[int]) -> None:
        ends = self._log.uncommitted_ends(self._names)
        self._ends = [ends[name] for name in self._names]
        self.records += sum(counts)

    def _committed(self, counts: list[int]) -> None:
        now, number = time.time_ns() // 1_000_000, self.transactions
        record = SnapshotRecord(
            history=HISTORY,
            leader_epoch=1,
            snapshot=number,
            batch=number,
            layout=self._plan.stores_digest,
            topics=self._topics,
            clock=now,
            at=now,
            ends={self.topic: self._ends},
            since=number - 1,
            changes={self.topic: dict(enumerate(counts))},
            position={self._source: self._ends},
        )
        topic = snapshots_name(self._plan.application_id)
        self._log.append([(topic, 0, now, b"1", encode_snapshot(record), None)])


class Updates(Thread):
    """Writes random totals at a steady rate until it is stopped.

    Args:
        writer: Where they go.
        keys: How many keys there are.
        per_second: How many updates there are in a second.
        every_seconds: The time from one transaction to the next.
    """

    def __init__(self, writer: Writer, keys: int, per_second: int, every_seconds: float) -> None:
        super().__init__(daemon=True)
        self._writer, self._keys = writer, keys
        self._count, self._every = int(per_second * every_seconds), every_seconds
        self._stopping = Event()
        self.commits: dict[int, float] = {}
        """When each transaction was committed, by its number."""
        self.seconds = 0.0
        """For how long it ran."""
        self.failure: Exception | None = None

    def run(self) -> None:
        began = time.monotonic()
        due = began
        try:
            while not self._stopping.wait(max(0.0, due - time.monotonic())):
                committed = self._writer.write(self._records())
                self.commits[self._writer.transactions] = committed
                due = max(due + self._every, time.monotonic() - self._every)
        except Exception as error:
            self.failure = error
        self.seconds = time.monotonic() - began

    def stop(self) -> None:
        """Stop after the transaction that is open."""
        self._stopping.set()
        self.join()
        if self.failure is not None:
            raise self.failure

    @property
    def per_second(self) -> float:
        """Return how many updates were written in a second."""
        return len(self.commits) * self._count / self.seconds

    def _records(self) -> Iterator[tuple[bytes, bytes]]:
        value = totals_json(self._writer.transactions)
        for number in random.choices(range(self._keys), k=self._count):
            yield location_key(number), value
