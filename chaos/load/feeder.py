"""The process that feeds: ``python -m chaos.load.feeder ADDRESS SEED FILE``.

Standard input takes lines: ``burst N`` writes N records as fast as it can and answers with a line,
``rate R`` writes R records a second from then on. When the input ends, it writes what it has fed
into FILE: the oracle of the load, kept without any code of the runtime.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from random import Random

import msgspec
from confluent_kafka import KafkaError, Message, Producer

from benchmarks.dataset import PARTITIONS
from chaos.oracle import partition_for

TOPIC = "running-events"
KEYS = 20_000
"""How many there are: the state is full after a few seconds and grows no more."""

_PAUSE_SECONDS = 0.02
_FLUSH_SECONDS = 60.0
_AMOUNTS = range(1, 1_000)


class Fed(msgspec.Struct, array_like=True, frozen=True):
    """The input of one key."""

    count: int
    sum: int
    last: int
    """The number of its last record."""


def keys() -> list[tuple[str, int]]:
    """Return all keys, each with its partition."""
    names = (f"key-{number}" for number in range(KEYS))
    return [(name, partition_for(name.encode(), PARTITIONS)) for name in names]


class Feeder:
    """Writes records that have a number each, and keeps count of them.

    Args:
        address: The broker.
        seed: Decides keys and amounts.
    """

    def __init__(self, address: str, seed: int) -> None:
        self.rate = 0.0
        """How many records to write in a second."""
        self.sent = 0
        """How many records were written."""
        self._seed = seed
        self._chance = Random(seed)
        self._keys = keys()
        self._counts, self._sums, self._lasts = ([0] * KEYS, [0] * KEYS, [-1] * KEYS)
        self._refused: KafkaError | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "log_level": 3,  # a new broker makes it wait for a producer id, and it says so
                "linger.ms": 50,
                "batch.size": 1 << 20,
                "queue.buffering.max.messages": 500_000,
                "delivery.report.only.error": True,
                "on_delivery": self._delivered,
            }
        )

    def send(self, count: int) -> None:
        """Write some records."""
        indexes = self._chance.choices(range(KEYS), k=count)
        amounts = self._chance.choices(_AMOUNTS, k=count)
        now = time.time_ns() // 1_000_000
        for number, index, amount in zip(
            range(self.sent, self.sent + count), indexes, amounts, strict=True
        ):
            key, partition = self._keys[index]
            identity = f"r{self._seed}.p{partition}.{number}"
            self._produce(key, f'{{"id": "{identity}", "amount": {amount}}}', partition, now)
            self._counts[index] += 1
            self._sums[index] += amount
            self._lasts[index] = number
        self.sent += count
        self._producer.poll(0)

    def keep_pace(self, over: threading.Event) -> None:
        """Write at the rate that is asked for, until it is over."""
        while not over.is_set():
            rate, since, before = self.rate, time.monotonic(), self.sent
            while rate == self.rate and not over.wait(_PAUSE_SECONDS):
                due = (time.monotonic() - since) * rate - (self.sent - before)
                self.send(int(due))

    def flush(self) -> None:
        """Wait until the broker has everything.

        Raises:
            RuntimeError: It has not taken a record.
        """
        left = self._producer.flush(_FLUSH_SECONDS)
        if left or self._refused is not None:
            msg = f"{left} records were not written: {self._refused}. Read the log of the broker."
            raise RuntimeError(msg)

    def fed(self) -> dict[str, Fed]:
        """Return what was fed, by key."""
        columns = zip(self._keys, self._counts, self._sums, self._lasts, strict=True)
        return {key: Fed(count, total, last) for (key, _), count, total, last in columns if count}

    def _produce(self, key: str, value: str, partition: int, timestamp: int) -> None:
        while True:
            try:
                self._producer.produce(TOPIC, value, key, partition, timestamp=timestamp)
            except BufferError:
                self._producer.poll(0.05)
            else:
                return

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        self._refused = self._refused or error


def main(arguments: list[str]) -> int:
    address, seed, file = arguments
    feeder, over = Feeder(address, int(seed)), threading.Event()
    pace = threading.Thread(target=feeder.keep_pace, args=(over,))
    for line in sys.stdin:
        command, _, number = line.partition(" ")
        if command == "burst":
            feeder.send(int(number))
            feeder.flush()
            print(feeder.sent, flush=True)
        else:
            feeder.rate = float(number)
            if not pace.is_alive():
                pace.start()
    over.set()
    if pace.is_alive():
        pace.join()
    feeder.flush()
    Path(file).write_bytes(msgspec.json.encode(feeder.fed()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
