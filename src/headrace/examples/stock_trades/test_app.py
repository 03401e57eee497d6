"""Averages in hopping windows, keys in Kafka's bytes, the latest prices, and bad input."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from itertools import islice
from pathlib import Path

from headrace import Serdes
from headrace.examples.checking import Fate, fates_of, in_process, on_driver
from headrace.examples.serving import answering
from headrace.examples.stock_trades.app import app
from headrace.examples.stock_trades.feed import TOPICS, feed, trade
from headrace.examples.stock_trades.model import TradeStats
from headrace.queries import QueryClient

SIZE = 5_000


def test_each_trade_is_in_five_windows_of_which_one_starts_every_second() -> None:
    with on_driver(app) as run:
        run.write([trade("ACME", 1000, 10_000), trade("ACME", 2000, 12_000)])

        last = {each.key.window.start: each.value for each in run.read("stockstats-out")}
    assert last == {
        6_000: 10.0, 7_000: 10.0,
        8_000: 15.0, 9_000: 15.0, 10_000: 15.0,
        11_000: 20.0, 12_000: 20.0,
    }  # fmt: skip


def test_the_windows_of_a_stock_are_fetched_by_time() -> None:
    with on_driver(app) as run:
        run.write([trade("ACME", 1000, 10_000), trade("MSFT", 300, 11_000)])

        windows = run.driver.get_window_store("trade-aggregates").fetch("ACME", 9_000, 60_000)
        stats = TradeStats("ACME", 1, Decimal(10), Decimal(10))
        assert [*windows] == [(9_000, stats), (10_000, stats)]


def test_a_windowed_key_has_kafkas_bytes() -> None:
    with on_driver(app) as run:
        run.write([trade("ACME", 1000, 10_000)])

        output = run.driver.create_output_topic("stockstats-out", key=bytes, value=bytes)
        first = output.read_record()
    assert first.key == b"ACME" + (6_000).to_bytes(8)
    key = Serdes.time_windowed(Serdes.string(), SIZE).deserialize(first.key)
    assert (key.key, key.window.start, key.window.end) == ("ACME", 6_000, 11_000)


def test_the_latest_price_of_a_stock_is_a_table() -> None:
    with on_driver(app) as run:
        run.write([trade("ACME", 1000, 1), trade("MSFT", 300, 2), trade("ACME", 1100, 3)])

        latest = run.driver.get_key_value_store("latest-trades")
        assert {symbol: last.price for symbol, last in latest.all()} == {
            "ACME": Decimal(11),
            "MSFT": Decimal(3),
        }


def test_bad_input_is_counted_and_kept() -> None:
    good = trade("ACME", 1000, 1_538_730_000_000)
    no_number = good._replace(value=b'{"symbol":"ACME","price":"NaN","size":1}')

    assert fates_of(app, good, no_number=no_number) == {
        "broken": Fate.DEAD_LETTER,
        "missing fields": Fate.DEAD_LETTER,
        "null key": Fate.DEAD_LETTER,
        "tombstone": Fate.DEAD_LETTER,
        "duplicate": Fate.PROCESSED,
        "late": Fate.DEAD_LETTER,
        "future": Fate.DEAD_LETTER,
        "no_number": Fate.DEAD_LETTER,
    }


def test_end_to_end_the_averages_are_those_of_the_trades(tmp_path: Path) -> None:
    records = [*islice(feed(), 120)]
    prices: defaultdict[tuple[str, int], list[Decimal]] = defaultdict(list)
    for record in records:
        newest = record.timestamp // 1000 * 1000
        for start in range(newest - 4_000, newest + 1, 1000):
            prices[record.key, start].append(record.value.price)
    with in_process(app, TOPICS, tmp_path) as run:
        run.write(records)

        last = {
            (each.key.key, each.key.window.start): each.value for each in run.read("stockstats-out")
        }
    assert last == {key: float(sum(each) / len(each)) for key, each in prices.items()}


def test_end_to_end_any_instance_fetches_windows(tmp_path: Path) -> None:
    with in_process(app, TOPICS, tmp_path) as run:
        run.write([trade("ACME", 1000, 10_000), trade("ACME", 2000, 12_000)])
        with answering(run.app, 2, first_port=0) as instances:
            for instance in instances:
                with QueryClient(instance.url, program=app) as client:
                    windows = client.store("trade-aggregates").fetch("ACME", 8_000, 11_000)
                    assert [(start, stats.average_price()) for start, stats in windows] == [
                        (8_000, 15.0), (9_000, 15.0), (10_000, 15.0), (11_000, 20.0),
                    ]  # fmt: skip
                    assert client.store("latest-trades").get("ACME").price == 20
