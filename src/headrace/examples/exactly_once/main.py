"""Crash after step 3, cut the network, and count the duplicates; measure transactions."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from msgspec.json import Decoder

from headrace import StreamsConfig, TopicExistsError
from headrace.brokers import open_log
from headrace.brokers.opening import log_flags
from headrace.clients import KafkaProducer, TopicPartition
from headrace.examples.exactly_once.app import bookings
from headrace.examples.exactly_once.cutting import CuttableNetwork
from headrace.examples.exactly_once.feed import TOPICS, feed
from headrace.examples.exactly_once.model import Payment
from headrace.examples.feeding import Encoding

PATIENCE = 120.0
"""How many seconds a busy machine may take."""
PAUSE = 5.0
"""How many seconds partition 0 has for steps 1 to 3, while partition 1 waits."""

PAYMENTS = Decoder(Payment)

ROUNDS = 50
"""How often the cost of a transaction is measured."""


def main(config: StreamsConfig) -> int:
    """Run the story with both guarantees; return 0 if exactly once prints no duplicates."""
    with closing(open_log(config)) as log:
        for topic in (*TOPICS, "booked-payments", "revenue-by-account", "payments-dead", "cost"):
            with suppress(TopicExistsError):
                log.create_topic(topic, partitions=2)
        log.append(map(Encoding(bookings(), TOPICS).raw, feed()))
    found = {}
    with network_of(config) as network:
        for guarantee in ("at_least_once", "exactly_once_v2"):
            before = booked(config)
            crash_once(guarantee, config, network)
            ids = booked(config) - before
            found[guarantee] = ids.total() - len(ids)
            print(f"{guarantee}: {ids.total()} bookings, {found[guarantee]} duplicates", flush=True)
    for size in (1, 10, 100):
        plain, transaction = (millis(config, size, name) for name in (None, f"cost-{size}"))
        print(f"{size} records take {plain:.1f} ms, and {transaction:.1f} ms in a transaction")
    return 1 if found["exactly_once_v2"] else 0


def network_of(config: StreamsConfig) -> AbstractContextManager[CuttableNetwork | None]:
    """Return the network to the brokers; None if there is nothing to cut, and print why."""
    if config.bootstrap_servers is None:
        print("The embedded log is a file: there is no network to cut.", flush=True)
    elif str(config.security_protocol).endswith("SSL"):
        print("The network is not cut: the proxy reads no TLS.", flush=True)
    else:
        return CuttableNetwork(config.bootstrap_servers)
    return nullcontext()


def crash_once(
    guarantee: Literal["at_least_once", "exactly_once_v2"],
    config: StreamsConfig,
    network: CuttableNetwork | None,
) -> None:
    """Kill the application while it writes a batch, and cut the network of a second run."""
    program = command(guarantee, config)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "slow"
        environment = {**os.environ, "EXACTLY_ONCE_FILE": str(path)}
        first = subprocess.Popen(program, env=environment, start_new_session=True)  # noqa: S603
        end = time.monotonic() + PATIENCE
        while not path.exists() and first.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(PAUSE)
        with suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        print(f"{guarantee}: the process is killed", flush=True)
        if network is not None:
            network.cut_at_write("booked-payments")
            program = command(guarantee, config.with_settings(bootstrap_servers=network.address))
        cuts = network.cuts if network else 0
        subprocess.run(program, env=environment, check=True)  # noqa: S603
        if network is not None:
            print(f"{guarantee}: the network is cut {network.cuts - cuts} times", flush=True)


def command(guarantee: str, config: StreamsConfig) -> list[str]:
    """Return the command that runs the application until it has read all payments."""
    module = bookings.__module__
    if module == "app":  # in a copy of this folder
        module = str(Path(__file__).with_name("app.py"))
    program = [sys.executable, "-m", "headrace", "run", f"{module}:{guarantee}"]
    return [*program, "--trigger", "available_now", "--quiet", *shlex.split(log_flags(config))]


def booked(config: StreamsConfig) -> Counter[str]:
    """Return how often a reader of committed records sees each payment booked."""
    topic = "booked-payments"
    ids: Counter[str] = Counter()
    with closing(open_log(config)) as log:
        partitions = [TopicPartition(topic, each) for each in range(log.partition_count(topic))]
        for partition, end in log.end_offsets(partitions).items():
            for records in log.read(partition, 0, end):
                ids.update(PAYMENTS.decode(each.value).payment_id for each in records)
    return ids


def millis(config: StreamsConfig, size: int, transactional_id: str | None) -> float:
    """Return how long some records take on average, in a transaction or only flushed."""
    identity = {} if transactional_id is None else {"transactional.id": transactional_id}
    settings = config.with_settings(producer=identity)
    with KafkaProducer(settings, key=str, value=str) as producer:
        began = time.monotonic()
        for _ in range(ROUNDS):
            with producer.transaction() if transactional_id else nullcontext():
                for number in range(size):
                    producer.send("cost", str(number), "value")
            producer.flush()
        return (time.monotonic() - began) * 1000 / ROUNDS
