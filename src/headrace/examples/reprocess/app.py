"""Count words, in two versions: the second knows that `Streams` and `streams,` are one word."""

from __future__ import annotations

import re

from headrace import KafkaStreams, StreamsBuilder


def words_v1(line: str) -> list[str]:
    """Return the words of a line, split at blanks: the first version, with a bug."""
    return line.split()


def words_v2(line: str) -> list[str]:
    """Return the words of a line in small letters, without punctuation: the second version."""
    return re.findall(r"\w+", line.lower())


def check(_key: str | None, line: str | None) -> None:
    """Refuse a record without a line; its dead letter says why."""
    if line is None:
        msg = "The record has no line."
        raise ValueError(msg)


def word_count(version: str = "v1", *, name: str | None = None) -> KafkaStreams:
    """Return a version of the application; each has its own id, state and output topic.

    Args:
        version: ``"v1"`` or ``"v2"``.
        name: The end of its id and of its output topic; by default the version.
    """
    name = name or version
    builder = StreamsBuilder()
    (
        builder.stream("lines", key=str, value=str)
        .peek(check)
        .flat_map_values(words_v1 if version == "v1" else words_v2)
        .group_by(lambda _, word: word, key=str)
        .count(materialized="counts")
        .to_stream()
        .to(f"word-counts-{name}")
    )
    return KafkaStreams(
        builder.build(),
        application_id=f"word-count-{name}",
        deserialization_exception_handler="continue",
        processing_exception_handler="continue",
        errors_dead_letter_queue_topic_name="lines-dead",
    )


app = word_count()

if __name__ == "__main__":
    raise SystemExit(app.run())
