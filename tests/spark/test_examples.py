"""Examples on Spark that need topics or a web server of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import decode
from starlette.testclient import TestClient

from headrace import KafkaStreams, State
from headrace.brokers import TopicPartition, open_log
from headrace.brokers.sessions import Broker
from headrace.examples.captcha import app as captcha
from headrace.examples.captcha.feed import VERIFIED, event
from headrace.examples.feeding import Encoding, FeedRecord
from headrace.examples.intermediate_topic import feed as intermediate
from headrace.examples.intermediate_topic.app import app as intermediate_app
from headrace.examples.intermediate_topic.model import NamedView
from headrace.examples.orders import feed as orders
from headrace.examples.orders.app import app as orders_app
from headrace.examples.orders.web import web_of
from headrace.examples.product_views.app import alert_app, alerting
from headrace.examples.product_views.mail_server import mail_server
from headrace.examples.running import create_topics, topics_of
from tests.free_address import free_address
from tests.unique_names import unique
from tests.waiting import PATIENTLY, await_that

pytestmark = [pytest.mark.usefixtures("java"), pytest.mark.nightly("behaviour")]


def moved(app: KafkaStreams, folder: Path, servers: str | None) -> KafkaStreams:
    """Return an example with a log of this test, or with a name of its own on Kafka."""
    config = app.config.with_settings(
        state_dir=folder,
        bootstrap_servers=servers,
        application_id=unique(app.config.application_id or ""),
    )
    return KafkaStreams(app.topology, config)


def records_in(log: Broker, topic: str) -> list[bytes]:
    """Return the values in a topic."""
    names = [TopicPartition(topic, each) for each in range(log.partition_count(topic))]
    ends = log.end_offsets(names)
    return [
        record.value or b""
        for name in names
        for records in log.read(name, 0, ends[name])
        for record in records
    ]


def write(log: Broker, app: KafkaStreams, records: Iterable[FeedRecord]) -> None:
    partitions = {topic: log.partition_count(topic) for topic in log.list_topics()}
    log.append(map(Encoding(app, partitions).raw, records))


def test_four_tasks_share_the_slow_step_of_one_partition(
    tmp_path: Path, servers: str | None
) -> None:
    app = moved(intermediate_app, tmp_path, servers)
    with closing(open_log(app.config)) as log:
        create_topics(log, topics_of(app, intermediate.TOPICS))
        write(log, app, intermediate.feed())

        with app:
            await_that(
                lambda: len(records_in(log, "named-views")) == 99,
                "99 views with names",
                found=lambda: len(records_in(log, "named-views")),
            )
            app.close(PATIENTLY)

        named = [decode(each, type=NamedView) for each in records_in(log, "named-views")]
        assert [log.partition_count(each) for each in ("logs", "my-topic")] == [1, 4]
        assert {each.task for each in named} == {"1_0", "1_1", "1_2", "1_3"}
        assert len(records_in(log, "intermediate-topic-dead")) == 1
        for topic in (*intermediate.TOPICS, "named-views", "intermediate-topic-dead"):
            log.delete_topic(topic)  # the next test has topics of the same names


def test_an_application_runs_on_spark_as_long_as_the_web_application(tmp_path: Path) -> None:
    own = moved(orders_app, tmp_path, None)
    app = KafkaStreams(own.topology, own.config.with_settings(application_server=free_address()))
    with closing(open_log(app.config)) as log:
        create_topics(log, topics_of(app, orders.TOPICS))
        write(log, app, islice(orders.feed(), 5))

    here: Any = {"base_url": "http://127.0.0.1", "client": ("127.0.0.1", 50000)}
    with TestClient(web_of(app), **here) as web:
        assert app.state().is_running_or_rebalancing()
        counts = "/v1/orders/count/general_orders?location_id=store_1234"
        expected = '{"locationId":"store_1234","orderCount":1}'
        await_that(
            lambda: web.get(counts).text == expected, expected, found=lambda: web.get(counts).text
        )
    assert app.state() is State.NOT_RUNNING


@pytest.mark.parametrize(
    ("variant", "asked"), [(captcha.app, 0), (captcha.global_app, 1)], ids=["table", "global table"]
)
def test_a_global_table_may_ask_about_actions_of_the_batch_of_the_verification(
    variant: KafkaStreams, asked: int, tmp_path: Path
) -> None:
    app = moved(variant, tmp_path, None)
    with closing(open_log(app.config)) as log:
        for topic in ("logs", "captchaStream", "ask-captcha", "browser-windows"):
            log.create_topic(topic)
        write(log, app, [event("a", 0, VERIFIED), *(event("a", each) for each in range(1, 10))])

        with app:
            await_that(lambda: records_in(log, "captchaStream"), "a verification")
            write(log, app, [event(browser, each) for each in range(20, 25) for browser in "ab"])
            await_that(lambda: "b" in asked_in(log), "a question to the other browser")
            app.close(PATIENTLY)

        assert asked_in(log)["a"] == asked
        assert app.state() is State.NOT_RUNNING


def asked_in(log: Broker) -> Counter[str]:
    """Return how often each browser was asked, in the first partition."""
    name = TopicPartition("ask-captcha", 0)
    end = log.end_offsets([name])[name]
    return Counter(
        (record.key or b"").decode() for records in log.read(name, 0, end) for record in records
    )


def test_a_popular_product_is_worth_one_e_mail(tmp_path: Path, servers: str | None) -> None:
    mails: list[str] = []
    with mail_server(("127.0.0.1", 0), mails.append) as address:
        alerts = KafkaStreams(alerting(address), alert_app.config)
        app = moved(alerts, tmp_path, servers)
        view = FeedRecord("ProductViewsTopic", 7, "Firefox", 1_500_000_000_000)
        with closing(open_log(app.config)) as log:
            create_topics(log, topics_of(app, {"ProductViewsTopic": 2}))
            write(log, app, [view] * 1001)

            with app:
                await_that(lambda: mails, "an e-mail")
                await_that(lambda: app.lag() and not lag_of(app), "no lag", found=app.lag)
                app.close(PATIENTLY)
            for topic in ("ProductViewsTopic", "product-views-dead"):
                log.delete_topic(topic)  # the next test has topics of the same names

    (mail,) = mails
    assert "Subject: Product 7 has 1000 views" in mail


def lag_of(app: KafkaStreams) -> int:
    return sum(each.offset_lag for each in app.lag().values())
