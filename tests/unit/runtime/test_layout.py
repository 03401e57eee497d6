"""The layout of a checkpoint: counts, placements that never change, and changes that do not fit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace import (
    CheckpointError,
    JoinWindows,
    KStream,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    TopologyError,
)
from headrace.runtime.batches import BatchBoundary
from headrace.runtime.checkpoint.layout import (
    LAYOUT_FILE,
    CheckpointLayout,
    SubtopologyLayout,
    TaskPlacement,
    changes,
    create_layout,
    new_layout,
    read_layout,
    write_layout,
)
from headrace.runtime.checkpoint.markers import Marker
from headrace.runtime.exchange.grouping_keys import shuffle_partition
from headrace.runtime.plan import ExecutionPlan, plan_topology
from headrace.runtime.planning.task_counts import task_counts

Build = Callable[[StreamsBuilder], None]


def plan(build: Build, application_id: str = "app") -> ExecutionPlan:
    builder = StreamsBuilder()
    build(builder)
    return plan_topology(builder.build(), StreamsConfig(application_id=application_id))


def stream(builder: StreamsBuilder, topic: str) -> KStream[str, int]:
    return builder.stream(topic, key=str, value=int)


def moved(builder: StreamsBuilder, topic: str) -> KStream[str, int]:
    return stream(builder, topic).select_key(lambda _k, v: str(v), key=str)


def counting(builder: StreamsBuilder) -> None:
    stream(builder, "in").group_by_key().count(materialized="counts").to_stream().to("out")


def repartitioned(partitions: int | None = None) -> Build:
    def build(builder: StreamsBuilder) -> None:
        again = moved(builder, "in").repartition(name="by", partitions=partitions)
        again.group_by_key().count(materialized="counts").to_stream().to("out")

    return build


def layout_of(
    planned: ExecutionPlan, topics: Mapping[str, int], shuffle_partitions: int = 2
) -> CheckpointLayout:
    counts, repartitions = task_counts(planned, topics.__getitem__)
    return new_layout(planned, counts, repartitions, shuffle_partitions)


def test_a_sub_topology_has_a_task_for_each_partition_of_its_largest_input() -> None:
    def build(builder: StreamsBuilder) -> None:
        stream(builder, "a").merge(stream(builder, "b")).to("out")

    counts, _ = task_counts(plan(build), {"a": 2, "b": 5}.__getitem__)

    assert counts == {0: 5}


def test_a_repartition_has_as_many_partitions_as_the_largest_input_of_its_writer() -> None:
    def build(builder: StreamsBuilder) -> None:
        both = stream(builder, "a").merge(stream(builder, "b"))
        both.select_key(lambda _k, v: str(v), key=str).repartition(name="by").to("out")

    counts, repartitions = task_counts(plan(build), {"a": 2, "b": 5}.__getitem__)

    assert repartitions == {"app-by-repartition": 5}
    assert counts == {0: 5, 1: 5}


def test_a_repartition_has_the_partitions_it_asks_for() -> None:
    counts, repartitions = task_counts(plan(repartitioned(3)), {"in": 7}.__getitem__)

    assert repartitions == {"app-by-repartition": 3}
    assert sorted(counts.values()) == [3, 7]


def test_a_repartition_after_another_takes_its_number() -> None:
    def build(builder: StreamsBuilder) -> None:
        again = moved(builder, "in").repartition(name="first", partitions=6)
        again.select_key(lambda _k, v: str(v), key=str).repartition(name="second").to("out")

    _, repartitions = task_counts(plan(build), {"in": 2}.__getitem__)

    assert repartitions == {"app-first-repartition": 6, "app-second-repartition": 6}


def test_a_repartition_that_is_joined_with_a_topic_has_as_many_partitions() -> None:
    def build(builder: StreamsBuilder) -> None:
        table = builder.table("table", key=str, value=int)
        moved(builder, "in").join(table, lambda a, b: a + b, value=int, name="j").to("out")

    counts, repartitions = task_counts(plan(build), {"in": 2, "table": 5}.__getitem__)

    assert repartitions == {"app-j-repartition": 5}
    assert sorted(counts.values()) == [2, 5]


def test_two_repartitions_that_are_joined_take_the_larger_number() -> None:
    def build(builder: StreamsBuilder) -> None:
        windows = JoinWindows(1000)
        left, right = moved(builder, "a"), moved(builder, "b")
        left.join(right, lambda a, b: a + b, windows, value=int, name="j").to("out")

    _, repartitions = task_counts(plan(build), {"a": 2, "b": 5}.__getitem__)

    assert sorted(repartitions) == ["app-j-left-repartition", "app-j-right-repartition"]
    assert set(repartitions.values()) == {5}


def test_a_loop_has_as_many_partitions_as_what_it_is_joined_with() -> None:
    def build(builder: StreamsBuilder) -> None:
        orders = builder.table("orders", key=str, value=str)
        customers = builder.table("customers", key=str, value=str)
        joined = orders.join(customers, lambda o, c: o + c, foreign_key=lambda o: o, value=str)
        joined.to_stream().to("out")

    planned = plan(build)
    _, repartitions = task_counts(planned, {"orders": 2, "customers": 5}.__getitem__)

    [loop] = planned.loops
    [other] = planned.repartitions
    reads_loop = planned.reader_of(loop)
    assert reads_loop is not None
    expected = 2 if "orders" in reads_loop.topics else 5
    assert repartitions == {loop: expected, other: 7 - expected}


def test_joined_topics_with_different_numbers_of_partitions_are_refused() -> None:
    def build(builder: StreamsBuilder) -> None:
        table = builder.table("table", key=str, value=int)
        stream(builder, "in").join(table, lambda a, b: a + b, value=int).to("out")

    with pytest.raises(TopologyError) as caught:
        task_counts(plan(build), {"in": 2, "table": 5}.__getitem__)

    assert str(caught.value) == (
        "Topics that are joined must have the same number of partitions, but 'in' has 2, "
        "'table' has 5. Create them with equal numbers, or `repartition` one of the streams."
    )


def test_a_number_that_is_asked_for_must_fit_what_is_joined() -> None:
    def build(builder: StreamsBuilder) -> None:
        table = builder.table("table", key=str, value=int)
        left = moved(builder, "in").repartition(name="by", partitions=3)
        left.join(table, lambda a, b: a + b, value=int).to("out")

    with pytest.raises(TopologyError, match="'app-by-repartition' has 3, 'table' has 5"):
        task_counts(plan(build), {"in": 2, "table": 5}.__getitem__)


def test_topics_that_match_a_pattern_count_as_inputs() -> None:
    def build(builder: StreamsBuilder) -> None:
        builder.stream(re.compile("log-.*"), key=str, value=int).to("out")

    counts, _ = task_counts(
        plan(build), {"log-a": 2, "log-b": 4}.__getitem__, lambda _subtopology: ["log-a", "log-b"]
    )
    none, _ = task_counts(plan(build), TOPICS.__getitem__)

    assert counts == {0: 4}
    assert none == {0: 0}


@pytest.mark.parametrize(("tasks", "shuffle_partitions"), [(4, 2), (8, 4), (6, 3), (5, 1)])
def test_tasks_are_spread_evenly_over_the_shuffle(tasks: int, shuffle_partitions: int) -> None:
    layout = layout_of(plan(counting), {"in": tasks}, shuffle_partitions)

    spread = Counter(
        shuffle_partition(placement.grouping_key, shuffle_partitions)
        for placement in layout.tasks.values()
    )

    assert spread == dict.fromkeys(range(shuffle_partitions), tasks // shuffle_partitions)


def test_groups_are_shared_neither_with_carriers_nor_with_global_stores() -> None:
    layout = layout_of(plan(repartitioned()), {"in": 6}, shuffle_partitions=3)
    grouping_keys = [
        placement.grouping_key for placement in layout.tasks.values() if placement.stage == 1
    ]

    used = [*grouping_keys, *layout.relay_keys, *layout.global_grouping_keys]

    assert len(set(used)) == len(used)
    assert all(grouping_key < 0 for grouping_key in layout.global_grouping_keys)
    for keys in (layout.relay_keys, layout.global_grouping_keys):
        assert [shuffle_partition(grouping_key, 3) for grouping_key in keys] == [0, 1, 2]


def test_markers_number_all_tasks() -> None:
    layout = layout_of(plan(repartitioned()), {"in": 3})

    markers = [placement.task_number for placement in layout.tasks.values()]

    assert markers == list(range(6))
    assert set(layout.tasks) == {"0_0", "0_1", "0_2", "1_0", "1_1", "1_2"}
    assert [layout.count_of(subtopology) for subtopology in (0, 1, 2)] == [3, 3, 0]


def test_new_tasks_are_appended_and_old_ones_stay_where_they_are() -> None:
    planned = plan(repartitioned())
    layout = layout_of(planned, {"in": 3})
    before = dict(layout.tasks)

    assert layout.add_tasks(planned.subtopologies[0], 5)
    assert not layout.add_tasks(planned.subtopologies[0], 4)

    assert {name: layout.tasks[name] for name in before} == before
    assert {name: layout.tasks[name].task_number for name in ("0_3", "0_4")} == {"0_3": 6, "0_4": 7}
    assert layout.placement(0, 4) == layout.tasks["0_4"]


def test_subtopologies_with_similar_numbers_do_not_mix() -> None:
    layout = layout_of(plan(counting), {"in": 2})
    layout.tasks["10_0"] = layout.tasks["0_0"]

    assert layout.count_of(0) == 2
    assert layout.count_of(1) == 0
    assert layout.count_of(10) == 1


def test_only_sub_topologies_with_stores_are_bound_to_their_number_of_tasks() -> None:
    def build(builder: StreamsBuilder) -> None:
        counting(builder)
        stream(builder, "a").merge(stream(builder, "b")).to("merged")

    layout = layout_of(plan(build), {"in": 1, "a": 1, "b": 1})

    assert [subtopology.fixed for subtopology in layout.subtopologies.values()] == [True, False]


def test_a_topology_fits_the_checkpoint_it_made() -> None:
    planned = plan(repartitioned(3))

    assert changes(planned, layout_of(planned, {"in": 2})) == []


def test_functions_and_stateless_steps_may_change() -> None:
    def build(builder: StreamsBuilder) -> None:
        positive = stream(builder, "in").filter(lambda _k, v: v > 0)
        positive.group_by_key().count(materialized="counts").to_stream().to("elsewhere")

    assert changes(plan(build), layout_of(plan(counting), {"in": 2})) == []


def _other_store(builder: StreamsBuilder) -> None:
    stream(builder, "in").group_by_key().count(materialized="others").to_stream().to("out")


def _windowed(size: int) -> Build:
    def build(builder: StreamsBuilder) -> None:
        windows = TimeWindows(size)
        counted = stream(builder, "in").group_by_key().windowed_by(windows)
        counted.count(materialized="counts").to_stream().foreach(lambda _k, _v: None)

    return build


def _other_topic(builder: StreamsBuilder) -> None:
    stream(builder, "other").group_by_key().count(materialized="counts").to_stream().to("out")


def _one_more(builder: StreamsBuilder) -> None:
    counting(builder)
    stream(builder, "more").to("out")


def _stateless(builder: StreamsBuilder) -> None:
    stream(builder, "in").to("out")


def _with_global_store(topic: str) -> Build:
    def build(builder: StreamsBuilder) -> None:
        repartitioned(2)(builder)
        builder.global_table(topic, key=str, value=int, materialized="kept")

    return build


TOPICS = {"in": 2, "other": 2, "more": 2}


@pytest.mark.parametrize(
    ("before", "after", "described"),
    [
        (counting, _other_store, ["store 'counts' is gone", "store 'others' is new"]),
        (
            counting,
            _windowed(10),
            [
                "store 'counts' was timestamped key value and would be timestamped window, "
                "retention 10 ms, windows of 10 ms"
            ],
        ),
        (counting, _other_topic, ["subtopology 0 reads ['other'] and not ['in']"]),
        (counting, _one_more, ["subtopology 1 is new"]),
        (_one_more, counting, ["subtopology 1 is gone"]),
        (
            counting,
            _stateless,
            [
                "the query had 1 stateful stages and would have 0",
                "subtopology 0 ran in stage 1 and would in 0",
                "store 'counts' is gone",
            ],
        ),
        (
            repartitioned(3),
            repartitioned(4),
            ["repartition 'app-by-repartition' has 3 partitions and would have 4"],
        ),
        (
            repartitioned(),
            repartitioned(4),
            ["repartition 'app-by-repartition' has 2 partitions and would have 4"],
        ),
        (repartitioned(3), repartitioned(), []),
        (
            repartitioned(2),
            _with_global_store("rates"),
            [
                "global store 'kept' is new",
                "the stages that keep global stores were none and would be [1]",
            ],
        ),
        (
            _with_global_store("rates"),
            _with_global_store("prices"),
            [
                "global store 'kept' was timestamped key value of topic 'rates' and would be "
                "timestamped key value of topic 'prices'"
            ],
        ),
    ],
)
def test_each_change_that_does_not_fit_is_described(
    before: Build, after: Build, described: list[str]
) -> None:
    layout = layout_of(plan(before), TOPICS)

    assert changes(plan(after), layout) == described


def test_a_renamed_repartition_is_reported() -> None:
    def build(builder: StreamsBuilder) -> None:
        again = moved(builder, "in").repartition(name="anew")
        again.group_by_key().count(materialized="counts").to_stream().to("out")

    described = changes(plan(build), layout_of(plan(repartitioned()), TOPICS))

    assert described == [
        "subtopology 1 repartitions by ['app-anew-repartition'] and not ['app-by-repartition']"
    ]


def test_the_checkpoint_of_another_application_is_an_error() -> None:
    layout = layout_of(plan(counting, "theirs"), TOPICS)

    assert changes(plan(counting, "ours"), layout) == [
        "it belongs to application 'theirs', not 'ours'"
    ]


def test_a_layout_is_read_as_it_was_written(tmp_path: Path) -> None:
    layout = layout_of(plan(repartitioned()), TOPICS)

    write_layout(tmp_path / "new" / "checkpoint", layout)

    assert read_layout("app", tmp_path / "new" / "checkpoint") == layout
    assert [path.name for path in (tmp_path / "new" / "checkpoint").iterdir()] == [LAYOUT_FILE]


def test_without_a_checkpoint_there_is_no_layout(tmp_path: Path) -> None:
    assert read_layout("app", tmp_path) is None


def test_a_layout_that_could_not_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = layout_of(plan(counting), TOPICS)
    write_layout(tmp_path, layout)

    def full(_file: int) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("headrace.runtime.checkpoint.files.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_layout(tmp_path, layout_of(plan(repartitioned()), TOPICS))

    assert read_layout("app", tmp_path) == layout


def test_the_first_layout_is_written_once(tmp_path: Path) -> None:
    layout, other = layout_of(plan(counting), TOPICS), layout_of(plan(repartitioned()), TOPICS)

    assert create_layout(tmp_path, layout)
    assert not create_layout(tmp_path, other)

    assert read_layout("app", tmp_path) == layout
    assert [path.name for path in tmp_path.iterdir()] == [LAYOUT_FILE]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 4}', b"\xff\xfe"])
def test_an_unreadable_layout_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / LAYOUT_FILE).write_bytes(content)

    with pytest.raises(CheckpointError) as caught:
        read_layout("app", tmp_path)

    path = str(tmp_path / LAYOUT_FILE)
    assert str(caught.value).startswith(f"{path!r} cannot be read: ")
    assert str(caught.value).endswith(
        "Restore the checkpoint from a copy, or start again with `headrace reset app`."
    )


def _newer(layout: CheckpointLayout) -> bytes:
    data: dict[str, Any] = msgspec.to_builtins(layout)
    return msgspec.json.encode({**data, "version": 5, "invented": "later"})


def _newer_in_another_form(_layout: CheckpointLayout) -> bytes:
    return b'{"version": 5, "jobs": []}'


def _older(_layout: CheckpointLayout) -> bytes:
    return b'{"version": 2, "subtopologies": {}}'


@pytest.mark.parametrize(
    ("written", "version"), [(_newer, 5), (_newer_in_another_form, 5), (_older, 2)]
)
def test_a_layout_of_another_version_is_refused(
    tmp_path: Path, written: Callable[[CheckpointLayout], bytes], version: int
) -> None:
    (tmp_path / LAYOUT_FILE).write_bytes(written(layout_of(plan(counting), TOPICS)))

    with pytest.raises(CheckpointError) as caught:
        read_layout("app", tmp_path)

    assert str(caught.value) == (
        f"{str(tmp_path / LAYOUT_FILE)!r} was written by another version of Headrace (layout "
        f"{version}, this one reads 4). Run the version that wrote it, or start again with "
        "`headrace reset app`."
    )


def test_the_format_number_belongs_to_these_names() -> None:
    """Raise the number in `layout.py` when a name changes that a checkpoint or a marker holds."""
    names = {
        struct.__name__: " ".join(struct.__struct_fields__)
        for struct in (CheckpointLayout, SubtopologyLayout, TaskPlacement, BatchBoundary, Marker)
    }

    assert layout_of(plan(counting), TOPICS).version == 4
    assert names == {
        "CheckpointLayout": "version application_id shuffle_partitions stages subtopologies "
        "global_stores global_stages repartitions tasks relay_keys global_grouping_keys reset "
        "topic_ids marker_topic_id",
        "SubtopologyLayout": "stage topics repartitions stores fixed",
        "TaskPlacement": "stage grouping_key task_number",
        "BatchBoundary": "offsets clock partitions_with_more start_overrides global_load_ends "
        "calls_all_tasks",
        "Marker": "query digest leader_epoch dead_letter",
    }
