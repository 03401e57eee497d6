"""Orders with the product they name, if there is one; both change, and are deleted.

A left join, because Kafka answers each of its changes. An inner join leaves out answers that it
takes for needless; if an order changes twice before the first answer comes, an old result may stay.
Beside that each change of both is echoed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chaos import oracle
from chaos.contract import Sent, Workload
from chaos.workloads.generating import (
    FIRST_MS,
    PARTITIONS,
    SETTINGS,
    chance,
    identity,
    sent,
)
from chaos.workloads.stamping import stamped, stamped_together
from headrace import Materialized, StreamsBuilder, Topology

_ORDERS, _PRODUCTS = 150, 60


def _priced(order: dict[str, Any], product: dict[str, Any] | None) -> dict[str, Any]:
    return {"order": order["id"], "product": product and product["id"]}


def _topology() -> Topology:
    builder = StreamsBuilder()
    orders = builder.table("orders", key=str, value=dict[str, Any])
    products = builder.table("products", key=str, value=dict[str, Any])
    priced = orders.left_join(
        products,
        _priced,
        foreign_key=lambda order: str(order["product"]),
        materialized=Materialized("priced-store", key=str, value=dict[str, Any]),
    )
    echo, results = stamped_together("priced", orders.to_stream(), priced.to_stream())
    echo.to("order-echo", key=str, value=dict[str, Any])
    results.to("priced-orders", key=str, value=dict[str, Any])
    stamped(products.to_stream(), "products").to("product-echo", key=str, value=dict[str, Any])
    return builder.build()


def _records(seed: int, start: int, count: int) -> Iterator[Sent]:
    for number in range(start, start + count):
        random = chance(seed, number)
        timestamp, kind = FIRST_MS + number, random.random()
        if kind < 0.65:
            key = f"order-{random.randrange(_ORDERS)}"
            product = f"product-{random.randrange(_PRODUCTS)}"
            fields = {"id": identity(seed, key, number), "product": product}
            yield sent("orders", key, timestamp, fields if kind < 0.57 else None)
        else:
            key = f"product-{random.randrange(_PRODUCTS)}"
            fields = {"id": identity(seed, key, number)}
            yield sent("products", key, timestamp, fields if kind < 0.93 else None)


WORKLOAD = Workload(
    name="foreign_key_join",
    topics={"orders": PARTITIONS, "products": PARTITIONS},
    outputs={
        "order-echo": PARTITIONS,
        "product-echo": PARTITIONS,
        "priced-orders": PARTITIONS,
    },
    stores={"priced-store": "key_value"},
    settings=SETTINGS,
    topology=_topology,
    records=_records,
    expected=oracle.foreign_key_join,
    observed=oracle.foreign_key_join_seen,
    traced=lambda outputs: oracle.ids_in(outputs, "order-echo", "product-echo"),
    shown=("priced-store", "priced-orders"),
)
