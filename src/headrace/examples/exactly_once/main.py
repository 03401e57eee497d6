"""Crash after step 3 with both guarantees, count the duplicates, and measure transactions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from headrace import StreamsConfig, TopicExistsError
from headrace.brokers import open_log
from headrace.brokers.opening import log_flags
from headrace.clients import KafkaConsumer, KafkaProducer
from headrace.examples.exactly_once.app import bookings
from headrace.examples.exactly_once.feed import TOPICS, feed
from headrace.examples.exactly_once.model import Payment
from headrace.examples.feeding import Encoding

PATIENCE = 120.0
"""How many seconds a busy machine may take."""
PAUSE = 5.0
"""How many seconds partition 0 has for steps 1 to 3, while partition 1 waits."""

ROUNDS = 50
"""How often the cost of a transaction is measured."""


def main(config: StreamsConfig) -> int:
    """Run the story with both guarantees; return 0 if exactly once prints no duplicates."""
    with closing(open_log(config)) as log:
        for topic in (*TOPICS, "booked-payments", "revenue-by-account", "payments-dead"):
            with suppress(TopicExistsError):
                log.create_topic(topic, partitions=2)
        log.append(map(Encoding(bookings(), TOPICS).raw, feed()))
    found = {}
    for guarantee in ("at_least_once", "exactly_once_v2"):
        before = booked(config)
        crash_once(guarantee, config)
        ids = booked(config) - before
        found[guarantee] = ids.total() - len(ids)
        print(f"{guarantee}: {ids.total()} bookings, {found[guarantee]} duplicates", flush=True)
    for size in (1, 10, 100):
        plain, transaction = (millis(config, size, name) for name in (None, f"cost-{size}"))
        print(f"{size} records take {plain:.1f} ms, and {transaction:.1f} ms in a transaction")
    return 1 if found["exactly_once_v2"] else 0


def crash_once(
    guarantee: Literal["at_least_once", "exactly_once_v2"], config: StreamsConfig
) -> None:
    """Run the application, kill it while a batch is written, and let a second run finish."""
    module = bookings.__module__
    if module == "app":  # in a copy of this folder
        module = str(Path(__file__).with_name("app.py"))
    program = [sys.executable, "-m", "headrace", "run", f"{module}:{guarantee}"]
    flags = ["--trigger", "available_now", "--quiet", *log_flags(config).split()]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "slow"
        environment = {**os.environ, "EXACTLY_ONCE_FILE": str(path)}
        first = subprocess.Popen(  # noqa: S603
            [*program, *flags], env=environment, start_new_session=True
        )
        end = time.monotonic() + PATIENCE
        while not path.exists() and first.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(PAUSE)
        with suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        print(f"{guarantee}: the process is killed", flush=True)
        subprocess.run([*program, *flags], env=environment, check=True)  # noqa: S603


def booked(config: StreamsConfig) -> Counter[str]:
    """Return how often a reader of committed records sees each payment booked."""
    with KafkaConsumer(config, key=str, value=Payment) as consumer:
        partitions = consumer.partitions_for("booked-payments")
        consumer.assign(partitions)
        consumer.seek_to_beginning(partitions)
        ends = consumer.end_offsets(partitions)
        ids: Counter[str] = Counter()
        while any(consumer.position(each) < ends[each] for each in partitions):
            ids.update(record.value.payment_id for record in consumer.poll("1s"))
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
