"""A program whose log goes to topic ``logs`` as JSON; `dictConfig` alone sets that up."""

from __future__ import annotations

import logging
import logging.config
import random
import time
from collections.abc import Iterator
from typing import Any

from headrace import ConsumerRecord, StreamsConfig
from headrace.clients import AdminClient, KafkaConsumer, log_context

TOPIC, EVENTS = "logs", 60
ALL_TOPICS = {TOPIC: 2}
SECONDS = 60
"""How long to wait for the events, on a busy machine."""
BROWSERS = [f"XXXYXXXY{number}" for number in range(5)]


def logging_config(config: StreamsConfig | dict[str, Any], **handler: Any) -> dict[str, Any]:
    """Return what `dictConfig` takes: the appender of the document, in Python."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "json": {
                "()": "headrace.clients.JsonFormatter",
                "providers": [
                    *("context", "version", "level", "logger", "constants"),
                    *("thread", "message", "markers", "arguments", "stack_trace"),
                ],
                "constants": {"appName": "testdata", "appVersion": "1.0"},
            }
        },
        "handlers": {
            "console": {"class": "logging.StreamHandler"},
            "stash": {
                "class": "headrace.clients.KafkaHandler",
                "topic": TOPIC,
                "formatter": "json",
                "delivery": "asynchronous",
                "keying": "none",
                "fallback": "console",
                "config": config,
                **handler,
            },
        },
        "loggers": {"shop": {"level": "INFO", "handlers": ["stash"], "propagate": False}},
    }


def browse(events: int = EVENTS, seed: int = 1) -> None:
    """Log what the browsers of a shop do: views of products, and captchas that they solve."""
    chance = random.Random(seed)
    for browser, kind, product in _actions(chance, events):
        with log_context(browserHash=browser):
            if kind == "view":
                message = "Viewed product %(productId)s"
                logging.getLogger("shop.ProductView").info(message, {"productId": product})
            else:
                logging.getLogger("shop.BrowserCaptchaVerified").info("Captcha solved")


def _actions(chance: random.Random, events: int) -> Iterator[tuple[str, str, str]]:
    for _ in range(events):
        kind = "view" if chance.random() < 0.9 else "captcha"
        yield chance.choice(BROWSERS), kind, f"product-{chance.randrange(10)}"


def close_log() -> None:
    """Write what is buffered, and close the appender."""
    logger = logging.getLogger("shop")
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
        handler.close()


def main(config: StreamsConfig) -> int:
    """Log 60 events, and read them back; return 0 if both partitions have some."""
    with AdminClient(config) as admin:
        admin.create_topic(TOPIC, partitions=ALL_TOPICS[TOPIC], if_not_exists=True)
    with KafkaConsumer(config, key=bytes, value=str) as consumer:
        partitions = consumer.partitions_for(TOPIC)
        consumer.assign(partitions)
        consumer.seek_to_end()
        logging.config.dictConfig(logging_config(config))
        browse()
        close_log()
        records: list[ConsumerRecord] = []
        end = time.monotonic() + SECONDS
        while len(records) < EVENTS and time.monotonic() < end:
            records += consumer.poll("1s")
    for partition in partitions:
        count = sum(record.partition == partition.partition for record in records)
        print(f"{partition.topic}-{partition.partition}: {count} events")
    print(min(record.value for record in records))
    is_whole = len(records) == EVENTS and {record.partition for record in records} == {0, 1}
    return 0 if is_whole else 1
