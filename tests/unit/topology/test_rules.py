"""The rewrites of the graph: program in, `describe()` out."""

from __future__ import annotations

import re
from textwrap import dedent

import pytest

from headrace import JoinWindows, KStream, StreamsBuilder, StreamsConfig
from headrace.topology.lower import OPTIMIZATIONS, TopologyDefaults, lower, resolve


def described(builder: StreamsBuilder, *optimizations: str) -> str:
    """Return edges of a program, one node per line: ``parent > child``."""
    config = StreamsConfig(
        application_id="app", topology_optimization=",".join(optimizations) or "none"
    )
    lines = []
    for subtopology in builder.build(config).describe().subtopologies:
        for node in subtopology.nodes:
            lines.append(f"{subtopology.id}: {node.name} > {', '.join(node.successors) or '.'}")
    return "\n".join(lines)


def text(drawn: str) -> str:
    return dedent(drawn).strip("\n")


def two_streams_of_one_topic() -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).filter(lambda *_: True, name="filter").to(
        "a", name="a"
    )
    builder.stream("in", key=str, value=int).to("b", name="b")
    return builder


def test_streams_of_the_same_topics_share_one_source() -> None:
    assert described(two_streams_of_one_topic()) == text(
        """
        0: KSTREAM-SOURCE-0000000000 > filter, b
        0: filter > a
        0: a > .
        0: b > .
        """
    )


def test_the_same_topics_in_another_order_are_the_same() -> None:
    builder = StreamsBuilder()
    builder.stream(["x", "y"], key=str, value=int).to("a", name="a")
    builder.stream(["y", "x"], key=str, value=int).to("b", name="b")

    assert described(builder) == text(
        """
        0: KSTREAM-SOURCE-0000000000 > a, b
        0: a > .
        0: b > .
        """
    )


def test_streams_of_different_topics_stay_apart() -> None:
    builder = StreamsBuilder()
    builder.stream("x", key=str, value=int).to("a", name="a")
    builder.stream("y", key=str, value=int).to("b", name="b")

    assert described(builder) == text(
        """
        0: KSTREAM-SOURCE-0000000000 > a
        0: a > .
        1: KSTREAM-SOURCE-0000000002 > b
        1: b > .
        """
    )


def counted_twice() -> StreamsBuilder:
    builder = StreamsBuilder()
    keyed = builder.stream("in", key=str, value=int, name="source").select_key(
        lambda key, _: key, key=str, name="key"
    )
    keyed.group_by_key().count(materialized="first", name="one")
    keyed.filter(lambda *_: True, name="filter").group_by_key().count(
        materialized="second", name="two"
    )
    return builder


def test_every_grouping_has_its_own_repartition() -> None:
    assert described(counted_twice()) == text(
        """
        0: source > key
        0: key > first-repartition-filter, filter
        0: filter > second-repartition-filter
        0: first-repartition-filter > first-repartition-sink
        0: second-repartition-filter > second-repartition-sink
        0: first-repartition-sink > .
        0: second-repartition-sink > .
        1: first-repartition-source > one
        1: one > .
        2: second-repartition-source > two
        2: two > .
        """
    )


def test_merged_repartitions_move_up_to_the_step_that_changed_the_key() -> None:
    assert described(counted_twice(), "merge.repartition.topics") == text(
        """
        0: source > key
        0: key > first-repartition-filter
        0: first-repartition-filter > first-repartition-sink
        0: first-repartition-sink > .
        1: first-repartition-source > filter, one
        1: filter > two
        1: one > .
        1: two > .
        """
    )


def test_a_step_that_changes_values_keeps_its_repartition_where_it_is() -> None:
    builder = StreamsBuilder()
    keyed = builder.stream("in", key=str, value=int, name="source").select_key(
        lambda key, _: key, key=str, name="key"
    )
    mapped = keyed.map_values(lambda value: value, value=int, name="map")
    mapped.group_by_key().count(materialized="store", name="count")

    assert described(builder, "merge.repartition.topics") == described(builder)


def test_repartitions_below_a_merge_of_two_key_changes_are_the_merges() -> None:
    builder = StreamsBuilder()
    one, two = (
        builder.stream(topic, key=str, value=int, name=topic).select_key(
            lambda key, _: key, key=str, name=f"key-{topic}"
        )
        for topic in ("x", "y")
    )
    merged: KStream[str, int] = one.merge(two, name="merge")
    merged.group_by_key().count(materialized="first", name="one")
    merged.group_by_key().count(materialized="second", name="two")

    assert described(builder, "merge.repartition.topics") == text(
        """
        0: x > key-x
        0: y > key-y
        0: key-x > merge
        0: key-y > merge
        0: merge > first-repartition-filter
        0: first-repartition-filter > first-repartition-sink
        0: first-repartition-sink > .
        1: first-repartition-source > one, two
        1: one > .
        1: two > .
        """
    )


def test_an_explicit_repartition_is_never_merged() -> None:
    builder = StreamsBuilder()
    keyed = builder.stream("in", key=str, value=int).select_key(lambda k, _: k, key=str)
    keyed.repartition(name="a").to("a")
    keyed.repartition(name="b").to("b")

    assert described(builder, "merge.repartition.topics") == described(builder)


@pytest.mark.parametrize("asked", [(), tuple(OPTIMIZATIONS)])
def test_a_settled_graph_is_settled_again_without_change(asked: tuple[str, ...]) -> None:
    defaults = TopologyDefaults(optimizations=frozenset(asked))
    graph = counted_twice()._graph.build()

    once = lower(graph, defaults)
    twice = lower(resolve(graph, defaults), defaults)

    assert str(once.description) == str(twice.description)


def reusing(builder: StreamsBuilder) -> dict[str, tuple[str | None, object]]:
    """Return the changelog of each store, and whether it is written."""
    asked = TopologyDefaults(optimizations=frozenset({"reuse.ktable.source.topics"}))
    stores = resolve(builder._graph.build(), asked).stores
    return {name: (store.changelog, store.logging) for name, store in stores.items()}


def test_a_table_may_use_its_topic_as_changelog() -> None:
    builder = StreamsBuilder()
    builder.table("in", key=str, value=int, materialized="table")

    assert reusing(builder) == {"table": ("in", False)}


def test_a_stream_read_as_a_table_keeps_its_changelog() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("a.*"), key=str, value=int).to_table(materialized="made")
    keyed = builder.stream("other", key=str, value=int).select_key(lambda k, _: k, key=str)
    keyed.to_table(materialized="moved")

    assert reusing(builder) == {"made": (None, True), "moved": (None, True)}


def test_a_stream_joined_with_itself_may_use_one_store() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int, name="source")
    joined = stream.join(stream, lambda a, b: a + b, JoinWindows(5), value=int, name="self")
    joined.to("out", name="sink")

    assert described(builder, "single.store.self.join") == text(
        """
        0: source > self-this-windowed
        0: self-this-windowed > self-merge
        0: self-merge > sink
        0: sink > .
        """
    )
    assert described(builder).count("\n") == 6
