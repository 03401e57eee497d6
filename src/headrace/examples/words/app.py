"""Words by their first letter: count, reduce and aggregate."""

from __future__ import annotations

from headrace import KafkaStreams, Materialized, StreamsBuilder
from headrace.examples.words.model import ERRORS, AlphabetWordAggregate, check


def joined(words: str, word: str) -> str:
    """Return the words so far and the next, with a hyphen between them."""
    return f"{words}-{word}"


def add(letter: str, word: str, words: AlphabetWordAggregate) -> AlphabetWordAggregate:
    """Return the aggregate with one more word."""
    return words.update_new_events(letter, word)


builder = StreamsBuilder()
by_letter = builder.stream("words", key=str, value=str).peek(check).group_by_key()

by_letter.count(name="count-per-alphabet").to_stream().to("words-count")
by_letter.reduce(joined, materialized="reduced-words").to_stream().to("words-reduced")
(
    by_letter.aggregate(
        AlphabetWordAggregate,
        add,
        materialized=Materialized("aggregated-words", key=str, value=AlphabetWordAggregate),
    )
    .to_stream()
    .to("words-aggregated")
)

app = KafkaStreams(
    builder.build(),
    application_id="words-app",
    **ERRORS,
)

if __name__ == "__main__":
    raise SystemExit(app.run())
