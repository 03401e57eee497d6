"""The source of a topic that no source names."""

from __future__ import annotations

import re

import pytest

from headrace import StreamsBuilder, TopologyError
from headrace.config import StreamsConfig
from headrace.config.topology_defaults import topology_defaults
from headrace.topology.nodes import SourceNode
from headrace.topology.sources import source_matching


def sources(*patterns: str | re.Pattern[str]) -> list[SourceNode]:
    builder = StreamsBuilder()
    for pattern in patterns:
        builder.stream(pattern, key=str, value=int).foreach(lambda _k, _v: None)
    lowered = builder.build().lowered(topology_defaults(StreamsConfig()))
    return [node for node in lowered.graph.nodes.values() if isinstance(node, SourceNode)]


def test_a_topic_is_read_by_the_source_whose_pattern_matches_its_whole_name() -> None:
    named, first, second = sources("named", re.compile("a.*"), re.compile(".*b"))

    found = [source_matching(topic, [named, first, second]) for topic in ("ax", "xb", "xa", "c")]

    assert found == [first, second, None, None]


def test_a_topic_that_two_patterns_match_is_refused() -> None:
    with pytest.raises(TopologyError) as caught:
        source_matching("ab", sources(re.compile("a.*"), re.compile("x.*"), re.compile(".*b")))

    assert str(caught.value) == (
        "Topic 'ab' matches the pattern 'a.*' of source 'KSTREAM-SOURCE-0000000000' and the "
        "pattern '.*b' of source 'KSTREAM-SOURCE-0000000004', but a topic is read by one source. "
        "Make the patterns narrower, so that only one of them matches it, or use one pattern for "
        "both."
    )
