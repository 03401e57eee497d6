"""The changelog topics of stores that can be queried, before a query starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace import (
    CheckpointError,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    TopologyError,
)
from headrace.clients.reset import forget_application
from headrace.runtime.internal_topics import changelog_settings
from headrace.runtime.plan import plan_topology
from tests.application_home import embedded_home
from tests.unit.runtime.planning import Planning, append, create, name

DAY = 86_400_000
TOPIC = "app-counts-changelog"


def counting(folder: Path, materialized: str | Materialized = "counts") -> Planning:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.group_by_key().count(materialized=materialized)
    planning = Planning(builder.build(), folder)
    if "in" not in planning.log.list_topics():
        create(planning.log, **{"in": 3})
    return planning


def test_a_first_start_makes_a_compacted_topic_with_a_partition_for_each_task(
    tmp_path: Path,
) -> None:
    planning = counting(tmp_path)
    planning.layout()

    made = planning.log.describe_topic(TOPIC)
    assert made.partitions == 3
    assert made.settings["cleanup.policy"] == "compact"


def test_behind_a_repartition_there_are_as_many_as_that_has(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    moved = builder.stream("in", key=str, value=int).repartition(partitions=5)
    moved.group_by_key().count(materialized="counts")
    planning = Planning(builder.build(), tmp_path)
    create(planning.log, **{"in": 3})
    planning.layout()

    assert planning.log.partition_count(TOPIC) == 5


def test_a_second_start_keeps_the_topic(tmp_path: Path) -> None:
    planning = counting(tmp_path)
    first = planning.layout()
    append(planning.log, TOPIC, 3)

    assert planning.layout() == first
    assert planning.log.partition_count(TOPIC) == 3


def test_another_number_of_partitions_is_refused(tmp_path: Path) -> None:
    planning = counting(tmp_path)
    create(planning.log, **{TOPIC: 2})

    with pytest.raises(TopologyError) as caught:
        planning.layout()
    assert f"{TOPIC!r} has 2 partitions, but store 'counts' is kept in 3 tasks" in str(caught.value)
    assert "`headrace reset app`" in str(caught.value)


def test_records_of_an_earlier_state_are_refused(tmp_path: Path) -> None:
    planning = counting(tmp_path)
    create(planning.log, **{TOPIC: 3})
    append(planning.log, TOPIC, 1, partition=2)

    with pytest.raises(CheckpointError, match=f"{TOPIC!r} has records, .*`headrace reset app`"):
        planning.layout()


def test_a_deleted_topic_is_not_recreated_beside_its_state(tmp_path: Path) -> None:
    planning = counting(tmp_path)
    planning.layout()
    planning.log.delete_topic(TOPIC)

    with pytest.raises(CheckpointError, match=f"'counts' has state, but .*{TOPIC!r} is not there"):
        planning.layout()
    assert TOPIC not in planning.log.list_topics()


def test_a_store_that_gets_no_more_logging_needs_no_topic(tmp_path: Path) -> None:
    planning = counting(tmp_path)
    planning.layout()
    planning.log.delete_topic(TOPIC)
    silent = counting(tmp_path, Materialized("counts", logging=False))

    silent.layout()

    assert TOPIC not in silent.log.list_topics()


def test_a_start_after_an_application_was_forgotten_recreates_the_topic(tmp_path: Path) -> None:
    planning = counting(tmp_path)
    planning.layout()
    append(planning.log, TOPIC, 1)

    forget_application(planning.log, embedded_home(tmp_path))
    planning.layout()

    assert planning.log.end_offsets([name(TOPIC)]) == {name(TOPIC): 0}


Build = Callable[[StreamsBuilder, Materialized], object]


def grouped(builder: StreamsBuilder) -> Any:
    return builder.stream("in", key=str, value=int).group_by_key()


def settings(build: Build, materialized: Materialized, **given: Any) -> dict[str, str]:
    builder = StreamsBuilder()
    build(builder, materialized)
    config = StreamsConfig(application_id="app", **given)
    [(_, store)] = plan_topology(builder.build(), config).changelogs.values()
    found = changelog_settings(store, config)
    assert found.pop("message.timestamp.type") == "CreateTime"
    assert found.pop("message.timestamp.after.max.ms") == str(2**63 - 1)
    assert found.pop("replication.factor") == "-1"
    return found


def counts(builder: StreamsBuilder, materialized: Materialized) -> None:
    grouped(builder).count(materialized=materialized)


def windows(builder: StreamsBuilder, materialized: Materialized) -> None:
    grouped(builder).windowed_by(TimeWindows(50, grace=10)).count(materialized=materialized)


def sessions(builder: StreamsBuilder, materialized: Materialized) -> None:
    grouped(builder).windowed_by(SessionWindows(50, grace=10)).count(materialized=materialized)


def table(builder: StreamsBuilder, materialized: Materialized) -> None:
    builder.table("in", key=str, value=int, materialized=materialized)


def test_windows_and_sessions_may_be_deleted_but_not_by_age() -> None:
    named = Materialized("s")
    both = {"cleanup.policy": "compact,delete", "retention.ms": "-1"}

    assert settings(counts, named) == {"cleanup.policy": "compact"}
    assert settings(windows, named) == both
    assert settings(sessions, named) == both
    assert settings(windows, named, windowstore_changelog_additional_retention="2d") == both


def test_versions_are_not_compacted_until_a_day_after_their_history() -> None:
    found = settings(table, Materialized("s", history_retention=500))

    assert found == {"cleanup.policy": "compact", "min.compaction.lag.ms": str(500 + DAY)}


def test_the_store_s_settings_win_over_the_application_s_and_these_over_kafka_s() -> None:
    given = {"topic": {"cleanup.policy": "delete", "segment.bytes": "9", "retention.ms": "1"}}
    logged = Materialized("s", logging={"segment.bytes": "7"})

    found = settings(windows, logged, **given)
    assert found == {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "segment.bytes": "7",
    }
    kept = settings(windows, Materialized("s", logging={"retention.ms": "5"}))
    assert kept["retention.ms"] == "5"


def test_the_longest_compaction_lag_is_the_longest_there_is() -> None:
    found = settings(table, Materialized("s", history_retention=2**63 - 1))

    assert found["min.compaction.lag.ms"] == str(2**63 - 1)
