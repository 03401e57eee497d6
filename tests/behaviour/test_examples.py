"""The programs in examples/ do what they say."""

from __future__ import annotations

import importlib
import logging
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from headrace import KafkaStreams, Windowed
from headrace.testing import DriverFactory, TopologyTestDriver

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> dict[str, Any]:
    return vars(importlib.import_module(f"examples.{name}"))


def driver_of(app: KafkaStreams, topology_driver: DriverFactory) -> TopologyTestDriver:
    return topology_driver(app.topology, app.config)


def test_orders_sums_revenue_per_store_and_per_window(topology_driver: DriverFactory) -> None:
    orders = example("orders")
    driver = driver_of(orders["app"], topology_driver)
    driver.create_input_topic("stores").pipe_input("s1", orders["Store"]("s1", "555"))

    topic = driver.create_input_topic("orders")
    for number, second in ((1, 0), (2, 14), (3, 15)):
        time = datetime(2026, 1, 5, 8, 0, second)  # as the example's records
        topic.pipe_input(str(number), orders["Order"](number, "s1", 10.0, "GENERAL", time))

    revenue = driver.create_output_topic("general-revenue").read_values_to_list()
    windows = driver.create_output_topic("general-revenue-by-window").read_key_values_to_map()
    assert [each.revenue.total for each in revenue] == [10.0, 20.0, 30.0]
    assert [each.total for each in windows.values()] == [20.0, 10.0]
    assert all(isinstance(key, Windowed) for key in windows)
    assert driver.get_key_value_store("general-orders-count").get("s1") == 3


def test_orders_leaves_an_order_without_a_value_out(topology_driver: DriverFactory) -> None:
    orders = example("orders")
    driver = driver_of(orders["app"], topology_driver)

    topic = driver.create_input_topic("orders")
    topic.pipe_input("1", None)
    topic.pipe_input("2", orders["Order"](2, "s1", 10.0, "GENERAL", datetime(2026, 1, 5)))

    assert driver.get_key_value_store("general-orders-count").get("s1") == 1


def test_word_count_counts_words(topology_driver: DriverFactory) -> None:
    driver = driver_of(example("word_count")["app"], topology_driver)

    driver.create_input_topic("lines").pipe_input(None, "Streams of streams")

    counts = driver.create_output_topic("word-counts").read_key_values_to_list()
    assert counts == [("streams", 1), ("of", 1), ("streams", 2)]


def test_product_views_reports_counts_every_second(topology_driver: DriverFactory) -> None:
    driver = driver_of(example("product_views")["app"], topology_driver)
    logs = driver.create_input_topic("logs")
    logs.pipe_key_value_list([(7, "view"), (7, "view"), (9, "view")])

    driver.advance_wall_clock_time("1s")

    assert driver.create_output_topic("counter_topic").read_key_values_to_map() == {7: 2, 9: 1}


def test_captcha_is_asked_for_after_five_actions_unless_passed(
    topology_driver: DriverFactory,
) -> None:
    driver = driver_of(example("captcha")["app"], topology_driver)
    driver.create_input_topic("captcha-verified").pipe_input("good", 1)

    actions = driver.create_input_topic("browser-actions")
    for browser in ("good", "new"):
        actions.pipe_key_value_list([(None, {"browserHash": browser})] * 5)

    asked = driver.create_output_topic("ask-captcha").read_key_values_to_list()
    assert asked == [("new", 5)]


def test_the_walkthrough_prints_what_flowed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    logger = logging.getLogger("headrace")
    level = logger.level

    assert example("walkthrough")["main"]() == 0

    logger.setLevel(level)
    shown = capsys.readouterr().out
    assert "out  general-revenue             store_1: RevenueWithStore(" in shown
    assert "'reason': 'deserialization'}: 1" in shown
