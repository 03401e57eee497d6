"""Input topics: which ones an application reads, and where it starts without a checkpoint."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace import NoOffsetForPartitionError, StreamsBuilder, TopologyError, UnknownTopicError
from headrace.brokers.log import OffsetAndMetadata
from headrace.runtime.planning.input_topics import InputTopics, first_offsets, matching_topics
from tests.unit.runtime.planning import (
    Build,
    Planning,
    append,
    by_two_patterns,
    by_two_patterns_together,
    create,
    name,
)

NOW = time.time_ns() // 1_000_000


def application(
    folder: Path, build: Callable[[StreamsBuilder], object] | None = None, **settings: Any
) -> Planning:
    builder = StreamsBuilder()
    if build is None:
        builder.stream("in", key=str, value=int).to("out")
    else:
        build(builder)
    return Planning(builder.build(), folder, **settings)


def first_offsets_of(planning: Planning) -> dict[str, list[int]]:
    topics = InputTopics(planning.plan, planning.log)
    return first_offsets(planning.plan, planning.config, planning.log, topics)


def from_reset(reset: Any) -> Callable[[StreamsBuilder], object]:
    def build(builder: StreamsBuilder) -> None:
        builder.stream("in", key=str, value=int, auto_offset_reset=reset).to("out")

    return build


def filled(planning: Planning) -> Planning:
    """Create a topic of two partitions: the first has offsets 2 to 4, the second is empty."""
    create(planning.log, **{"in": 2})
    append(planning.log, "in", 5, timestamps=[NOW - 9 * 3_600_000] * 4 + [NOW])
    planning.log.delete_records({name("in"): 2})
    return planning


@pytest.mark.parametrize(
    ("reset", "expected"),
    [
        (None, [2, 0]),
        ("earliest", [2, 0]),
        ("latest", [5, 0]),
        (timedelta(hours=4), [4, 0]),
        (timedelta(days=1), [2, 0]),
        (timedelta(0), [5, 0]),
    ],
)
def test_a_source_starts_at_the_offset_of_its_reset_policy(
    tmp_path: Path, reset: Any, expected: list[int]
) -> None:
    planning = filled(application(tmp_path, from_reset(reset)))

    assert first_offsets_of(planning) == {"in": expected}


@pytest.mark.parametrize(("reset", "expected"), [("latest", [5, 0]), ("by_duration:PT4H", [4, 0])])
def test_the_reset_policy_of_the_application_is_for_sources_without_one(
    tmp_path: Path, reset: str, expected: list[int]
) -> None:
    planning = filled(application(tmp_path, consumer={"auto.offset.reset": reset}))

    assert first_offsets_of(planning) == {"in": expected}


def test_the_reset_policy_of_a_source_wins(tmp_path: Path) -> None:
    settings = {"auto.offset.reset": "latest"}
    planning = filled(application(tmp_path, from_reset("earliest"), consumer=settings))

    assert first_offsets_of(planning) == {"in": [2, 0]}


def test_a_source_without_offset_and_reset_policy_raises_an_error(tmp_path: Path) -> None:
    planning = filled(application(tmp_path, from_reset("none")))

    with pytest.raises(NoOffsetForPartitionError) as caught:
        first_offsets_of(planning)

    assert str(caught.value).startswith("Group 'app' has no offset for 'in', partition 0")


def test_committed_offsets_win_over_reset_policies(tmp_path: Path) -> None:
    planning = filled(application(tmp_path, from_reset("none")))
    committed = {name("in"): OffsetAndMetadata(3), name("in", 1): OffsetAndMetadata(0)}
    planning.log.commit_offsets("app", committed)

    assert first_offsets_of(planning) == {"in": [3, 0]}


@pytest.mark.parametrize(("committed", "expected"), [(0, 2), (99, 5)])
def test_a_committed_offset_out_of_range_moves_to_the_nearest(
    tmp_path: Path, committed: int, expected: int
) -> None:
    planning = filled(application(tmp_path))
    planning.log.commit_offsets("app", {name("in"): OffsetAndMetadata(committed)})

    assert first_offsets_of(planning) == {"in": [expected, 0]}


def test_global_tables_start_at_their_log_start_offset_with_any_reset_policy(
    tmp_path: Path,
) -> None:
    def build(builder: StreamsBuilder) -> None:
        builder.global_table("rates", key=str, value=int)
        builder.stream("in", key=str, value=int).to("out")

    planning = filled(application(tmp_path, build, consumer={"auto.offset.reset": "latest"}))
    create(planning.log, rates=1)
    append(planning.log, "rates", 4)
    planning.log.delete_records({name("rates"): 1})
    planning.log.commit_offsets("app", {name("rates"): OffsetAndMetadata(3)})

    assert first_offsets_of(planning) == {"in": [5, 0], "rates": [1]}


def test_records_of_a_loop_topic_from_before_a_reset_are_not_read(
    tmp_path: Path,
) -> None:
    def build(builder: StreamsBuilder) -> None:
        orders = builder.table("orders", key=str, value=str)
        customers = builder.table("customers", key=str, value=str)
        joined = orders.join(customers, lambda o, c: o + c, foreign_key=lambda o: o, value=str)
        joined.to_stream().to("out")

    planning = application(tmp_path, build)
    [loop] = planning.plan.loops
    create(planning.log, orders=1, customers=1, **{loop: 1})
    append(planning.log, loop, 3)

    assert first_offsets_of(planning) == {"orders": [0], "customers": [0], loop: [3]}


def test_a_topic_that_the_program_names_must_exist(tmp_path: Path) -> None:
    planning = application(tmp_path)

    with pytest.raises(UnknownTopicError, match="There is no topic 'in'"):
        InputTopics(planning.plan, planning.log)


def patterns(builder: StreamsBuilder) -> None:
    builder.global_table("rates", key=str, value=int)
    builder.stream("named", key=str, value=int).to("out")
    pattern = re.compile("log-.*")
    builder.stream(pattern, key=str, value=int, auto_offset_reset="latest").to("out2")


def test_a_pattern_matches_whole_names_that_no_source_names(tmp_path: Path) -> None:
    planning = application(tmp_path, patterns)
    by_pattern = next(
        subtopology for subtopology in planning.plan.subtopologies if subtopology.has_pattern
    )
    names = ["log-a", "named", "rates", "xlog-a", "log-a-suffix"]
    create(planning.log, **dict.fromkeys(names, 1))

    assert matching_topics(planning.plan, planning.log) == {
        "log-a": by_pattern,
        "log-a-suffix": by_pattern,
    }


def test_a_pattern_does_not_match_internal_topics_of_the_application(tmp_path: Path) -> None:
    planning = application(
        tmp_path, lambda b: b.stream(re.compile(".*"), key=str, value=int).to("out")
    )
    create(planning.log, **{"app-markers": 1, "apple": 1, "in": 1})

    assert set(matching_topics(planning.plan, planning.log)) == {"apple", "in"}


@pytest.mark.parametrize("build", [by_two_patterns, by_two_patterns_together])
def test_a_topic_that_two_patterns_match_raises_an_error_when_it_is_created(
    tmp_path: Path, build: Build
) -> None:
    planning = application(tmp_path, build)
    create(planning.log, **{"ax": 1, "xb": 1, "app-a-b": 1})
    topics = InputTopics(planning.plan, planning.log)

    create(planning.log, ab=1)

    with pytest.raises(TopologyError, match="Topic 'ab' matches the pattern"):
        topics.refresh()
    assert topics.counts == {"ax": 1, "xb": 1}


def test_a_refresh_finds_new_topics_and_partitions(tmp_path: Path) -> None:
    planning = application(tmp_path, patterns)
    create(planning.log, **{"named": 1, "rates": 1, "log-a": 1})
    topics = InputTopics(planning.plan, planning.log)
    before = dict(topics.counts)

    create(planning.log, **{"log-b": 2})
    planning.log.grow_topic("log-a", partitions=3)
    topics.refresh()

    assert before == {"named": 1, "log-a": 1, "rates": 1}
    assert topics.counts == {"named": 1, "log-a": 3, "log-b": 2, "rates": 1}
    assert name("log-b", 1) in list(topics.partitions())
    assert "rates" not in topics.readers


def test_the_reset_policy_of_a_pattern_is_for_all_its_topics(tmp_path: Path) -> None:
    planning = application(tmp_path, patterns)
    create(planning.log, **{"named": 1, "rates": 1, "log-a": 1})
    for topic in ("named", "log-a"):
        append(planning.log, topic, 3)

    assert first_offsets_of(planning) == {"named": [0], "log-a": [3], "rates": [0]}
