"""The same words as a KTable and as a GlobalKTable, each in a program of its own."""

from __future__ import annotations

from headrace import KafkaStreams, StreamsBuilder
from headrace.examples.words.model import ERRORS


def words_table() -> KafkaStreams:
    """Return the program with the KTable: the last word of each letter, if it is a long one."""
    builder = StreamsBuilder()
    words = builder.table("words", key=str, value=str, materialized="words-store")
    words.filter(lambda _, word: len(word) > 2).to_stream().to("words-latest")
    return KafkaStreams(builder.build(), application_id="words-ktable-app", **ERRORS)


def words_global_table() -> KafkaStreams:
    """Return the program with the GlobalKTable, which has every word at every task."""
    builder = StreamsBuilder()
    words = builder.global_table("words", key=str, value=str, materialized="words-global-store")
    letters = builder.stream("letters", key=int, value=str)
    spelled = letters.join(words, "{} as in {}".format, on=lambda _, letter: letter, value=str)
    spelled.to("letters-spelled")
    return KafkaStreams(builder.build(), application_id="words-global-app", **ERRORS)
