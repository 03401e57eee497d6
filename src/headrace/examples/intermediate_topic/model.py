"""Log events, and the names of products, which only a slow database knows."""

from __future__ import annotations

import time

from msgspec import Struct

LOOKUP_SECONDS = 0.01
_NAMES = {number: f"product {number}" for number in range(1, 21)}


class View(Struct, rename="camel"):
    """A browser has looked at a product."""

    browser_hash: str
    product_id: int


class NamedView(Struct, rename="camel"):
    """The same with the name of the product, and the task that looked it up."""

    browser_hash: str
    product_name: str
    task: str


def look_up(product_id: int) -> str:
    """Return the name of a product, as slowly as a distant database.

    Raises:
        ValueError: There is no such product.
    """
    time.sleep(LOOKUP_SECONDS)
    if product_id not in _NAMES:
        msg = f"There is no product {product_id}."
        raise ValueError(msg)
    return _NAMES[product_id]
