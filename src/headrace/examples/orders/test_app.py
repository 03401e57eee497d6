"""The figures of the document, windows with grace and suppress, and the fate of bad input."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from headrace.examples.checking import DriverRun, Fate, fates_of, in_process, on_driver
from headrace.examples.feeding import FeedRecord
from headrace.examples.orders.app import app
from headrace.examples.orders.feed import GENERAL, RESTAURANT, START, TOPICS, feed, order, store
from headrace.examples.orders.model import Revenue, TotalRevenue
from headrace.examples.orders.variants import VARIANTS
from headrace.examples.orders.web import add_routes
from headrace.examples.serving import answering
from headrace.serdes.partitioner import partition_for_key

STORE = store("store_1234", 1)


def general(second: float, number: int = 1) -> FeedRecord:
    return order(number, "store_1234", GENERAL, START + timedelta(seconds=second))


def windows(run: DriverRun, topic: str) -> list[tuple[int, Any]]:
    """Return where each window starts, in seconds after 08:55:15, and its value."""
    first = int(START.timestamp() * 1000) - 12_000
    return [((each.key.window.start - first) // 1000, each.value) for each in run.read(topic)]


def test_orders_are_split_and_their_amounts_published() -> None:
    with on_driver(app) as run:
        run.write([order(1, "store_1234", GENERAL), order(2, "store_1234", RESTAURANT)])

        (one,), (other,) = run.read("general_orders"), run.read("restaurant_orders")
        assert one.value == Revenue("store_1234", Decimal("27.00"))
        assert other.value == Revenue("store_1234", Decimal("15.00"))


DOCUMENT = b"""{
"orderId": 12345,
"locationId": "store_1234",
"finalAmount": 27.00,
"orderType": "GENERAL",
"orderLineItems": [
  {"item": "Bananas", "count": 2, "amount": 2.00},
  {"item": "Iphone Charger", "count": 1, "amount": 25.00}
],
"orderedDateTime": "2022-12-05T08:55:27"
}"""
"""The order of lines 213 to 224, with the brackets that the slide leaves out."""
GENERAL_ORDER = msgspec.json.Decoder(float_hook=Decimal).decode(DOCUMENT)


def test_the_order_of_the_document_is_read_and_its_amount_written_with_all_digits() -> None:
    (generated,) = [each for each in VARIANTS["document"].feed() if each.value == GENERAL_ORDER]
    with on_driver(app) as run:
        run.write([generated._replace(value=DOCUMENT)])

        topic = run.driver.create_output_topic("general_orders", key=bytes, value=bytes)
        assert topic.read_key_value() == (
            b"12345",
            b'{"locationId":"store_1234","finalAmount":27.00}',
        )


def test_the_totals_are_those_that_the_document_prints() -> None:
    with on_driver(app) as run:
        run.write([STORE, *(general(0, number) for number in range(4))])

        total = run.read("general-orders-revenue")[-1].value
        assert total.total_revenue == TotalRevenue("store_1234", 4, Decimal("108.00"))
        assert str(total.total_revenue.running_revenue) == "108.00"
        assert run.driver.get_key_value_store("general_orders_count").get("store_1234") == 4


def test_the_totals_are_joined_with_the_address_of_the_store() -> None:
    six = [order(number, "store_1234", RESTAURANT, kind="GENERAL") for number in range(6)]
    with on_driver(app) as run:
        run.write([STORE, *six])

        joined = run.read("general-orders-revenue")[-1].value
        assert joined.total_revenue == TotalRevenue("store_1234", 6, Decimal("90.00"))
        assert joined.store.address.address_line1 == "1234 Street 1"
        assert (joined.store.address.city, joined.store.contact_num) == ("City1", "1234567890")


def test_amounts_are_exact() -> None:
    third = [("Gum", 1, "0.10")]
    with on_driver(app) as run:
        run.write([STORE, *(order(number, "store_1234", third) for number in range(3))])

        assert str(run.read("general-orders-revenue")[-1].value.total_revenue.running_revenue) == (
            "0.30"
        )


def test_windows_of_15_seconds_wait_5_seconds_for_late_orders() -> None:
    with on_driver(app) as run:
        run.write([general(0), general(4), general(1), general(7.9), general(0)])
        assert windows(run, "general-orders-count-windows") == [
            (0, 1), (15, 1), (0, 2), (15, 2), (0, 3),
        ]  # fmt: skip
        assert run.dropped().total() == 0

        run.write([general(8), general(0)])  # the first window has closed, 5 s after its end
        assert windows(run, "general-orders-count-windows") == [(15, 3)]
        [letter] = run.read("orders-dead")
        assert b"late" in (letter.headers.last("__streams.errors.message") or b"")
        assert run.driver.get_key_value_store("general_orders_count").get("store_1234") == 7


def test_an_order_that_only_its_window_knows_to_be_late_is_counted() -> None:
    numbers = {partition_for_key(str(each).encode(), 2): each for each in range(10)}
    with on_driver(app, partitions=2) as run:
        run.write([general(60, numbers[0]), general(0, numbers[1])])

        assert run.driver.get_key_value_store("general_orders_count").get("store_1234") == 2
        assert run.dropped() == {"late": 2}  # for the count and for the revenue
        assert run.read("orders-dead") == []


def test_suppress_shows_only_the_last_result_of_a_window() -> None:
    with on_driver(app) as run:
        run.write([general(0), general(1), general(7.9)])
        assert windows(run, "general-orders-revenue-windows") == []

        run.write([general(8)])
        last = TotalRevenue("store_1234", 2, Decimal("54.00"))
        assert windows(run, "general-orders-revenue-windows") == [(0, last)]


def test_bad_input_is_counted_and_kept() -> None:
    good = general(0)
    unknown = good._replace(value=good.value | {"orderType": "GARDEN"})
    late = general(-3600)._replace(timestamp=good.timestamp)
    future = general(3600 * 24 * 3650)  # its own timestamp is from the future as well
    no_number = good._replace(value=good.value | {"finalAmount": "NaN"})
    cases = {"unknown": unknown, "no_number": no_number}

    assert fates_of(app, good, before=[STORE], late=late, future=future, **cases) == {
        "broken": Fate.DEAD_LETTER,
        "missing fields": Fate.DEAD_LETTER,
        "null key": Fate.DEAD_LETTER,
        "tombstone": Fate.DEAD_LETTER,
        "duplicate": Fate.PROCESSED,
        "late": Fate.DEAD_LETTER,
        "future": Fate.DEAD_LETTER,
        "unknown": Fate.DEAD_LETTER,
        "no_number": Fate.DEAD_LETTER,
    }


def test_bad_stores_are_counted_and_kept() -> None:
    assert fates_of(app, STORE) == {
        "broken": Fate.DEAD_LETTER,
        "missing fields": Fate.DEAD_LETTER,
        "null key": Fate.DEAD_LETTER,
        "tombstone": Fate.PROCESSED,  # it deletes the store
        "duplicate": Fate.PROCESSED,
        "late": Fate.PROCESSED,
        "future": Fate.PROCESSED,  # no window takes a store
    }


@pytest.mark.parametrize(
    ("text", "starts"), [("2022-12-05T08:55:27", 0), ("2022-12-05T09:55:27+01:00", 0)]
)
def test_a_time_without_a_zone_is_utc_and_one_with_a_zone_keeps_it(text: str, starts: int) -> None:
    good = general(0)
    with on_driver(app) as run:
        run.write([good._replace(value=good.value | {"orderedDateTime": text})])

        assert windows(run, "general-orders-count-windows") == [(starts, 1)]


def test_end_to_end_the_counts_are_those_of_the_input(tmp_path: Path) -> None:
    records = list(islice(feed(), 300))
    orders = [each for each in records if each.topic == "orders" and isinstance(each.value, dict)]
    with in_process(app, TOPICS, tmp_path) as run:
        run.write(records)

        for kind in ("general", "restaurant"):
            counts = {each.key: each.value for each in run.read(f"{kind}-orders-count")}
            made = [each.value for each in orders if each.value["orderType"] == kind.upper()]
            assert sum(counts.values()) == len(made)
        dropped = run.dropped()
        assert dropped["deserialization"] == len(records) - len(orders) - 3
        assert len(run.read("orders-dead")) == dropped.total()


def test_end_to_end_either_instance_answers_as_in_the_document(tmp_path: Path) -> None:
    with in_process(app, TOPICS, tmp_path) as run:
        run.write(VARIANTS["document"].feed())
        with answering(run.app, 2, add_routes, first_port=0) as services:
            for url in (f"{each.url}/v1/orders" for each in services):
                counts = f"{url}/count/general_orders"
                for location in ("store_1234", "store_4567"):
                    one = httpx.get(counts, params={"location_id": location}, timeout=60)
                    assert one.text == f'{{"locationId":"{location}","orderCount":1}}'
                assert {each["locationId"]: each["orderCount"] for each in read(counts)} == {
                    "store_1234": 1, "store_4567": 1,
                }  # fmt: skip
                assert httpx.get(counts, params={"location_id": "none"}).status_code == 404
                revenue = httpx.get(f"{url}/revenue/restaurant_orders?location_id=store_1234")
                assert '"runningRevenue":15.00' in revenue.text
                (total,) = read(f"{url}/revenue/restaurant_orders")
                assert total["runnuingOrderCount"] == 1
                (window,) = read(f"{url}/windows/count/restaurant_orders")
                assert window["endWindow"] - window["startWindow"] == 15_000
                (sold,) = read(f"{url}/windows/revenue/restaurant_orders")
                assert sold["runningRevenue"] == 15
                assert sold["startWindow"] == window["startWindow"]
                assert httpx.get(f"{url}/count/garden_orders").status_code == 422


def read(url: str) -> Any:
    return httpx.get(url).json()
