"""Run the orders example on Spark and the embedded log, with generated orders, until Ctrl-C."""

from __future__ import annotations

import random
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent))

from orders import Order, Store, app

from headrace import KafkaStreams, TopicExistsError
from headrace.brokers import open_log
from headrace.clients import KafkaProducer

LOCATIONS = [f"store_{number}" for number in range(1, 9)]
ORDERS_PER_SECOND = 50
PARTITIONS = 2

WHAT_NEXT = r"""
What to try next, in this folder:

  .venv/bin/headrace describe examples/orders.py  # what the application does
  .venv/bin/headrace plan examples/orders.py      # how it runs on Spark
  .venv/bin/python examples/walkthrough.py        # the same, record by record, without Spark

Run it on topics of your own, which stay, in the embedded log (the file .headrace/topics.db):

  .venv/bin/headrace topics create stores --partitions 2
  .venv/bin/headrace topics create orders --partitions 2
  .venv/bin/headrace produce stores --key store_1 \
      --value '{"locationId": "store_1", "contactNum": "555-0101"}'
  .venv/bin/headrace produce orders --key 1 \
      --value '{"orderId": 1, "locationId": "store_1", "finalAmount": 27.5,
                "orderType": "GENERAL", "orderedDateTime": "2026-01-05T08:55:00"}'
  .venv/bin/headrace run examples/orders.py --trigger available_now
  .venv/bin/headrace consume general-revenue --from-beginning --timeout 2s

Without --trigger it runs until Ctrl-C. For the same on Kafka, leave `make kafka` running in another
terminal, and add --bootstrap-servers 127.0.0.1:9092 to each of these commands. The application has
its own state there.
"""


def generate(streams: KafkaStreams, stop: threading.Event) -> None:
    """Write the stores, then orders, until ``stop`` is set."""
    topics = streams.config.state_dir / "topics.db"
    with KafkaProducer(key=str, value=Store, embedded_path=topics) as stores:
        for number, location in enumerate(LOCATIONS):
            stores.send("stores", location, Store(location, f"555-01{number:02}"))
    chance = random.Random(7)  # noqa: S311  # no secret
    with KafkaProducer(key=str, value=Order, embedded_path=topics) as orders:
        number = 0
        while not stop.wait(1 / ORDERS_PER_SECOND):
            number += 1
            kind = chance.choice(["GENERAL", "RESTAURANT"])
            amount = round(chance.uniform(5, 50), 2)
            now = datetime.now(UTC).replace(tzinfo=None)
            order = Order(number, chance.choice(LOCATIONS), amount, kind, now)
            orders.send("orders", str(number), order)


def main(seconds: float | None = None) -> int:
    """Run until Ctrl-C, or for ``seconds``; return the exit code."""
    with TemporaryDirectory(prefix="headrace-demo-") as folder:
        streams = KafkaStreams(app.topology, app.config, state_dir=folder)
        log = open_log(streams.config)
        for topic in ("orders", "stores"):
            with suppress(TopicExistsError):
                log.create_topic(topic, partitions=PARTITIONS)
        log.close()
        stop = threading.Event()
        generator = threading.Thread(target=generate, args=(streams, stop), daemon=True)
        generator.start()
        timer = None
        if seconds is not None:
            timer = threading.Timer(seconds, streams.close)
            timer.daemon = True
            timer.start()
        try:
            code = streams.run()
        finally:
            stop.set()
            generator.join()
    if code == 0:
        print(WHAT_NEXT)
    return code


if __name__ == "__main__":
    raise SystemExit(main(*map(float, sys.argv[1:])))
