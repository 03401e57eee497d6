"""Tickets and their sums."""

from __future__ import annotations

from decimal import Decimal

from msgspec import Struct


class Ticket(Struct):
    """A ticket that a cinema has sold."""

    seat: str
    price: Decimal

    def __post_init__(self) -> None:
        """Refuse a price that is no number: the text "NaN" is a Decimal."""
        if not self.price.is_finite():
            msg = f"The price {self.price} is no number."
            raise ValueError(msg)


class DayOfMovie(Struct):
    """How many tickets of a movie a day has sold, and for how much."""

    tickets: int = 0
    revenue: Decimal = Decimal("0.00")


def check(key: str | None, value: object) -> None:
    """Refuse a record that no window can take; its dead letter says why."""
    if key is None or value is None:
        msg = "The record has no key." if key is None else "The record has no value."
        raise ValueError(msg)
