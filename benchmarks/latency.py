"""Measures the time from sending an order until its total can be read, at a light load."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from threading import Thread

from confluent_kafka import Consumer, Producer, TopicPartition
from msgspec import Struct

from benchmarks.dataset import PARTITIONS, location_key
from benchmarks.process_tree import ProcessTree
from benchmarks.systems import Job, System, start
from benchmarks.throughput import RunError, end, jvm_exit_reason
from benchmarks.topics import Topics
from benchmarks.workloads import answer_from_totals

RECORDS_PER_SECOND = 200
KEYS = 2000
"""A key comes back after 10 s: by then its last total is out, so each order has one of its own."""
WARM_UP_SECONDS = 30.0
FIRST_OUTPUT_SECONDS = 120.0
DRAIN_SECONDS = 15.0


class Latency(Struct):
    """The latency of one system."""

    system: str
    records: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    cpu_cores: float
    """CPU time of all its processes per second."""
    missing: int
    """Orders whose total never came."""


def percentile(values: list[float], share: float) -> float:
    """Return the value that ``share`` of all values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


class Arrivals:
    """Orders that were sent, and when a total that holds them arrived."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, list[tuple[int, float]]] = {}
        self._sent: dict[bytes, int] = {}
        self.waits: list[tuple[float, float]] = []
        """When an order was sent, and how long it took."""

    def send(self, key: bytes, now: float) -> None:
        """Note that the next order of a key leaves now."""
        number = self._sent[key] = self._sent.get(key, 0) + 1
        self._waiting.setdefault(key, []).append((number, now))

    def receive(self, key: bytes, number: int, now: float) -> None:
        """Note that a total arrived that counts the first ``number`` orders of a key."""
        waiting = self._waiting.get(key, [])
        while waiting and waiting[0][0] <= number:
            _, sent = waiting.pop(0)
            self.waits.append((sent, now - sent))

    def missing(self) -> int:
        """Return how many orders no total holds yet."""
        return sum(map(len, self._waiting.values()))


class _Receiver(Thread):
    """Reads the totals as they are committed."""

    def __init__(self, address: str, topic: str, arrivals: Arrivals) -> None:
        super().__init__(daemon=True)
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "benchmark-latency",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self._arrivals = arrivals
        self.is_wanted = True

    def run(self) -> None:
        while self.is_wanted:
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                key, value = message.key(), message.value()
                assert isinstance(key, bytes)
                assert value is not None
                now = time.monotonic()
                self._arrivals.receive(key, answer_from_totals(value).number, now)
        self._consumer.close()


class _Sender:
    """Sends one order every 5 ms, each to the next key."""

    def __init__(self, job: Job, arrivals: Arrivals) -> None:
        settings = {"bootstrap.servers": job.address, "partitioner": "murmur2_random"}
        self._producer = Producer({**settings, "linger.ms": 0})
        self._topic, self._arrivals, self._number = job.source, arrivals, 0

    def send_until(self, is_enough: Callable[[], bool], seconds: float) -> None:
        """Send until a condition holds, or for some time."""
        began, sent = time.monotonic(), 0
        while not is_enough():
            due = began + sent / RECORDS_PER_SECOND
            if due > began + seconds:
                return
            time.sleep(max(0.0, due - time.monotonic()))
            self._send()
            sent += 1

    def end(self) -> None:
        """Wait until the sent orders have arrived."""
        self._producer.flush(DRAIN_SECONDS)

    def _send(self) -> None:
        location = self._number % KEYS
        key = location_key(location)
        value = (
            f'{{"order_id":{self._number},"location_id":"{key.decode()}","customer_id":"cust-1",'
            f'"final_amount":9.5,"order_type":"GENERAL","ordered_at":{int(time.time() * 1000)}}}'
        )
        self._number += 1
        self._arrivals.send(key, time.monotonic())
        self._producer.produce(self._topic, value.encode(), key)
        self._producer.poll(0)


def measure_latency(system: System, job: Job, topics: Topics, seconds: float) -> Latency:
    """Send orders at an even pace and return how long their totals take, after a warm-up.

    Raises:
        RunError: The program ended, or its first output did not come.
    """
    topics.create(job.source, job.output)
    job.state.mkdir(parents=True)
    log = job.state.with_suffix(".log")
    arrivals = Arrivals()
    receiver = _Receiver(job.address, job.output, arrivals)
    receiver.start()
    process = start(system.command(job), log, system.home)
    tree = ProcessTree(process.pid)
    sender = _Sender(job, arrivals)
    try:
        sender.send_until(lambda: bool(arrivals.waits), FIRST_OUTPUT_SECONDS)
        if not arrivals.waits or process.poll() is not None:
            msg = f"No first output after {FIRST_OUTPUT_SECONDS:.0f} s.\n{jvm_exit_reason(log)}"
            raise RunError(msg)
        sender.send_until(lambda: False, WARM_UP_SECONDS)
        began, cpu = time.monotonic(), tree.cpu_seconds()
        sender.send_until(lambda: False, seconds)
        cores = (tree.cpu_seconds() - cpu) / (time.monotonic() - began)
        deadline = time.monotonic() + DRAIN_SECONDS
        while arrivals.missing() and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        sender.end()
        end(process)
        receiver.is_wanted = False
        receiver.join()
    waits = [wait * 1000 for sent, wait in arrivals.waits if sent >= began]
    return Latency(
        system=system.name,
        records=len(waits),
        p50_ms=percentile(waits, 0.5),
        p99_ms=percentile(waits, 0.99),
        max_ms=max(waits),
        cpu_cores=cores,
        missing=arrivals.missing(),
    )
