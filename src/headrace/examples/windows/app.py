"""Every kind of window, and what each makes of the same records."""

from __future__ import annotations

from functools import partial

from headrace import (
    KafkaStreams,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from headrace.examples.check_time import DAY, CheckTime
from headrace.examples.windows.model import DayOfMovie, Ticket, check

MINUTE = 60_000


def sell(_movie: str, ticket: Ticket, day: DayOfMovie) -> DayOfMovie:
    """Return the day with one more ticket."""
    return DayOfMovie(day.tickets + 1, day.revenue + ticket.price)


builder = StreamsBuilder()
words = builder.stream("window-words", key=str, value=str).peek(check)
checked = words.process_values(partial(CheckTime, "word-times", MINUTE, grace=15_000), value=str)
by_letter = checked.group_by_key()

for name, windows in {
    "tumbling": TimeWindows("5s"),
    "hopping": TimeWindows("5s", advance="3s"),
    "with-grace": TimeWindows("60s", grace="15s"),
}.items():
    counts = by_letter.windowed_by(windows).count(materialized=f"{name}-store")
    counts.to_stream().to(f"{name}-counts")
    if name == "with-grace":
        final = counts.suppress(Suppressed.until_window_closes())
        final.to_stream().to("with-grace-results")
sliding = by_letter.windowed_by(SlidingWindows("5s")).count(materialized="sliding-store")
sliding.to_stream().to("sliding-counts")
sessions = by_letter.windowed_by(SessionWindows("5s")).count(materialized="session-store")
sessions.to_stream().to("session-counts")

tickets = builder.stream("tickets", key=str, value=Ticket).peek(check)
(
    tickets.process_values(partial(CheckTime, "ticket-times", DAY), value=Ticket)
    .group_by_key()
    .windowed_by(TimeWindows("1d"))
    .aggregate(DayOfMovie, sell, materialized="tickets-per-day-store")
    .to_stream()
    .to("tickets-per-day")
)

app = KafkaStreams(
    builder.build(),
    application_id="windows-app",
    deserialization_exception_handler="continue",
    processing_exception_handler="continue",
    errors_dead_letter_queue_topic_name="windows-dead",
)

if __name__ == "__main__":
    raise SystemExit(app.run())
