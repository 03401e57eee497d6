"""Pipe a few orders through the test driver and print each record: no Spark, no broker."""

from __future__ import annotations

import logging
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from orders import Order, Store, app

from headrace import Headers
from headrace.testing import TopologyTestDriver

MORNING = datetime(2026, 1, 5, 8, 55)  # the example's records have no time zone
TOPICS = ("general-revenue", "general-revenue-by-window", "restaurant-revenue", "orders-dead")


def main() -> int:
    """Pipe a few orders in and print every output record."""
    logging.getLogger("headrace").setLevel(logging.ERROR)  # the output below shows the bad record
    print(app.topology.describe())
    with TopologyTestDriver(app.topology, app.config) as driver:
        outputs = {topic: driver.create_output_topic(topic, **_raw(topic)) for topic in TOPICS}
        stores = driver.create_input_topic("stores")
        for number in (1, 2):
            store = Store(f"store_{number}", f"555-010{number}")
            print(f"in   stores                      {store.location_id}: {store}")
            stores.pipe_input(store.location_id, store)
        orders = driver.create_input_topic("orders")
        for order in _orders():
            print(f"in   orders                      {order.order_id}: {order}")
            orders.pipe_input(str(order.order_id), order)
            _show(outputs)
        print("in   orders                      9: bytes that are no order")
        driver.pipe_raw("orders", b"9", b"{not json", 0, Headers())
        _show(outputs)
        print()
        counts = driver.get_key_value_store("general-orders-count")
        for location, count in counts.all():
            print(f"store 'general-orders-count'     {location}: {count}")
        for name, count in driver.metrics().items():
            if name.name == "dropped-by-reason-total":
                print(f"dropped                          {dict(name.tags)}: {count}")
    return 0


def _orders() -> list[Order]:
    sales = [
        (1, "store_1", 27.0, "GENERAL", 0),
        (2, "store_1", 15.5, "RESTAURANT", 4),
        (3, "store_2", 10.0, "GENERAL", 9),
        (4, "store_1", 13.0, "GENERAL", 14),
        (5, "store_1", 40.0, "GENERAL", 21),
        (6, "store_1", 1.0, "GENERAL", 12),
    ]
    return [
        Order(number, place, amount, kind, MORNING + timedelta(seconds=second))
        for number, place, amount, kind, second in sales
    ]


def _show(outputs: dict[str, Any]) -> None:
    for topic, output in outputs.items():
        for record in output.read_records_to_list():
            print(f"out  {topic:27} {record.key}: {record.value}")


def _raw(topic: str) -> dict[str, Any]:
    return {"key": bytes, "value": bytes} if topic == "orders-dead" else {}


if __name__ == "__main__":
    raise SystemExit(main())
