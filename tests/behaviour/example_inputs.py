"""The applications of the examples and their variants, each with input that has results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from headrace import KafkaStreams, Topology
from headrace.examples.captcha import app as captcha
from headrace.examples.captcha import feed as captcha_feed
from headrace.examples.catalogue import find_example
from headrace.examples.connections import app as connections
from headrace.examples.connections.feed import second
from headrace.examples.delivery_reports import feed as delivery_reports
from headrace.examples.exactly_once.app import bookings
from headrace.examples.exactly_once.feed import feed as payments
from headrace.examples.feeding import FeedRecord
from headrace.examples.instances.app import app as instances
from headrace.examples.instances.feed import feed as events
from headrace.examples.product_views.app import app as product_views
from headrace.examples.reprocess import app as reprocess
from headrace.examples.reprocess.feed import feed as lines
from headrace.examples.sms_parts.app import app as sms_parts
from headrace.examples.sms_parts.feed import feed as parts
from headrace.examples.sms_parts.slide import topology as slide
from headrace.examples.windows.app import app as windows
from headrace.examples.windows.feed import EIGHT, GRACE
from headrace.examples.windows.feed import feed as windows_feed
from headrace.examples.words import joins, tables
from headrace.examples.words.feed import feed as words

_START = 1_700_000_000_000
_NOW = 1_800_000_000_000
"""A time of day after all records: some examples refuse those of the future."""
_RECORDS = 60
_SLIDES = len(delivery_reports.slides()) + len(delivery_reports.REPORTS)
"""The records of the slides. Later ones come through two tasks in any order, within a batch."""


@dataclass(frozen=True)
class Input:
    """The input of an application, step by step."""

    app: KafkaStreams
    steps: tuple[list[FeedRecord] | str, ...]
    """Records that one batch takes, and how far the clock advances."""
    results: frozenset[str]
    """The topics that have records at the end."""
    now: int = _NOW
    """The time of day at the start."""


def inputs() -> dict[str, Input]:
    """Return the applications by name."""
    return {**dict(_plain()), **_special(), **_tables_and_joins()}


def _plain() -> Iterable[tuple[str, Input]]:
    """Yield the examples whose feed has all that they need."""
    for name, results in _RESULTS.items():
        example = find_example(name)
        count = _SLIDES if name == "delivery-reports" else _RECORDS
        records = [*islice(example.module("feed").feed(), count)]
        app: KafkaStreams = example.module("app").app
        yield name, _input(app, *_batches(records), results=results.split())


_RESULTS = {
    "greetings": "greetings_uppercase greetings_letters greetings_words greetings-dead",
    "words": "words-count words-reduced words-aggregated words-dead",
    "orders": "general-orders-count restaurant-orders-count orders-dead",
    "stock-trades": "stockstats-out latest-prices",
    "music": "chart charts-by-genre",
    "movies": "average-ratings rated-movies",
    "user-views": "user-view-counts",
    "send-responses": "mt-messages",
    "delivery-reports": "mt-messages",
}
"""The examples whose feed alone has results, with the topics of those."""


def _batches(records: list[FeedRecord]) -> list[list[FeedRecord]]:
    """Return records in batches whose times ascend: tasks take those of one time in any order."""
    batches: list[list[FeedRecord]] = [[]]
    for record in records:
        if batches[-1] and record.timestamp <= batches[-1][-1].timestamp:
            batches.append([])
        batches[-1].append(record)
    return batches


def _special() -> dict[str, Input]:
    grace = [[FeedRecord("window-words", "A", "Apple", EIGHT + time)] for time in GRACE]
    closing = [
        [FeedRecord("window-words", "A", "Apple", EIGHT + time)] for time in (75_000, 59_999)
    ]
    tickets = [each for each in windows_feed() if each.topic == "tickets"]
    beats = [step for number in range(1, 12) for step in ("1s", second(number))]
    verified = [captcha_feed.event("a", 0, captcha_feed.VERIFIED)]
    actions = [captcha_feed.event(each, at) for at in range(6) for each in "ab"]
    twice = [*payments()]
    views = [
        FeedRecord("logs", key, "Chrome", _START + at)
        for at, key in ((0, 1), (400, 2), (900, 1), (1_000, 1), (2_100, 2))
    ]
    counts = {"ask-captcha", "captchaStream"}
    return {
        "windows": _input(
            windows,
            *grace,
            *closing,
            tickets,
            results={"with-grace-results", "sliding-counts", "tickets-per-day", "windows-dead"},
        ),
        "captcha": _input(
            captcha.app,
            verified,
            [*actions, *captcha_feed.printed()],
            results={*counts, "browser-windows"},
        ),
        "captcha global": _input(captcha.global_app, verified, actions, results=counts),
        "captcha wall clock": _input(
            captcha.wall_clock_app,
            verified,
            actions,
            results={*counts, "browser-windows"},
            now=_START,
        ),
        "product-views": _input(product_views, views, results={"counter_topic"}),
        "connections": _input(
            connections.app, *beats, results={"connection-deployment-scheme"}, now=_START
        ),
        "sms-parts": _input(
            sms_parts,
            [*parts()],
            "61m",
            results={"incoming-messages", "incomplete-messages", "incoming-msg-parts-dead"},
            now=_START,
        ),
        "sms-parts slide": _input(
            KafkaStreams(slide(), sms_parts.config), [*parts()], results={"incoming-messages"}
        ),
        "instances": _input(instances, [*events()], results={"event-counts"}),
        **{
            f"reprocess {version}": _input(
                reprocess.word_count(version), [*lines()], results={f"word-counts-{version}"}
            )
            for version in ("v1", "v2")
        },
        "exactly-once": _input(bookings(), twice, results={"booked-payments"}),
        "at-least-once": _input(bookings("at_least_once"), twice, results={"booked-payments"}),
        "exactly-once without duplicates": _input(
            bookings(drops_duplicates=True),
            twice,
            twice,
            results={"booked-payments", "revenue-by-account", "payments-dead"},
        ),
    }


def _tables_and_joins() -> dict[str, Input]:
    alphabets = _texts("alphabets", 0, A="A is the first letter.", B="B is the second letter.")
    abbreviations = _texts("alphabets_abbreviations", 1, A="Apple", B="Bus", C="Cat")
    # A later record of each partition closes the windows of joins.
    later = _texts("alphabets_abbreviations", 60_000, **dict.fromkeys("ABCDEF", "later"))
    letters = [
        FeedRecord("letters", number, letter, _START) for number in range(4) for letter in "AB"
    ]

    def joined(topology: Topology, *names: str) -> Input:
        app = KafkaStreams(topology, application_id="joins")
        results = {f"{names[0]}-{kind}" for kind in names[1:]}
        return _input(app, alphabets, abbreviations, later, results=results)

    return {
        "words table": _input(tables.words_table(), [*words()], results={"words-latest"}),
        "words global table": _input(
            tables.words_global_table(), [*words()], letters, results={"letters-spelled"}
        ),
        "joins stream table": joined(joins.stream_table(), "stream-table", "join", "left-join"),
        "joins stream global": joined(
            joins.stream_global_table(), "stream-global", "join", "left-join"
        ),
        "joins table table": joined(
            joins.table_table(), "table-table", "join", "left-join", "outer-join"
        ),
        "joins stream stream": joined(
            joins.stream_stream(), "stream-stream", "join", "left-join", "outer-join"
        ),
    }


def _texts(topic: str, after: int, **texts: str) -> list[FeedRecord]:
    return [FeedRecord(topic, key, text, _START + after) for key, text in texts.items()]


def _input(
    app: KafkaStreams, *steps: list[FeedRecord] | str, results: Iterable[str], now: int = _NOW
) -> Input:
    return Input(app, steps, frozenset(results), now)
