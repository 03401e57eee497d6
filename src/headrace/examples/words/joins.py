"""The ten joins of the slides, two or three in each program."""

from __future__ import annotations

from functools import partial

from msgspec import Struct

from headrace import (
    GlobalKTable,
    JoinWindows,
    KafkaStreams,
    KStream,
    KTable,
    StreamsBuilder,
    Topology,
)
from headrace.examples.check_time import CheckTime
from headrace.examples.words.model import ERRORS, check, check_key


class Alphabet(Struct):
    """An abbreviation and the description of its letter; None is the side that is missing."""

    abbreviation: str | None
    description: str | None


def _stream(builder: StreamsBuilder, topic: str) -> KStream[str, str]:
    """Return a stream; a record that no join can use becomes a dead letter."""
    return builder.stream(topic, key=str, value=str).peek(check)


def _in_time(builder: StreamsBuilder, topic: str) -> KStream[str, str]:
    """Return a stream without records for which the windows of a join are closed."""
    check_time = partial(CheckTime, f"{topic}-times", 5_000, advance=1)
    return _stream(builder, topic).process_values(check_time, value=str)


def _table(builder: StreamsBuilder, topic: str) -> KTable[str, str]:
    """Return a table; `builder.table` would leave a record without a key out, and only count it."""
    stream = builder.stream(topic, key=str, value=str).peek(check_key)
    return stream.to_table(materialized=f"{topic}-store")


def stream_table() -> Topology:
    """Return the joins of a KStream with a KTable."""
    builder = StreamsBuilder()
    abbreviations = _stream(builder, "alphabets_abbreviations")
    alphabets = _table(builder, "alphabets")
    abbreviations.join(alphabets, Alphabet).to("stream-table-join")
    abbreviations.left_join(alphabets, Alphabet).to("stream-table-left-join")
    return builder.build()


def stream_global_table() -> Topology:
    """Return the joins of a KStream with a GlobalKTable."""
    builder = StreamsBuilder()
    abbreviations = _stream(builder, "alphabets_abbreviations")
    alphabets: GlobalKTable[str, str] = builder.global_table("alphabets", key=str, value=str)
    abbreviations.join(alphabets, Alphabet, on=lambda key, _: key).to("stream-global-join")
    abbreviations.left_join(alphabets, Alphabet, on=lambda key, _: key).to(
        "stream-global-left-join"
    )
    return builder.build()


def table_table() -> Topology:
    """Return the joins of a KTable with a KTable."""
    builder = StreamsBuilder()
    abbreviations = _table(builder, "alphabets_abbreviations")
    alphabets = _table(builder, "alphabets")
    abbreviations.join(alphabets, Alphabet).to_stream().to("table-table-join")
    abbreviations.left_join(alphabets, Alphabet).to_stream().to("table-table-left-join")
    abbreviations.outer_join(alphabets, Alphabet).to_stream().to("table-table-outer-join")
    return builder.build()


def stream_stream() -> Topology:
    """Return the joins of a KStream with a KStream, whose records are at most 5 s apart."""
    builder = StreamsBuilder()
    abbreviations = _in_time(builder, "alphabets_abbreviations")
    alphabets = _in_time(builder, "alphabets")
    within = JoinWindows("5s")
    abbreviations.join(alphabets, Alphabet, within).to("stream-stream-join")
    abbreviations.left_join(alphabets, Alphabet, within).to("stream-stream-left-join")
    abbreviations.outer_join(alphabets, Alphabet, within).to("stream-stream-outer-join")
    return builder.build()


stream_table_app = KafkaStreams(stream_table(), application_id="words-stream-table", **ERRORS)
stream_global_table_app = KafkaStreams(
    stream_global_table(), application_id="words-stream-global-table", **ERRORS
)
table_table_app = KafkaStreams(table_table(), application_id="words-table-table", **ERRORS)
stream_stream_app = KafkaStreams(stream_stream(), application_id="words-stream-stream", **ERRORS)
