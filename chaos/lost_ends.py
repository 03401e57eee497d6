"""Shows whether a lone broker that is stopped in order loses transactions it has confirmed.

``python -m chaos.lost_ends --rounds 12``. No application of ours takes part: bare producers commit
transactions until the broker is stopped, it starts again, and a consumer reads what was confirmed.
"""

from __future__ import annotations

import argparse
import threading
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka_broker import RunningBroker, start_broker

_WRITERS = 6
_PARTITIONS = 20
"""Of each writer: the end of a later transaction in the same partition would be that of both."""
_WRITE_SECONDS = 3.0
_READ_SECONDS = 10.0


def main() -> None:
    """Count the rounds in which records are missing."""
    parser = argparse.ArgumentParser(prog="lost_ends", description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    rounds = parser.parse_args().rounds
    missed = 0
    with start_broker() as broker:
        for number in range(rounds):
            confirmed, seen = _round(broker, f"round-{number}")
            missing = sorted(confirmed - seen)
            missed += bool(missing)
            print(f"{len(confirmed)} transactions confirmed, missing: {missing}", flush=True)
    print(f"Confirmed transactions are missing after {missed} of {rounds} restarts.")


def _round(broker: RunningBroker, topic: str) -> tuple[set[str], set[str]]:
    """Return what was confirmed in a topic of its own, and what can be read of it."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(topic, _WRITERS * _PARTITIONS, 1)])[topic].result()
    confirmed: set[str] = set()
    over = threading.Event()
    writers = [
        threading.Thread(target=_write, args=(broker.address, topic, index, confirmed, over))
        for index in range(_WRITERS)
    ]
    for writer in writers:
        writer.start()
    time.sleep(_WRITE_SECONDS)
    broker.stop()
    over.set()
    broker.start()
    broker.await_ready()
    for writer in writers:
        writer.join()
    return confirmed, _read(broker.address, topic, len(confirmed))


def _write(
    address: str, topic: str, index: int, confirmed: set[str], over: threading.Event
) -> None:
    name = f"{topic}-{index}"
    producer = Producer({"bootstrap.servers": address, "transactional.id": name, "linger.ms": 0})
    number = 0
    try:
        producer.init_transactions()
        while not over.is_set():
            producer.begin_transaction()
            partition = index * _PARTITIONS + number % _PARTITIONS
            producer.produce(topic, f"{index}:{number}".encode(), partition=partition)
            producer.commit_transaction()
            confirmed.add(f"{index}:{number}")
            number += 1
    except KafkaException as error:
        print(f"Writer {index} ends: {error}", flush=True)


def _read(address: str, topic: str, wanted: int) -> set[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": topic,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    names = [TopicPartition(topic, number, 0) for number in range(_WRITERS * _PARTITIONS)]
    consumer.assign(names)
    seen: set[str] = set()
    give_up = time.monotonic() + _READ_SECONDS
    while len(seen) < wanted and time.monotonic() < give_up:
        for message in consumer.consume(1_000, 0.5):
            if message.error() is None:
                seen.add((message.value() or b"").decode())
    consumer.close()
    return seen


if __name__ == "__main__":
    main()
