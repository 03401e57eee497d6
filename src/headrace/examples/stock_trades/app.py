"""Trades of stocks: average prices in windows of 5 seconds, one per second; latest prices."""

from __future__ import annotations

from functools import partial

from headrace import KafkaStreams, StreamsBuilder, TimeWindows
from headrace.examples.check_time import CheckTime
from headrace.examples.stock_trades.model import ADVANCE, WINDOW, Trade, TradeStats


def checked(symbol: str | None, trade: Trade | None) -> None:
    """Refuse a trade that belongs to no stock: it becomes a dead letter."""
    if symbol is None or trade is None:
        msg = "a trade has a symbol and a price"
        raise ValueError(msg)


def add(_symbol: str, trade: Trade, stats: TradeStats) -> TradeStats:
    return stats.add(trade)


builder = StreamsBuilder()
in_time = partial(CheckTime, "trade-times", WINDOW, advance=ADVANCE)
trades = builder.stream("stocks", key=str, value=Trade).peek(checked)
trades = trades.process_values(in_time, value=Trade)
(
    trades.group_by_key()
    .windowed_by(TimeWindows("5s", advance="1s"))
    .aggregate(TradeStats, add, materialized="trade-aggregates")
    .to_stream()
    .map_values(TradeStats.average_price, value=float)
    .to("stockstats-out")  # the key is a window, in Kafka's bytes
)
trades.to_table(materialized="latest-trades").to_stream().to("latest-prices")

app = KafkaStreams(
    builder.build(),
    application_id="stock-trades",
    deserialization_exception_handler="continue",
    processing_exception_handler="continue",
    errors_dead_letter_queue_topic_name="stocks-dead",
)

if __name__ == "__main__":
    raise SystemExit(app.run())
