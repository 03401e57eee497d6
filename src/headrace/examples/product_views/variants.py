"""The twin in the DSL, with many views and a mail server."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.examples.feeding import FeedRecord
from headrace.examples.product_views.app import MAIL_SERVER
from headrace.examples.product_views.feed import feed
from headrace.examples.product_views.mail_server import printing_mails
from headrace.examples.variants import Variant


def views() -> Iterator[FeedRecord]:
    """Yield the views of the feed, for the topic of the twin."""
    return (view._replace(topic="ProductViewsTopic") for view in feed())


VARIANTS = {
    "alert": Variant(
        "app:alert_app", {"ProductViewsTopic": 2}, views, 200, lambda: printing_mails(MAIL_SERVER)
    )
}
