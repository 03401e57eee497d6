"""Generated names."""

from __future__ import annotations

import pytest

from headrace import Materialized, StreamsBuilder
from headrace.topology.naming import (
    changelog_topic,
    internal_topic,
    is_generated_stream_name,
    numbered,
)


def test_a_generated_name_has_ten_digits() -> None:
    assert numbered("KSTREAM-FILTER-", 7) == "KSTREAM-FILTER-0000000007"


@pytest.mark.parametrize(
    ("name", "generated"),
    [
        ("KSTREAM-FILTER-0000000007", True),
        ("KSTREAM-AGGREGATE-STATE-STORE-0000000001", True),
        ("KTABLE-SOURCE-0000000001", False),
        ("mine", False),
        ("KSTREAM-FILTER-7", False),
    ],
)
def test_kafka_recognises_generated_names_by_their_form(name: str, generated: bool) -> None:
    assert is_generated_stream_name(name) is generated


def test_internal_topics_start_with_the_application() -> None:
    assert internal_topic("app", "x-repartition") == "app-x-repartition"
    assert changelog_topic("app", "store") == "app-store-changelog"


def test_a_named_step_uses_up_a_number_too() -> None:
    stream = StreamsBuilder().stream("in", key=str, value=int, name="source")

    named = stream.filter(lambda *_: True, name="mine")
    after = named.filter(lambda *_: True)

    assert (named.node, after.node) == ("mine", "KSTREAM-FILTER-0000000002")


def test_a_computed_table_uses_up_a_number_for_options_without_a_name() -> None:
    table = StreamsBuilder().table("t", key=str, value=int, materialized="store")

    plain = table.filter(lambda *_: True)
    with_options = table.filter(lambda *_: True, materialized=Materialized(caching=False))

    assert plain.node == "KTABLE-FILTER-0000000002"
    assert with_options.node == "KTABLE-FILTER-0000000004"


def test_a_table_uses_up_a_number_for_a_store_without_a_name() -> None:
    builder = StreamsBuilder()

    unnamed = builder.table("t", key=str, value=int)
    named = builder.table("u", key=str, value=int, materialized="store")

    assert (unnamed.node, named.node) == ("KTABLE-SOURCE-0000000002", "KTABLE-SOURCE-0000000004")
