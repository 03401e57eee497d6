"""The ten joins of the slides, two or three in each program."""

from __future__ import annotations

from msgspec import Struct

from headrace import GlobalKTable, JoinWindows, KStream, KTable, StreamsBuilder, Topology


class Alphabet(Struct):
    """An abbreviation and the description of its letter; None is the side that is missing."""

    abbreviation: str | None
    description: str | None


def _stream(builder: StreamsBuilder, topic: str) -> KStream[str, str]:
    return builder.stream(topic, key=str, value=str)


def _table(builder: StreamsBuilder, topic: str) -> KTable[str, str]:
    return builder.table(topic, key=str, value=str, materialized=f"{topic}-store")


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
    abbreviations = _stream(builder, "alphabets_abbreviations")
    alphabets = _stream(builder, "alphabets")
    within = JoinWindows("5s")
    abbreviations.join(alphabets, Alphabet, within).to("stream-stream-join")
    abbreviations.left_join(alphabets, Alphabet, within).to("stream-stream-left-join")
    abbreviations.outer_join(alphabets, Alphabet, within).to("stream-stream-outer-join")
    return builder.build()
