"""`describe()` as data; the conformance suite compares its text with Kafka's."""

from __future__ import annotations

import re
from functools import partial

from headrace import RecordContext, StreamsBuilder, Topology
from headrace.topology.describe import DescribedProcessor, DescribedSink, DescribedSource


def choose(key: str, value: int, context: RecordContext) -> str:
    return "out"


def test_a_description_has_the_nodes_with_topics_stores_and_neighbours() -> None:
    builder = StreamsBuilder()
    stream = builder.stream(["a", "b"], key=str, value=int, name="source")
    stream.to_table(materialized="table", name="table").to_stream(name="changes").to(
        "out", name="sink"
    )

    [subtopology] = builder.build().describe().subtopologies

    assert subtopology.nodes == (
        DescribedSource("source", (), ("table",), ("a", "b")),
        DescribedProcessor("table", ("source",), ("changes",), ("table",)),
        DescribedProcessor("changes", ("table",), ("sink",), ()),
        DescribedSink("sink", ("changes",), (), "out"),
    )


def test_patterns_and_functions_are_shown_by_name() -> None:
    topology = Topology().add_source("source", re.compile("a.*"))
    topology.add_sink("named", choose, "source")
    topology.add_sink("unnamed", partial(choose, "k"), "source")

    text = str(topology.describe())

    assert "(topics: a.*)" in text
    assert "Sink: named (extractor class: choose)" in text
    assert "Sink: unnamed (extractor class: functools.partial(<function choose" in text


def test_describing_needs_no_serdes() -> None:
    builder = StreamsBuilder()
    builder.stream("in").map_values(lambda value: value).to("out")

    assert "Sink: KSTREAM-SINK-0000000002 (topic: out)" in str(builder.build().describe())


def test_a_topology_shows_its_size() -> None:
    topology = Topology().add_source("source", "in")

    assert repr(topology) == "<Topology of 1 steps>"
