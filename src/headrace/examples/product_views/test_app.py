"""Counts, reports, alerts to a real SMTP server, and the fate of bad input."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import httpx
import pytest

from headrace import KafkaStreams
from headrace.examples.checking import Fate, fates_of, in_process, on_driver
from headrace.examples.feeding import FeedRecord
from headrace.examples.product_views.app import alert_app, alerting, app
from headrace.examples.product_views.feed import TOPICS, feed
from headrace.examples.product_views.mail_server import mail_server
from headrace.examples.serving import answering
from headrace.queries import QueryClient

GOOD = FeedRecord("logs", 7, "Firefox", 1_500_000_000_000)


@pytest.fixture
def mails() -> list[str]:
    """The mails that the server has taken."""
    return []


@pytest.fixture
def smtp(mails: list[str]) -> Iterator[tuple[str, int]]:
    """The address of a mail server."""
    with mail_server(("127.0.0.1", 0), mails.append) as address:
        yield address


def views(number: int) -> Iterator[FeedRecord]:
    for _ in range(number):
        yield GOOD._replace(topic="ProductViewsTopic")


def alerts_to(address: tuple[str, int]) -> KafkaStreams:
    return KafkaStreams(alerting(address), alert_app.config)


def test_the_nodes_have_the_names_of_the_document() -> None:
    assert (
        str(app.topology.describe())
        == """\
Topologies:
   Sub-topology: 0
    Source: SOURCE (topics: [logs])
      --> PRODUCT_COUNTER
    Processor: PRODUCT_COUNTER (stores: [Counts])
      --> PRINT, SINK_COUNTER
      <-- SOURCE
    Processor: PRINT (stores: [])
      --> none
      <-- PRODUCT_COUNTER
    Sink: SINK_COUNTER (topic: counter_topic)
      <-- PRODUCT_COUNTER

"""
    )


def test_the_counts_in_the_topic_are_longs() -> None:
    with on_driver(app) as run:
        run.write([GOOD, GOOD._replace(timestamp=GOOD.timestamp + 1000)])

        topic = run.driver.create_output_topic("counter_topic", key=bytes, value=bytes)
        assert topic.read_key_values_to_list()[-1] == ((7).to_bytes(8), (2).to_bytes(8))


def test_counts_are_kept_in_the_store_and_reported_every_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    with on_driver(app) as run:
        run.write([GOOD])  # stream time begins, and the first second
        run.read("counter_topic")
        run.write(GOOD._replace(key=key, timestamp=GOOD.timestamp + 999) for key in (7, 9))
        assert run.read("counter_topic") == []
        assert dict(run.driver.get_key_value_store("Counts").all()) == {7: 2, 9: 1}

        run.write([GOOD._replace(timestamp=GOOD.timestamp + 1000)])
        assert [(each.key, each.value) for each in run.read("counter_topic")] == [(7, 3), (9, 1)]
    assert "Product 7 has 3 views" in caplog.text


def test_a_popular_product_is_worth_one_e_mail(smtp: tuple[str, int], mails: list[str]) -> None:
    with on_driver(alerts_to(smtp)) as run:
        run.write(views(999))
        assert mails == []

        run.write(views(2))
    (message,) = mails
    assert "To: alerts@yourcompany.com" in message
    assert "Subject: Product 7 has 1000 views" in message


def test_with_a_cache_the_thousandth_view_may_pass_unseen(
    smtp: tuple[str, int], mails: list[str]
) -> None:
    cached = KafkaStreams(
        alerts_to(smtp).topology, alert_app.config, statestore_cache_max_bytes=1 << 20
    )
    with on_driver(cached, commit_each_record=False) as run:
        run.write(views(998))
        run.driver.commit()
        run.write(views(5))
        run.driver.commit()

        assert run.driver.get_key_value_store("ProductViewCounts").get(7) == 1003
    assert mails == []


def test_bad_input_is_counted_and_kept() -> None:
    key, oldest = GOOD._replace(key=b"\x07"), GOOD._replace(timestamp=0)

    assert fates_of(app, GOOD, key=key, oldest=oldest) == {
        "broken": Fate.DEAD_LETTER,
        "missing fields": Fate.PROCESSED,  # any text is the name of a browser
        "null key": Fate.DEAD_LETTER,
        "tombstone": Fate.DEAD_LETTER,
        "duplicate": Fate.PROCESSED,
        "late": Fate.PROCESSED,
        "future": Fate.DEAD_LETTER,
        "key": Fate.DEAD_LETTER,
        "oldest": Fate.PROCESSED,
    }


def test_bad_views_of_the_alert_are_counted_and_kept() -> None:
    good = next(views(1))

    assert fates_of(alert_app, good, key=good._replace(key=b"\x07")) == {
        "broken": Fate.DEAD_LETTER,
        "missing fields": Fate.PROCESSED,  # any text is the name of a browser
        "null key": Fate.DEAD_LETTER,
        "tombstone": Fate.DEAD_LETTER,
        "duplicate": Fate.PROCESSED,
        "late": Fate.PROCESSED,  # no step looks at the time
        "future": Fate.PROCESSED,
        "key": Fate.DEAD_LETTER,
    }


def test_a_view_from_the_future_does_not_hold_the_reports_back() -> None:
    with on_driver(app, initial_wall_clock_time=GOOD.timestamp) as run:
        run.write([GOOD, GOOD._replace(timestamp=GOOD.timestamp * 2)])
        run.read("counter_topic")
        run.write([GOOD._replace(timestamp=GOOD.timestamp + 1000)])

        assert [(each.key, each.value) for each in run.read("counter_topic")] == [(7, 2)]


def test_end_to_end_the_last_report_has_all_views(tmp_path: Path) -> None:
    records = [*islice(feed(), 200)]
    with in_process(app, TOPICS, tmp_path) as run:
        run.write(records)
        after = records[-1].timestamp + 1000
        ends = [
            FeedRecord("logs", 99, "Chrome", after, partition) for partition in (0, 1)
        ]  # a later view in each partition: time has passed there
        run.write(ends)

        last = {each.key: each.value for each in run.read("counter_topic")}
        del last[99]
    assert last == Counter(record.key for record in records)


def test_end_to_end_the_store_is_asked_from_python_and_over_http(tmp_path: Path) -> None:
    records = [*islice(feed(), 50)]
    counts = Counter(record.key for record in records)
    with in_process(app, TOPICS, tmp_path) as run:
        run.write(records)
        with (
            answering(run.app, 1, first_port=0) as (instance,),
            QueryClient(instance.url, program=app) as client,
        ):
            assert dict(client.store("Counts").all()) == counts
            product, views = counts.most_common(1)[0]
            assert httpx.get(f"{instance.url}/v1/stores/Counts/keys/{product}").json() == views
