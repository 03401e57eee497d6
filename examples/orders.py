"""Orders of a chain of stores: split by kind, counted, summed per store and in windows, joined.

``examples/demo.py`` runs this program on Spark with generated orders. ``examples/walkthrough.py``
pipes a few orders through the test driver.
"""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Struct

from headrace import ConsumerRecord, KafkaStreams, StreamsBuilder, TimeWindows


class Order(Struct, rename="camel"):
    order_id: int
    location_id: str
    final_amount: float
    order_type: str
    ordered_date_time: datetime


class Revenue(Struct):
    orders: int = 0
    total: float = 0.0


class Store(Struct, rename="camel"):
    location_id: str
    contact_num: str


class RevenueWithStore(Struct):
    revenue: Revenue
    store: Store


def add(_location: str, order: Order, revenue: Revenue) -> Revenue:
    return Revenue(revenue.orders + 1, revenue.total + order.final_amount)


def ordered_at(record: ConsumerRecord, _partition_time: int) -> int | datetime:
    # A record with a time of -1 is left out: a deleted order has no time.
    return -1 if record.value is None else record.value.ordered_date_time.replace(tzinfo=UTC)


builder = StreamsBuilder()
stores = builder.table("stores", key=str, value=Store)
kinds = (
    builder.stream("orders", key=str, value=Order, timestamp_extractor=ordered_at)
    .split(name="orders-")
    .branch(lambda _, order: order.order_type == "GENERAL", "general")
    .branch(lambda _, order: order.order_type == "RESTAURANT", "restaurant")
    .no_default_branch()
)
for kind in ("general", "restaurant"):
    by_store = kinds[kind].group_by(
        lambda _, order: order.location_id, key=str, name=f"{kind}-by-store"
    )
    by_store.count(materialized=f"{kind}-orders-count")
    (
        by_store.windowed_by(TimeWindows("15s", grace="5s"))
        .aggregate(Revenue, add, materialized=f"{kind}-revenue-windows")
        .to_stream()
        .to(f"{kind}-revenue-by-window")
    )
    (
        by_store.aggregate(Revenue, add, materialized=f"{kind}-orders-revenue")
        .join(stores, RevenueWithStore)
        .to_stream()
        .to(f"{kind}-revenue")
    )

app = KafkaStreams(
    builder.build(),
    application_id="orders",
    deserialization_exception_handler="continue",
    errors_dead_letter_queue_topic_name="orders-dead",
)

if __name__ == "__main__":
    raise SystemExit(app.run())
