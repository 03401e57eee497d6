"""Crash after step 3, cut the network, and count the duplicates; measure transactions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from msgspec.json import Decoder

from headrace import KafkaStreams, StreamsConfig
from headrace.brokers import TopicLog, open_log
from headrace.clients import KafkaProducer, TopicPartition
from headrace.examples.child_settings import run_to_its_end, settings_file
from headrace.examples.exactly_once.app import bookings
from headrace.examples.exactly_once.cutting import CuttableNetwork
from headrace.examples.exactly_once.feed import TOPICS, feed
from headrace.examples.exactly_once.model import Payment
from headrace.examples.feeding import Encoding
from headrace.examples.running import create_topics

PATIENCE = 120.0
"""How many seconds a busy machine may take."""
FAST = sum(each.partition == 0 for each in feed())
"""The payments that step 3 has booked when the process is killed; the slow one is not."""
GUARANTEES: list[Literal["at_least_once", "exactly_once_v2"]] = ["at_least_once", "exactly_once_v2"]
OUTPUTS = ["booked-payments", "revenue-by-account", "payments-dead", "cost"]
ALL_TOPICS = {**TOPICS, **dict.fromkeys(OUTPUTS, 2)}

PAYMENTS = Decoder(Payment)

ROUNDS = 50
"""How often the cost of a transaction is measured."""


def applications() -> list[KafkaStreams]:
    """Return all applications of the story."""
    return [bookings(each) for each in GUARANTEES]


def main(config: StreamsConfig) -> int:
    """Run the story; return 0 if at least once prints duplicates, and exactly once prints none."""
    with closing(open_log(config)) as log:
        create_topics(log, ALL_TOPICS)
        log.append(map(Encoding(bookings(), TOPICS).raw, feed()))
    found = {}
    with network_of(config) as network:
        for guarantee in GUARANTEES:
            before = booked(config)
            crash_once(guarantee, config, network)
            ids = booked(config) - before
            found[guarantee] = ids.total() - len(ids)
            print(f"{guarantee}: {ids.total()} bookings, {found[guarantee]} duplicates", flush=True)
    for size in (1, 10, 100):
        plain, transaction = (millis(config, size, name) for name in (None, f"cost-{size}"))
        print(f"{size} records take {plain:.1f} ms, and {transaction:.1f} ms in a transaction")
    return 0 if found["at_least_once"] and not found["exactly_once_v2"] else 1


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
    booked_before = written(config)
    with TemporaryDirectory() as folder, ExitStack() as settings:
        path = Path(folder) / "slow"
        environment = {**os.environ, "EXACTLY_ONCE_FILE": str(path)}
        program = command(guarantee, settings.enter_context(settings_file(config)))
        first = subprocess.Popen(program, env=environment, start_new_session=True)  # noqa: S603
        end = time.monotonic() + PATIENCE
        while first.poll() is None and time.monotonic() < end:
            if path.exists() and written(config) - booked_before >= FAST:
                break
            time.sleep(0.1)
        with suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        print(f"{guarantee}: the process is killed", flush=True)
        if network is not None:
            network.cut_at_write("booked-payments")
            through = config.with_settings(bootstrap_servers=network.address)
            program = command(guarantee, settings.enter_context(settings_file(through)))
        cuts = network.cuts if network else 0
        run_to_its_end(program, environment)
        if network is not None:
            print(f"{guarantee}: the network is cut {network.cuts - cuts} times", flush=True)


def written(config: StreamsConfig) -> int:
    """Return how many bookings the log holds, also those that no transaction has committed."""
    with closing(open_log(config)) as log:
        count = log.partition_count("booked-payments")
        partitions = [TopicPartition("booked-payments", each) for each in range(count)]
        return sum(log.uncommitted_ends(partitions).values())


def command(guarantee: str, settings: Path) -> list[str]:
    """Return the command that runs the application until it has read all payments."""
    module = bookings.__module__
    if module == "app":  # in a copy of this folder
        module = str(Path(__file__).with_name("app.py"))
    program = [sys.executable, "-m", "headrace", "run", f"{module}:{guarantee}"]
    return [*program, "--trigger", "available_now", "--quiet", "--command-config", str(settings)]


def booked(config: StreamsConfig) -> Counter[str]:
    """Return how often a reader of committed records sees each payment booked."""
    topic = "booked-payments"
    ids: Counter[str] = Counter()
    with closing(open_log(config)) as log:
        partitions = [TopicPartition(topic, each) for each in range(log.partition_count(topic))]
        for partition, end in settled_ends(log, partitions).items():
            for records in log.read(partition, 0, end):
                ids.update(PAYMENTS.decode(each.value).payment_id for each in records)
    return ids


def settled_ends(log: TopicLog, partitions: list[TopicPartition]) -> Mapping[TopicPartition, int]:
    """Return the ends, once readers see them: a broker confirms a transaction a moment before."""
    end = time.monotonic() + PATIENCE
    while (ends := log.end_offsets(partitions)) != log.uncommitted_ends(partitions):
        if time.monotonic() > end:
            break
        time.sleep(0.02)
    return ends


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
