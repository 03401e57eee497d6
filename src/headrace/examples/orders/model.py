"""The records of the example, with the field names of the document."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Literal

from msgspec import Struct, field

from headrace import FixedKeyProcessor, FixedKeyRecord

MINUTE = 60_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class OrderLineItem(Struct, rename="camel"):
    item: str
    count: int
    amount: Decimal


class Order(Struct, rename="camel"):
    order_id: int
    location_id: str
    final_amount: Decimal
    order_type: Literal["GENERAL", "RESTAURANT"]
    order_line_items: list[OrderLineItem]
    ordered_date_time: datetime

    @property
    def time(self) -> int:
        """The time of the order, in milliseconds. It names no time zone: UTC is meant."""
        time = self.ordered_date_time.replace(tzinfo=UTC)
        return (time - EPOCH) // timedelta(milliseconds=1)


class CheckTime(FixedKeyProcessor[str, Order, Order]):
    """Refuses an order that was made after it was sent; its dead letter says so."""

    def process(self, record: FixedKeyRecord[str, Order]) -> None:
        if record.value.time > record.timestamp + MINUTE:
            msg = "The order is from the future."
            raise ValueError(msg)
        self.context.forward(record)


class Revenue(Struct, rename="camel"):
    location_id: str
    final_amount: Decimal


class TotalRevenue(Struct, rename="camel"):
    location_id: str = ""
    # The document spells it so.
    running_order_count: int = field(default=0, name="runnuingOrderCount")
    running_revenue: Decimal = Decimal("0.00")

    def plus(self, order: Order) -> TotalRevenue:
        return TotalRevenue(
            order.location_id,
            self.running_order_count + 1,
            self.running_revenue + order.final_amount,
        )


class Address(Struct, rename="camel"):
    address_line1: str
    address_line2: str
    city: str
    state: str
    zip: str


class Store(Struct, rename="camel"):
    location_id: str
    address: Address
    contact_num: str


class TotalRevenueWithAddress(Struct, rename="camel"):
    total_revenue: TotalRevenue
    store: Store
