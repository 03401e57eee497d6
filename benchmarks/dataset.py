"""The records that every system reads: generated, always the same for the same numbers."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from headrace.serdes.partitioner import partition_for_key

PARTITIONS = 4
KINDS = ("GENERAL", "RESTAURANT")
CITIES = ("Oslo", "Bergen", "Tromsø", "Trondheim", "Stavanger")
SPAN_MS = 600_000
"""The orders of one dataset are spread over this time."""
JITTER_MS = 5_000
LATE_MS = 180_000
LATE_SHARE = 0.001
UNKNOWN_EVERY = 100
"""Of this many locations one has no row in the table."""
SEED = 20_240
BEFORE_NOW_MS = 900_000


class Order(NamedTuple):
    """One order."""

    number: int
    location: int
    customer: int
    amount: float
    kind: str
    timestamp: int


class Raw(NamedTuple):
    """A record ready to be written."""

    key: bytes
    value: bytes
    partition: int
    timestamp: int


def location_key(location: int) -> bytes:
    """Return the key of the orders of a location, and of its row in the table."""
    return b"loc-%06d" % location


def customer_key(customer: int) -> bytes:
    """Return the key that a re-keyed order has."""
    return b"cust-%06d" % customer


def city_of(location: int) -> str | None:
    """Return the city of a location, or None if the table has no row for it."""
    if location % UNKNOWN_EVERY == 0:
        return None
    return CITIES[location % len(CITIES)]


def recent_start() -> int:
    """Return a full minute of the last half hour, as the start of a dataset."""
    now = int(time.time() * 1000)
    return now - now % 60_000 - BEFORE_NOW_MS


@dataclass(frozen=True)
class Dataset:
    """Orders in the order in which they are written, uniformly over locations and customers."""

    records: int
    keys: int
    start: int
    """Timestamp around which the first orders lie: of today, so that no retention takes them."""

    @property
    def topic(self) -> str:
        """The topic that holds the orders."""
        return f"orders-{self.records}"

    def orders(self) -> Iterator[Order]:
        """Yield the orders.

        Their timestamps rise, out of order by up to `JITTER_MS`; a few are late by `LATE_MS`.
        """
        chance = random.Random(SEED)
        every = range(self.keys)
        locations = chance.choices(every, k=self.records)
        customers = chance.choices(every, k=self.records)
        draw, start, step = chance.random, self.start, SPAN_MS / self.records
        for number, (location, customer) in enumerate(zip(locations, customers, strict=True)):
            drawn = draw()
            timestamp = start + int(number * step + drawn * JITTER_MS)
            if drawn < LATE_SHARE:
                timestamp -= LATE_MS
            amount = (number * 7919 % 9901 + 99) / 100
            yield Order(number, location, customer, amount, KINDS[number % 2], timestamp)

    def raw_orders(self) -> Iterator[Raw]:
        """Yield the orders as JSON of about 145 bytes, keyed by location."""
        keys = [location_key(location) for location in range(self.keys)]
        partitions = self.location_partitions()
        for number, location, customer, amount, kind, timestamp in self.orders():
            value = (
                f'{{"order_id":{number},"location_id":"loc-{location:06d}",'
                f'"customer_id":"cust-{customer:06d}","final_amount":{amount},'
                f'"order_type":"{kind}","ordered_at":{timestamp}}}'
            )
            yield Raw(keys[location], value.encode(), partitions[location], timestamp)

    def raw_locations(self) -> Iterator[Raw]:
        """Yield the rows of the locations that are known, older than every order."""
        partitions = self.location_partitions()
        for location in range(self.keys):
            city = city_of(location)
            if city is not None:
                value = f'{{"name":"Location {location}","city":"{city}","opened":2024}}'.encode()
                timestamp = self.start - 2 * LATE_MS
                yield Raw(location_key(location), value, partitions[location], timestamp)

    def location_partitions(self) -> list[int]:
        """Return the partition of each location's orders."""
        return [
            partition_for_key(location_key(location), PARTITIONS) for location in range(self.keys)
        ]
