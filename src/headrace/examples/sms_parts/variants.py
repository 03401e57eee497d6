"""The same parts, put together as the slide does it."""

from __future__ import annotations

from headrace.examples.sms_parts.feed import PER_SECOND, TOPICS, feed
from headrace.examples.variants import Variant

VARIANTS = {"slide": Variant("slide:app", TOPICS, feed, PER_SECOND)}
