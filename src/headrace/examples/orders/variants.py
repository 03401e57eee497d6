"""The orders of the document and no others: its answers over HTTP hold literally."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.examples.feeding import FeedRecord
from headrace.examples.orders.feed import GENERAL, RESTAURANT, STORES, TOPICS, order, store
from headrace.examples.variants import Variant


def document() -> Iterator[FeedRecord]:
    """Yield the stores, both orders of ``store_1234``, and an order of ``store_4567``."""
    for number, location in enumerate(STORES, 1):
        yield store(location, number)
    yield order(12345, "store_1234", GENERAL)
    yield order(12345, "store_1234", RESTAURANT)
    yield order(12346, "store_4567", GENERAL)


VARIANTS = {"document": Variant("app:app", TOPICS, document)}
