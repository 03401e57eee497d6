"""The checks of a graph before it can run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace import Materialized, StreamsBuilder, StreamsConfig, TopologyError
from headrace.topology.graph import TopologyGraph
from headrace.topology.validate import check_partition_counts


def two_repartitions(one: int | None, other: int | None) -> TopologyGraph:
    """Return a graph of two repartitions that are to be joined."""
    builder = StreamsBuilder()
    streams = [
        builder.stream(topic, key=str, value=int).repartition(name=topic, partitions=count)
        for topic, count in (("x", one), ("y", other))
    ]
    together = frozenset(stream.node for stream in streams)
    return replace(builder._graph.build(), copartitions=(together,))


def test_repartitions_that_are_joined_must_ask_for_the_same_number() -> None:
    with pytest.raises(TopologyError) as caught:
        check_partition_counts(two_repartitions(2, 3))

    assert str(caught.value) == (
        "Topics that are joined must have the same number of partitions, but they ask for "
        "{'x-repartition': 2, 'y-repartition': 3}. "
        "Give their `repartition` steps the same `partitions=`."
    )


@pytest.mark.parametrize(("one", "other"), [(2, 2), (2, None), (None, None)])
def test_a_number_that_is_left_open_fits_any(one: int | None, other: int | None) -> None:
    check_partition_counts(two_repartitions(one, other))


def built_with_explicit_names(builder: StreamsBuilder) -> object:
    config = StreamsConfig(application_id="a", ensure_explicit_internal_resource_naming=True)
    return builder.build(config)


def test_generated_names_may_be_forbidden_and_are_all_listed() -> None:
    builder = StreamsBuilder()
    keyed = builder.stream("in", key=str, value=int).select_key(lambda k, _: k, key=str)
    keyed.group_by_key().count()
    keyed.repartition()

    with pytest.raises(TopologyError) as caught:
        built_with_explicit_names(builder)

    assert str(caught.value) == (
        "`ensure_explicit_internal_resource_naming` is set, but these names were generated: "
        "store 'KSTREAM-AGGREGATE-STATE-STORE-0000000002', "
        "topic 'KSTREAM-AGGREGATE-STATE-STORE-0000000002-repartition', "
        "topic 'KSTREAM-REPARTITION-0000000007-repartition'. "
        "Name them with `materialized=` and `name=`."
    )


def test_given_names_pass() -> None:
    builder = StreamsBuilder()
    keyed = builder.stream("in", key=str, value=int).select_key(lambda k, _: k, key=str)
    keyed.group_by_key(name="grouped").count(materialized="counts")
    keyed.repartition(name="moved")
    builder.table("t", key=str, value=int, materialized=Materialized("table"))

    built_with_explicit_names(builder)


def test_a_table_counts_as_in_kafka_although_it_may_not_be_stored() -> None:
    builder = StreamsBuilder()
    builder.table("t", key=str, value=int).to_stream().to("out")

    with pytest.raises(TopologyError, match="store 't-STATE-STORE-0000000000'"):
        built_with_explicit_names(builder)
