"""Ask a browser for a captcha after five actions, unless it has passed one.

``app`` looks browsers up in a table, ``global_app`` in a global table, and ``wall_clock_app`` is
``app`` with the time of processing instead of the time of the events.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from functools import partial
from typing import Any

from headrace import (
    KafkaStreams,
    KGroupedStream,
    KStream,
    StreamsBuilder,
    TimeWindows,
    Topology,
    WallclockTimestampExtractor,
    Windowed,
)
from headrace.examples.captcha.model import LogEvent
from headrace.examples.check_time import CheckTime

log = logging.getLogger(__name__)

ACTIONS = 5
SIZE, ADVANCE = 5_000, 2_000
"""How long a window is, and how far it is from the next one, in milliseconds."""


def by_browser(_key: str | None, event: LogEvent) -> tuple[str, int]:
    return event.browser_hash, 1


def is_verification(_key: str | None, event: LogEvent) -> bool:
    return "BrowserCaptchaVerified" in event.logger_name


def unless_verified(actions: int, verified: int | None) -> int:
    return actions if verified is None else 0


def ask(browser: str, _actions: int) -> None:
    log.info("Asking captcha for %s", browser)


def show_window(key: Windowed[str], count: int) -> None:
    start, end = clock(key.window.start), clock(key.window.end)
    log.info("Window [%s-%s] Browser:%s count=%d", start, end, key.key, count)


def clock(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%H:%M:%S}"


def ask_suspicious(counts: KStream[str, int]) -> None:
    """Ask the browsers whose count is high; the count of a verified browser is 0."""
    counts.filter(lambda _, count: count >= ACTIONS).peek(ask).to("ask-captcha")


def read_logs(
    builder: StreamsBuilder,
) -> tuple[KGroupedStream[str, int], KGroupedStream[str, int]]:
    """Return verifications and actions by browser; the former also go to ``captchaStream``."""
    check_time = partial(CheckTime, "log-times", SIZE, advance=ADVANCE)
    logs = builder.stream("logs", key=str, value=LogEvent)
    logs = logs.process_values(check_time, value=LogEvent)
    verified = logs.filter(is_verification).map(by_browser)
    verified.to("captchaStream")
    actions = logs.filter_not(is_verification).map(by_browser)
    return verified.group_by_key(), actions.group_by_key()


def with_table() -> Topology:
    builder = StreamsBuilder()
    verified, actions = read_logs(builder)
    verified_table = verified.reduce(lambda first, _: first, materialized="captchaStore")
    counts = actions.count(materialized="browserActionsCountStore")
    ask_suspicious(counts.left_join(verified_table, unless_verified).to_stream())
    (
        actions.windowed_by(TimeWindows(SIZE, advance=ADVANCE))
        .count(materialized="counterStore")
        .to_stream()
        .peek(show_window)
        .to("browser-windows")
    )
    return builder.build()


def with_global_table() -> Topology:
    builder = StreamsBuilder()
    _, actions = read_logs(builder)
    verified = builder.global_table(
        "captchaStream", key=str, value=int, materialized="captchaStreamStore"
    )
    ask_suspicious(
        actions.count(materialized="browserActionsCountStore")
        .to_stream()
        .left_join(verified, unless_verified, on=lambda browser, _: browser)
    )
    return builder.build()


ERRORS: dict[str, Any] = {
    "deserialization_exception_handler": "continue",
    "processing_exception_handler": "continue",
    "errors_dead_letter_queue_topic_name": "captcha-dead",
}

app = KafkaStreams(with_table(), application_id="captcha", **ERRORS)
global_app = KafkaStreams(with_global_table(), application_id="captcha-global", **ERRORS)
wall_clock_app = KafkaStreams(
    with_table(),
    application_id="captcha-wall-clock",
    default_timestamp_extractor=WallclockTimestampExtractor(),
    **ERRORS,
)

if __name__ == "__main__":
    raise SystemExit(app.run())
