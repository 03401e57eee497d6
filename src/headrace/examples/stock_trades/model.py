"""The records of the example."""

from __future__ import annotations

from decimal import Decimal

from msgspec import Struct

WINDOW, ADVANCE = 5_000, 1_000
"""How long a window is, and how far it is from the next one, in milliseconds."""


class Trade(Struct):
    symbol: str
    price: Decimal
    size: int

    def __post_init__(self) -> None:
        """Refuse a price that is no number: the text "NaN" is a Decimal."""
        if not self.price.is_finite():
            msg = f"The price {self.price} is no number."
            raise ValueError(msg)


class TradeStats(Struct):
    """The trades of a symbol in a window."""

    symbol: str = ""
    count: int = 0
    total: Decimal = Decimal(0)
    lowest: Decimal | None = None

    def add(self, trade: Trade) -> TradeStats:
        lowest = trade.price if self.lowest is None else min(self.lowest, trade.price)
        return TradeStats(trade.symbol, self.count + 1, self.total + trade.price, lowest)

    def average_price(self) -> float:
        return float(self.total / self.count)
