"""Book payments; the guarantee decides whether a crash books some of them twice."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Literal

from headrace import KafkaStreams, StreamsBuilder
from headrace.examples.exactly_once.model import CheckPayment, DropDuplicates, Payment
from headrace.examples.refuse_future import RefuseFuture

SLOW = "slow"
"""The account whose payment takes long, the first time."""
WAIT_SECONDS = 120
"""How long it takes at most; the process is killed before."""


def linger(account: str, _payment: Payment) -> None:
    """Wait at the slow payment if a file is to be made, so that there is time for a crash."""
    path = os.environ.get("EXACTLY_ONCE_FILE")
    if account == SLOW and path is not None and not Path(path).exists():
        Path(path).touch()
        time.sleep(WAIT_SECONDS)


def bookings(
    guarantee: Literal["at_least_once", "exactly_once_v2"] = "exactly_once_v2",
    *,
    drops_duplicates: bool = False,
) -> KafkaStreams:
    """Return the application: it books each payment, and adds up the cents of each account.

    Args:
        guarantee: The setting ``processing.guarantee``.
        drops_duplicates: Whether a store remembers the ids of payments.
    """
    builder = StreamsBuilder()
    times = RefuseFuture()  # a payment from the future would make the store of ids forget them
    payments = builder.stream("payments", key=str, value=Payment, timestamp_extractor=times)
    payments = payments.process_values(CheckPayment, value=Payment)
    if drops_duplicates:
        payments = payments.process_values(DropDuplicates, value=Payment)
    payments = payments.peek(linger)
    payments.to("booked-payments")
    (
        payments.group_by_key()
        .aggregate(int, lambda _, payment, cents: cents + payment.cents, materialized="revenue")
        .to_stream()
        .to("revenue-by-account")
    )
    return KafkaStreams(
        builder.build(),
        application_id=f"bookings-{guarantee.replace('_', '-')}",
        processing_guarantee=guarantee,
        deserialization_exception_handler="continue",
        processing_exception_handler="continue",
        errors_dead_letter_queue_topic_name="payments-dead",
    )


def at_least_once() -> KafkaStreams:
    """Return the application without transactions: ``headrace run app.py:at_least_once``."""
    return bookings("at_least_once")


def exactly_once_v2() -> KafkaStreams:
    """Return the application with transactions: ``headrace run app.py:exactly_once_v2``."""
    return bookings("exactly_once_v2")


app = bookings()

if __name__ == "__main__":
    raise SystemExit(app.run())
