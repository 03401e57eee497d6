"""The stores and orders of the document, and then orders without end; every 200th is broken."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any

from headrace.examples.feeding import FeedRecord, print_lines

TOPICS = {"orders": 2, "stores": 2}
PER_SECOND = 50
TRACED = 3
START = datetime(2022, 12, 5, 8, 55, 27, tzinfo=UTC)
STORES = [f"store_{number}" for number in (1234, 4567, 7890)]
GENERAL = [("Bananas", 2, "2.00"), ("Iphone Charger", 1, "25.00")]
RESTAURANT = [("Pizza", 2, "12.00"), ("Coffee", 1, "3.00")]
SENT_AFTER = timedelta(milliseconds=300)


def store(location: str, number: int) -> FeedRecord:
    digits = location.removeprefix("store_")
    address = {
        "addressLine1": f"{digits} Street {number}",
        "addressLine2": "",
        "city": f"City{number}",
        "state": f"State{number}",
        "zip": "12345",
    }
    value = {"locationId": location, "address": address, "contactNum": "1234567890"}
    return FeedRecord("stores", location, value, milliseconds(START))


def order(
    number: int,
    location: str,
    items: list[tuple[str, int, str]],
    at: datetime = START,
    *,
    kind: str | None = None,
) -> FeedRecord:
    """Return an order; it is of the kind of its items."""
    value: dict[str, Any] = {
        "orderId": number,
        "locationId": location,
        "finalAmount": sum((Decimal(amount) for _, _, amount in items), Decimal("0.00")),
        "orderType": kind or ("RESTAURANT" if items == RESTAURANT else "GENERAL"),
        "orderLineItems": [
            {"item": item, "count": pieces, "amount": Decimal(amount)}
            for item, pieces, amount in items
        ],
        "orderedDateTime": at.replace(tzinfo=None).isoformat(),
    }
    return FeedRecord("orders", str(number), value, milliseconds(at + SENT_AFTER))


def feed(seed: int = 7) -> Iterator[FeedRecord]:
    chance = random.Random(seed)
    for number, location in enumerate(STORES, 1):
        yield store(location, number)
    yield order(12345, "store_1234", GENERAL)
    yield order(12345, "store_1234", RESTAURANT)
    at = START
    for number in count(12346):
        at += timedelta(milliseconds=chance.randrange(0, 2000, 100))
        # Some come up to eight seconds late: within the grace of a window, or after it.
        late = timedelta(seconds=chance.choice([0] * 18 + [4, 8]))
        made = order(number, chance.choice(STORES), chance.choice([GENERAL, RESTAURANT]), at - late)
        yield made._replace(value=b'{"orderId":') if number % 200 == 0 else made


def milliseconds(time: datetime) -> int:
    return int(time.timestamp() * 1000)


if __name__ == "__main__":
    print_lines(feed())
