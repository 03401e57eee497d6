"""The same log, with a global table, and with the time of processing."""

from __future__ import annotations

from headrace.examples.captcha.feed import PER_SECOND, TOPICS, feed
from headrace.examples.variants import Variant

VARIANTS = {
    "global-table": Variant("app:global_app", {**TOPICS, "captchaStream": 2}, feed, PER_SECOND),
    "wall-clock": Variant("app:wall_clock_app", TOPICS, feed, PER_SECOND),
}
