"""Count words: the smallest program that keeps state."""

from __future__ import annotations

import re

from headrace import KafkaStreams, StreamsBuilder


def words(line: str) -> list[str]:
    return re.findall(r"\w+", line.lower())


builder = StreamsBuilder()
(
    builder.stream("lines", key=str, value=str)
    .flat_map_values(words)
    .group_by(lambda _, word: word, key=str)
    .count(materialized="counts")
    .to_stream()
    .to("word-counts")
)

app = KafkaStreams(builder.build(), application_id="word-count")

if __name__ == "__main__":
    raise SystemExit(app.run())
