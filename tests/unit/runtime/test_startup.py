"""The checks, topics and layout before a query starts."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from headrace import (
    CheckpointError,
    CheckpointInUseError,
    NoOffsetForPartitionError,
    StreamsBuilder,
    TopologyError,
    UnknownTopicError,
)
from headrace.brokers.log import OffsetAndMetadata
from headrace.brokers.offset_metadata import OWN_OFFSETS, RESET_OFFSETS
from headrace.brokers.sessions import Broker
from headrace.errors import AuthorizationError
from headrace.runtime.checkpoint.layout import CheckpointLayout, read_layout, write_layout
from headrace.runtime.internal_topics import ensure_marker_topic, sink_counts
from headrace.runtime.planning.startup import check_start, prepare
from headrace.spark.batch_log import SPARK_FOLDER
from tests.unit.runtime.planning import (
    Build,
    Planning,
    append,
    by_two_patterns,
    by_two_patterns_together,
    create,
    name,
)


def copying(folder: Path, **settings: Any) -> Planning:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).to("out")
    return Planning(builder.build(), folder, **settings)


def counting(folder: Path, store: str = "counts") -> Planning:
    builder = StreamsBuilder()
    counted = builder.stream("in", key=str, value=int).group_by_key().count(materialized=store)
    counted.to_stream().to("out")
    return Planning(builder.build(), folder)


def prepared(planning: Planning) -> dict[str, int]:
    plan, config, log = planning.plan, planning.config, planning.log
    return prepare(plan, config, log, planning.spark_checkpoint, lambda tasks: tasks)[1]


def test_a_first_start_writes_the_layout_and_makes_the_topics_it_writes(tmp_path: Path) -> None:
    planning = copying(tmp_path)
    create(planning.log, **{"in": 3})

    layout = planning.layout()

    assert read_layout("app", planning.checkpoint) == layout
    assert set(layout.tasks) == {"0_0", "0_1", "0_2"}
    assert layout.shuffle_partitions == 2
    assert planning.log.partition_count("out") == 3
    assert planning.log.partition_count("app-markers") == 3


def test_a_second_start_reads_the_layout_and_does_not_recreate_it(tmp_path: Path) -> None:
    planning = copying(tmp_path)
    create(planning.log, **{"in": 2})
    first = planning.layout()
    planning.log.grow_topic("in", partitions=4)

    assert planning.layout() == first


def test_topics_that_are_there_keep_their_partitions(tmp_path: Path) -> None:
    planning = copying(tmp_path, errors_dead_letter_queue_topic_name="letters")
    create(planning.log, **{"in": 3, "out": 5})

    assert prepared(planning) == {"out": 5, "letters": 3}


class OwnedByUsers:
    """A log whose topics belong to its users, as in Kafka."""

    creates_topics = False

    def __init__(self, log: Broker) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


def test_on_kafka_topics_are_up_to_their_owners(tmp_path: Path) -> None:
    planning = copying(tmp_path)
    create(planning.log, **{"in": 1})
    log = cast(Broker, OwnedByUsers(planning.log))

    with pytest.raises(UnknownTopicError, match="'out'"):
        sink_counts(planning.plan, planning.config, log, tasks=1)


def test_a_missing_input_is_an_error_before_anything_is_written(tmp_path: Path) -> None:
    planning = copying(tmp_path)

    with pytest.raises(UnknownTopicError, match="'in'"):
        planning.layout()

    assert read_layout("app", planning.checkpoint) is None


def test_a_missing_topic_of_a_global_table_is_an_error(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.global_table("rates", key=str, value=int)
    builder.stream("in", key=str, value=int).to("out")
    planning = Planning(builder.build(), tmp_path)
    create(planning.log, **{"in": 1})

    with pytest.raises(UnknownTopicError, match="'rates'"):
        planning.layout()


def test_a_topology_that_does_not_fit_is_refused_with_the_differences(tmp_path: Path) -> None:
    before = counting(tmp_path)
    create(before.log, **{"in": 1})
    before.layout()

    with pytest.raises(CheckpointError) as caught:
        counting(tmp_path, store="others").layout()

    assert str(caught.value) == (
        f"The topology no longer fits its checkpoint {str(before.checkpoint)!r}:\n"
        "  - store 'counts' is gone\n"
        "  - store 'others' is new\n"
        "Run the topology that made it, give this one another `application_id`, or start again "
        "with `headrace reset app`."
    )


@pytest.mark.parametrize(
    ("group", "topic", "metadata"), [("app", "in", OWN_OFFSETS), ("app-markers", "app-markers", "")]
)
def test_progress_without_a_checkpoint_is_refused(
    tmp_path: Path, group: str, topic: str, metadata: str
) -> None:
    planning = copying(tmp_path)
    create(planning.log, **{"in": 2, "app-markers": 2})
    planning.log.commit_offsets(group, {name(topic, 1): OffsetAndMetadata(1, metadata)})

    with pytest.raises(CheckpointError) as caught:
        planning.layout()

    assert str(caught.value) == (
        f"Application 'app' has made progress, but its checkpoint {str(planning.checkpoint)!r} is "
        "gone. Restore it, or start again with `headrace reset app`."
    )


def test_progress_without_spark_s_part_of_the_checkpoint_is_refused(tmp_path: Path) -> None:
    planning = copying(tmp_path)
    create(planning.log, **{"in": 1})
    planning.layout()
    planning.log.commit_offsets("app", {name("in"): OffsetAndMetadata(1, OWN_OFFSETS)})

    shutil.rmtree(planning.checkpoint / SPARK_FOLDER)

    with pytest.raises(CheckpointError, match=r"has made progress, but its checkpoint .* is gone"):
        planning.layout()


def test_offsets_that_a_reset_committed_are_no_progress(tmp_path: Path) -> None:
    planning = copying(tmp_path)
    create(planning.log, **{"in": 1})
    append(planning.log, "in", 5)
    planning.log.commit_offsets("app", {name("in"): OffsetAndMetadata(3)})

    assert planning.planner().first().offsets == {"in": [3]}


def test_a_checkpoint_from_before_a_reset_is_refused(tmp_path: Path) -> None:
    planning = copying(tmp_path)
    create(planning.log, **{"in": 1})
    planning.layout()
    planning.log.commit_offsets("app", {name("in"): OffsetAndMetadata(0, f"{RESET_OFFSETS} a")})

    with pytest.raises(CheckpointError, match=r"'app' was reset, but .* is from before"):
        planning.layout()


def test_a_checkpoint_from_after_a_reset_resumes(tmp_path: Path) -> None:
    planning = copying(tmp_path)
    create(planning.log, **{"in": 1})
    planning.log.commit_offsets("app", {name("in"): OffsetAndMetadata(0, f"{RESET_OFFSETS} a")})

    first = planning.layout()

    assert planning.layout() == first


def test_a_recreated_topic_does_not_pass_for_the_old_one(tmp_path: Path) -> None:
    planning = copying(tmp_path)
    create(planning.log, **{"in": 1})
    planning.layout()

    planning.log.delete_topic("in")
    create(planning.log, **{"in": 1})

    with pytest.raises(CheckpointError, match="Topic 'in' is not the one that the checkpoint"):
        prepared(planning)


def test_a_checkpoint_of_another_log_is_refused(tmp_path: Path) -> None:
    one = copying(tmp_path, embedded_path=tmp_path / "one.db")
    create(one.log, **{"in": 1})
    one.layout()

    other = copying(tmp_path, embedded_path=tmp_path / "other.db")
    create(other.log, **{"in": 1})

    with pytest.raises(CheckpointError, match="is in another file"):
        prepared(other)


def test_topics_that_a_pattern_finds_later_are_remembered_too(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("log-.*"), key=str, value=int).to("out")
    planning = Planning(builder.build(), tmp_path)
    create(planning.log, **{"log-a": 1})
    planning.layout()
    create(planning.log, **{"log-b": 1})
    prepared(planning)

    planning.log.delete_topic("log-b")
    prepared(planning)
    create(planning.log, **{"log-b": 1})

    with pytest.raises(CheckpointError, match="Topic 'log-b'"):
        prepared(planning)


def test_a_process_that_wakes_up_late_does_not_replace_the_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planning = copying(tmp_path)
    create(planning.log, **{"in": 2})
    late = copying(tmp_path)
    create_changelogs = "headrace.runtime.planning.startup.create_changelogs"

    def stopped(*_: object) -> None:
        monkeypatch.undo()
        planning.layout()

    monkeypatch.setattr(create_changelogs, stopped)

    with pytest.raises(CheckpointInUseError):
        prepare(late.plan, late.config, late.log, late.spark_checkpoint, lambda _tasks: 7)
    layout = read_layout("app", planning.checkpoint)
    assert layout is not None
    assert layout.shuffle_partitions == 2


def test_a_process_that_wakes_up_late_keeps_the_tasks_that_others_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("log-.*"), key=str, value=int).to("out")
    planning = Planning(builder.build(), tmp_path)
    create(planning.log, **{"log-a": 1})
    planning.layout()
    create(planning.log, **{"log-b": 3})
    topic_ids = planning.log.topic_ids

    def stopped(topics: list[str]) -> dict[str, str]:
        monkeypatch.undo()
        layout = read_layout("app", planning.checkpoint)
        assert layout is not None
        layout.add_tasks(planning.plan.subtopologies[0], 3)
        write_layout(planning.checkpoint, layout)
        return topic_ids(topics)

    monkeypatch.setattr(planning.log, "topic_ids", stopped)
    layout, _ = prepare(
        planning.plan, planning.config, planning.log, planning.spark_checkpoint, lambda _tasks: 1
    )

    assert layout == read_layout("app", planning.checkpoint)
    assert layout.count_of(0) == 3
    assert layout.topic_ids.keys() == {"log-a", "log-b"}


def test_loops_are_made_with_the_partitions_of_the_layout(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    orders = builder.table("orders", key=str, value=str)
    customers = builder.table("customers", key=str, value=str)
    joined = orders.join(customers, lambda o, c: o + c, foreign_key=lambda o: o, value=str)
    joined.to_stream().to("out")
    planning = Planning(builder.build(), tmp_path)
    create(planning.log, orders=2, customers=3)

    layout = planning.layout()
    again = planning.layout()

    [loop] = planning.plan.loops
    assert planning.log.partition_count(loop) == layout.repartitions[loop]
    assert again == layout


def test_the_topic_of_markers_grows_and_never_shrinks(tmp_path: Path) -> None:
    log = copying(tmp_path).log

    counts = []
    for tasks in (0, 3, 2):
        ensure_marker_topic(log, "app", tasks)
        counts.append(log.partition_count("app-markers"))

    assert counts == [1, 3, 3]


class Late(OwnedByUsers):
    """A log whose topics appear between looking for them and creating them."""

    def create_topic(self, topic: str, *, partitions: int, settings: object = None) -> None:
        self._log.create_topic(topic, partitions=1)
        self._log.create_topic(topic, partitions=partitions)


def test_a_topic_of_markers_that_another_process_makes_meanwhile_grows_too(tmp_path: Path) -> None:
    log: Any = Late(copying(tmp_path).log)

    ensure_marker_topic(log, "app", 3)

    assert log.partition_count("app-markers") == 3


class Guarded(Late):
    """A log on which no client may create topics."""

    def create_topic(self, topic: str, *, partitions: int, settings: object = None) -> None:
        raise AuthorizationError(f"No {topic!r} with {partitions} partitions for you.")


def test_an_application_without_create_rights_uses_existing_topics(tmp_path: Path) -> None:
    planning = copying(tmp_path)
    create(planning.log, **{"in": 1, "out": 1, "app-markers": 1})
    planning.log = cast(Broker, Guarded(planning.log))

    assert planning.layout().count_of(0) == 1


def looked_at(planning: Planning, **settings: Any) -> CheckpointLayout:
    config = planning.config.with_settings(**settings)
    return check_start(planning.plan, config, planning.log, planning.spark_checkpoint)


def test_a_look_before_the_start_refuses_the_same_and_changes_nothing(tmp_path: Path) -> None:
    planning = copying(tmp_path)
    log = planning.log

    with pytest.raises(UnknownTopicError, match="'in'"):
        looked_at(planning)
    create(log, **{"in": 3})
    looked = looked_at(planning)

    assert set(looked.tasks) == {"0_0", "0_1", "0_2"}
    assert log.list_topics() == ["in"]
    assert not planning.checkpoint.exists()
    assert looked_at(planning) != planning.layout()
    assert looked_at(planning) == planning.layout()


def test_a_look_refuses_new_partitions_whose_keys_are_kept_elsewhere(tmp_path: Path) -> None:
    planning = counting(tmp_path)
    create(planning.log, **{"in": 2})
    planning.layout()
    looked_at(planning)

    planning.log.grow_topic("in", partitions=4)

    with pytest.raises(TopologyError) as caught:
        looked_at(planning)
    assert str(caught.value) == (
        "Topic 'in' has grown to 4 partitions, but its keys are kept in 2 tasks. `repartition` the "
        "stream before its state, or start again with `headrace reset app`."
    )


def test_a_look_takes_new_partitions_where_no_keys_are_kept(tmp_path: Path) -> None:
    planning = copying(tmp_path)
    create(planning.log, **{"in": 2})
    before = planning.layout()

    planning.log.grow_topic("in", partitions=4)

    assert looked_at(planning) == before


@pytest.mark.parametrize("build", [by_two_patterns, by_two_patterns_together])
def test_a_topic_that_two_patterns_match_is_refused_before_anything_is_made(
    tmp_path: Path, build: Build
) -> None:
    builder = StreamsBuilder()
    build(builder)
    planning = Planning(builder.build(), tmp_path)
    create(planning.log, ab=1)

    for starting in (looked_at, prepared):
        with pytest.raises(TopologyError, match="Topic 'ab' matches the pattern"):
            starting(planning)

    assert planning.log.list_topics() == ["ab"]
    assert not planning.checkpoint.exists()


def test_a_topic_that_two_patterns_match_is_refused_with_a_checkpoint_too(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    by_two_patterns(builder)
    planning = Planning(builder.build(), tmp_path)
    create(planning.log, ax=1)
    before = planning.layout()
    create(planning.log, ab=2)

    for starting in (looked_at, prepared):
        with pytest.raises(TopologyError, match="Topic 'ab' matches the pattern"):
            starting(planning)

    assert read_layout("app", planning.checkpoint) == before


class Closed:
    """A producer of a broker that creates no topics."""

    closed = 0

    def partition_count(self, topic: str) -> int:
        raise UnknownTopicError(topic)

    def close(self) -> None:
        self.closed += 1


class CreatesNone(Late):
    """A log whose broker creates no topics for producers."""

    def __init__(self, log: Broker) -> None:
        super().__init__(log)
        self.producer = Closed()

    def open_producer(self, settings: Mapping[str, str]) -> Closed:
        assert int(settings["max.block.ms"]) < 30_000
        return self.producer


def test_missing_sink_topics_are_in_one_error_before_anything_is_created(
    tmp_path: Path,
) -> None:
    planning = copying(tmp_path, errors_dead_letter_queue_topic_name="letters")
    topics = planning.log
    create(topics, **{"in": 3, "outs": 1})
    log = CreatesNone(topics)
    planning.log = cast(Broker, log)

    with pytest.raises(UnknownTopicError) as caught:
        looked_at(planning)

    assert str(caught.value) == (
        "There is no topic 'letters'. The broker creates none by itself. Create what is missing: "
        "`headrace topics create letters --partitions 3`, "
        "`headrace topics create out --partitions 3`."
    )
    create(topics, letters=1)
    with pytest.raises(
        UnknownTopicError, match=r"'out'\. Did you mean 'outs'\? The broker .* out "
    ):
        looked_at(planning)
    assert topics.list_topics() == ["in", "letters", "outs"]
    assert not planning.checkpoint.exists()
    assert log.producer.closed == 2


def test_sinks_are_made_by_a_broker_that_does_that_for_producers(tmp_path: Path) -> None:
    planning = copying(tmp_path, errors_dead_letter_queue_topic_name="letters")
    create(planning.log, **{"in": 3, "out": 5})
    planning.log = cast(Broker, OwnedByUsers(planning.log))

    looked_at(planning)

    counts = {topic: planning.log.partition_count(topic) for topic in planning.log.list_topics()}
    assert counts == {"in": 3, "out": 5, "letters": 1}


NO_CHOICE = {"auto.offset.reset": "none"}


def test_an_application_that_may_not_choose_where_to_start_needs_all_its_offsets(
    tmp_path: Path,
) -> None:
    planning = copying(tmp_path, consumer=NO_CHOICE)
    create(planning.log, **{"in": 2})
    planning.log.commit_offsets("app", {name("in"): OffsetAndMetadata(0)})

    with pytest.raises(NoOffsetForPartitionError) as caught:
        looked_at(planning)
    planning.log.commit_offsets("app", {name("in", 1): OffsetAndMetadata(0)})
    looked_at(planning)

    assert str(caught.value) == (
        "Group 'app' has no offset for 'in', partition 1, and `auto_offset_reset` is \"none\". "
        'Commit or seek to one, or use "earliest" or "latest".'
    )


def test_a_first_start_separates_topics_of_a_pattern_from_internal_topics(
    tmp_path: Path,
) -> None:
    builder = StreamsBuilder()
    orders = builder.table("orders", key=str, value=str)
    customers = builder.table("customers", key=str, value=str)
    joined = orders.join(customers, lambda o, c: o + c, foreign_key=lambda o: o, value=str)
    joined.to_stream().to("out")
    pattern = re.compile("log-.*")
    builder.stream(pattern, key=str, value=str, auto_offset_reset="latest").to("logs")
    planning = Planning(builder.build(), tmp_path, consumer=NO_CHOICE)
    create(planning.log, **{"orders": 1, "customers": 1, "log-a": 1})
    committed = {name("orders"): OffsetAndMetadata(0), name("customers"): OffsetAndMetadata(0)}
    planning.log.commit_offsets("app", committed)

    looked_at(planning)


def test_an_application_that_has_started_needs_no_committed_offsets(tmp_path: Path) -> None:
    planning = copying(tmp_path)
    create(planning.log, **{"in": 1})
    planning.planner().first()

    looked_at(planning, consumer=NO_CHOICE)


def test_a_missing_input_is_an_error_before_sinks_are_created(tmp_path: Path) -> None:
    planning = copying(tmp_path)

    with pytest.raises(UnknownTopicError, match="'in'"):
        looked_at(planning)

    assert planning.log.list_topics() == []
