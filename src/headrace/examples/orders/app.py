"""Orders of stores: split by type, counted, summed, in windows, and joined with addresses."""

from __future__ import annotations

from functools import partial

from headrace import (
    KafkaStreams,
    KStream,
    KTable,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from headrace.examples.check_time import CheckTime
from headrace.examples.orders.model import (
    CheckOrder,
    Order,
    OrderTimestampExtractor,
    Revenue,
    Store,
    TotalRevenue,
    TotalRevenueWithAddress,
)

SIZE, GRACE = 15_000, 5_000
WINDOWS = TimeWindows(SIZE, grace=GRACE)


def check_store(location_id: str | None, _store: Store | None) -> None:
    """Refuse a store without an id, which a table would leave out; its dead letter says why."""
    if location_id is None:
        msg = "The store has no id."
        raise ValueError(msg)


def revenue_of(order: Order) -> Revenue:
    return Revenue(order.location_id, order.final_amount)


def location_of(_order_id: str | None, order: Order) -> str:
    return order.location_id


def add(_location_id: str, order: Order, total: TotalRevenue) -> TotalRevenue:
    return total.plus(order)


def aggregate(orders: KStream[str, Order], stores: KTable[str, Store], kind: str) -> None:
    """Publish, count and sum the orders of one kind."""
    topic = f"{kind}-orders"
    orders.map_values(revenue_of).to(f"{kind}_orders")

    by_store = orders.group_by(location_of, name=f"{kind}-by-store")
    by_store.count(materialized=f"{kind}_orders_count").to_stream().to(f"{topic}-count")
    (
        by_store.aggregate(TotalRevenue, add, materialized=f"{kind}_orders_revenue")
        .join(stores, TotalRevenueWithAddress)
        .to_stream()
        .to(f"{topic}-revenue")
    )

    # The totals have late orders, too. The windows refuse them as dead letters.
    in_time = partial(CheckTime, f"times-{kind}", SIZE, grace=GRACE)
    in_windows = (
        orders.process_values(in_time, value=Order)
        .group_by(location_of, name=f"{kind}-in-time-by-store")
        .windowed_by(WINDOWS)
    )
    (
        in_windows.count(materialized=f"{kind}_orders_count_windows")
        .to_stream()
        .to(f"{topic}-count-windows")
    )
    (
        in_windows.aggregate(TotalRevenue, add, materialized=f"{kind}_orders_revenue_windows")
        .suppress(Suppressed.until_window_closes())
        .to_stream()
        .to(f"{topic}-revenue-windows")
    )


builder = StreamsBuilder()
stores = builder.stream("stores", key=str, value=Store).peek(check_store).to_table()
kinds = (
    builder.stream("orders", key=str, value=Order, timestamp_extractor=OrderTimestampExtractor())
    .process_values(CheckOrder, value=Order)
    .split(name="orders-")
    .branch(lambda _, order: order.order_type == "GENERAL", "general")
    .branch(lambda _, order: order.order_type == "RESTAURANT", "restaurant")
    .no_default_branch()
)
for kind in ("general", "restaurant"):
    aggregate(kinds[kind], stores, kind)

app = KafkaStreams(
    builder.build(),
    application_id="orders-stream-app",
    deserialization_exception_handler="continue",
    processing_exception_handler="continue",
    errors_dead_letter_queue_topic_name="orders-dead",
)

if __name__ == "__main__":
    raise SystemExit(app.run())
