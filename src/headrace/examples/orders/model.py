"""The records of the example, with the field names of the document."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import ClassVar, Literal

from msgspec import Struct, field

from headrace import (
    ConsumerRecord,
    FixedKeyProcessor,
    FixedKeyRecord,
)

MINUTE = 60_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def check_amount(amount: Decimal) -> None:
    """Refuse an amount that is no number: the text "NaN" is a Decimal."""
    if not amount.is_finite():
        msg = f"The amount {amount} is no number."
        raise ValueError(msg)


class OrderLineItem(Struct, rename="camel"):
    item: str
    count: int
    amount: Decimal

    def __post_init__(self) -> None:
        check_amount(self.amount)


class Order(Struct, rename="camel"):
    order_id: int
    location_id: str
    final_amount: Decimal
    order_type: Literal["GENERAL", "RESTAURANT"]
    order_line_items: list[OrderLineItem]
    ordered_date_time: datetime

    def __post_init__(self) -> None:
        check_amount(self.final_amount)

    @property
    def time(self) -> int:
        """The time of the order, in milliseconds. If it names no time zone, UTC is meant."""
        time = self.ordered_date_time
        time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        return (time - EPOCH) // timedelta(milliseconds=1)


@dataclass(frozen=True)
class OrderTimestampExtractor:
    """Takes the time of the order.

    An order from the future would close all windows. It gets the time of its partition, and
    `CheckOrder` refuses it.
    """

    uses_wall_clock: ClassVar[bool] = True
    latest: int = 0

    def at(self, wall_clock_ms: int, /) -> OrderTimestampExtractor:
        return OrderTimestampExtractor(wall_clock_ms + MINUTE)

    def __call__(self, record: ConsumerRecord, partition_time: int, /) -> int:
        time = record.timestamp if record.value is None else record.value.time
        return time if time <= self.latest else max(partition_time, 0)


class CheckOrder(FixedKeyProcessor[str, Order, Order]):
    """Refuses an order without an id or from the future; its dead letter says why."""

    def process(self, record: FixedKeyRecord[str, Order]) -> None:
        if record.key is None:
            msg = "The order has no id."
            raise ValueError(msg)
        if record.value.time > self.context.current_system_time_ms() + MINUTE:
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
