"""The records of the example."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from msgspec import Struct

from headrace import FixedKeyProcessor, FixedKeyProcessorContext, FixedKeyRecord, Stores

WINDOW, ADVANCE = 5_000, 1_000
"""How long a window is, and how far it is from the next one, in milliseconds."""


class Trade(Struct):
    symbol: str
    price: Decimal
    size: int


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


class RefuseLate(FixedKeyProcessor[str, Trade, Trade]):
    """Refuses a trade for which every window is closed; its dead letter says so."""

    times = Stores.key_value("trade-times", str, int)

    def stores(self) -> list[Any]:
        return [self.times]

    def init(self, context: FixedKeyProcessorContext[str, Trade]) -> None:
        super().init(context)
        self.latest = context.get_state_store(self.times)

    def process(self, record: FixedKeyRecord[str, Trade]) -> None:
        latest = max(record.timestamp, self.latest.get("latest") or 0)
        if record.timestamp - record.timestamp % ADVANCE + WINDOW <= latest:
            msg = "The trade is late: the last of its windows is closed."
            raise ValueError(msg)
        self.latest.put("latest", latest)
        self.context.forward(record)
