"""Count the views of products: with the Processor API, and with the DSL and an alert by e-mail.

``app`` is the topology of named nodes. ``alert_app`` is its twin in the DSL: it sends an e-mail
when a product has 1,000 views.
"""

from __future__ import annotations

import logging
import smtplib
from email.message import EmailMessage

from headrace import (
    KafkaStreams,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Stores,
    StreamsBuilder,
    Topology,
)
from headrace.examples.refuse_future import RefuseFuture, refuse_future

log = logging.getLogger(__name__)

counts = Stores.key_value("Counts", int, int)
POPULAR = 1000
MAIL_SERVER = ("localhost", 1025)


def check(product: int | None, browser: str | None) -> None:
    """Refuse a view that cannot be counted; its dead letter says why."""
    if product is None or browser is None:
        msg = "a view names a product and a browser"
        raise ValueError(msg)


class ProductCounter(Processor[int, str, int, int]):
    """Counts views in a store, and reports all counts every second."""

    def init(self, context: ProcessorContext[int, int]) -> None:
        super().init(context)
        self.counts = context.get_state_store(counts)
        context.schedule("1s", PunctuationType.STREAM_TIME, self.punctuate)

    def process(self, record: Record[int, str]) -> None:
        check(record.key, record.value)
        refuse_future(record)
        self.counts.put(record.key, (self.counts.get(record.key) or 0) + 1)

    def punctuate(self, timestamp: int) -> None:
        for product, views in self.counts.all():
            self.context.forward(Record(product, views, timestamp))
        self.context.commit()


class PrintProcessor(Processor[int, int, None, None]):
    """Writes the counts to the log."""

    def process(self, record: Record[int, int]) -> None:
        log.info("Product %d has %d views", record.key, record.value)


class PopularProductEmailAlert(Processor[int, int, None, None]):
    """Sends an e-mail about a product."""

    def __init__(self, recipient: str, server: tuple[str, int]) -> None:
        self.recipient = recipient
        self.server = server

    def process(self, record: Record[int, int]) -> None:
        message = EmailMessage()
        message["From"] = "headrace@localhost"
        message["To"] = self.recipient
        message["Subject"] = f"Product {record.key} has {record.value} views"
        with smtplib.SMTP(*self.server, timeout=10) as smtp:
            smtp.send_message(message)


def counting() -> Topology:
    topology = Topology()
    topology.add_source("SOURCE", "logs", key=int, value=str, timestamp_extractor=RefuseFuture())
    topology.add_processor("PRODUCT_COUNTER", ProductCounter, "SOURCE")
    topology.add_state_store(counts, "PRODUCT_COUNTER")
    topology.add_processor("PRINT", PrintProcessor, "PRODUCT_COUNTER")
    topology.add_sink("SINK_COUNTER", "counter_topic", "PRODUCT_COUNTER", key=int, value=int)
    return topology


def alerting(server: tuple[str, int]) -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream("ProductViewsTopic", key=int, value=str)
        .peek(check)
        .group_by_key()
        .count(materialized="ProductViewCounts")
        # With a cache a count may go from 998 to 1003, and this is never true: see `alert_app`.
        .filter(lambda _product, views: views == POPULAR)
        .to_stream()
        .filter(lambda _product, views: views is not None)
        .process(lambda: PopularProductEmailAlert("alerts@yourcompany.com", server))
    )
    return builder.build()


app = KafkaStreams(
    counting(),
    application_id="streams-example",
    deserialization_exception_handler="continue",
    processing_exception_handler="continue",
    errors_dead_letter_queue_topic_name="product-views-dead",
)

alert_app = KafkaStreams(
    alerting(MAIL_SERVER),
    application_id="product-views-alert",
    statestore_cache_max_bytes=0,  # each count is forwarded, 1,000 too
    deserialization_exception_handler="continue",
    processing_exception_handler="continue",
    errors_dead_letter_queue_topic_name="product-views-dead",
)

if __name__ == "__main__":
    raise SystemExit(app.run())
