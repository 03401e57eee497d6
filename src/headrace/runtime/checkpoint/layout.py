"""The checkpoint layout: tasks, their grouping keys and numbers, partition counts, and stores.

Spark keeps state by grouping key, so a start reads the keys from ``headrace.json`` and never
derives them again. New tasks are appended.

Run `make nightly PART=model` and `make nightly PART=cuts` after a change here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from headrace.errors import CheckpointError, TopologyError
from headrace.runtime.checkpoint.files import create_file, replace_file, unreadable
from headrace.runtime.exchange.grouping_keys import grouping_keys_for
from headrace.runtime.exchange.packing import Split
from headrace.runtime.plan import (
    GLOBAL_SUBTOPOLOGY,
    GLOBAL_TASK,
    ExecutionPlan,
    PlannedSubtopology,
)
from headrace.state.specs import StoreBuilder
from headrace.state.store_types.lookup import kind_in_words
from headrace.topology.nodes import GlobalStoreNode

LAYOUT_FILE = "headrace.json"
_VERSION = 4


class TaskPlacement(msgspec.Struct, frozen=True):
    """The stage, the grouping key and the number of a task."""

    stage: int
    grouping_key: int
    """Its key in the operator of its stage. In stage 0 only the sink uses it."""
    task_number: int
    """Its partition in the marker topic."""


class SubtopologyLayout(msgspec.Struct, frozen=True):
    """The facts on which the state of a subtopology depends."""

    stage: int
    topics: list[str]
    repartitions: list[str]
    stores: dict[str, str]
    """Kind and times of each store, as text."""
    fixed: bool
    """Whether the number of tasks must stay, because a key would change its task otherwise."""


class CheckpointLayout(msgspec.Struct):
    """The content of ``headrace.json``."""

    version: int
    application_id: str
    shuffle_partitions: int
    stages: int
    """How many stateful operators the query has."""
    subtopologies: dict[str, SubtopologyLayout]
    global_stores: dict[str, str]
    """Kind, times and topic of each global store, as text."""
    global_stages: list[int]
    """The stages that keep the global stores."""
    repartitions: dict[str, int]
    tasks: dict[str, TaskPlacement]
    """By task id: subtopology and partition."""
    relay_keys: list[int]
    """For each shuffle partition the first key under which rows pass to a later stage."""
    global_grouping_keys: list[int]
    """For each shuffle partition the key that owns the global stores."""
    reset: str = ""
    """The reset that the application started after."""
    topic_ids: dict[str, str] = {}
    """The ids of the input topics. A topic that is recreated has a new one."""
    marker_topic_id: str = ""
    """The id of the marker topic, once there is a sentinel. A reset deletes that topic."""

    def placement(self, subtopology: int, partition: int) -> TaskPlacement:
        return self.tasks[f"{subtopology}_{partition}"]

    def placements_of(
        self, plan: ExecutionPlan, split: Split
    ) -> dict[tuple[int, int], TaskPlacement]:
        """Return where the tasks run that a split has records or calls for."""
        tasks = {(task_call.subtopology, task_call.partition) for task_call in split.task_calls}
        for offset_range in (*split.ranges, *split.lost):
            subtopology = plan.reader_of(offset_range.topic)
            if subtopology is not None:
                tasks.add((subtopology.id, offset_range.partition))
        return {task: self.placement(*task) for task in tasks}

    def count_of(self, subtopology: int) -> int:
        """Return how many tasks a subtopology has."""
        prefix = f"{subtopology}_"
        return sum(task.startswith(prefix) for task in self.tasks)

    def add_tasks(self, subtopology: PlannedSubtopology, count: int) -> bool:
        """Add the tasks that a subtopology lacks of ``count``; return whether there were any."""
        added = False
        for partition in range(count):
            name = f"{subtopology.id}_{partition}"
            if name not in self.tasks:
                self.tasks[name] = self._next_placement(subtopology.stage)
                added = True
        return added

    def _next_placement(self, stage: int) -> TaskPlacement:
        in_stage = {
            placement.grouping_key for placement in self.tasks.values() if placement.stage == stage
        }
        target = len(in_stage) % self.shuffle_partitions
        used = {*in_stage, *self.relay_keys, *self.global_grouping_keys}
        grouping_key = next(
            grouping_key
            for grouping_key in grouping_keys_for(target, self.shuffle_partitions)
            if grouping_key not in used
        )
        return TaskPlacement(stage=stage, grouping_key=grouping_key, task_number=len(self.tasks))


class _Versioned(msgspec.Struct):
    version: int


def new_layout(
    plan: ExecutionPlan,
    counts: Mapping[int, int],
    repartitions: Mapping[str, int],
    shuffle_partitions: int,
) -> CheckpointLayout:
    """Return the layout of an application that starts for the first time."""
    partitions = range(shuffle_partitions)
    layout = CheckpointLayout(
        version=_VERSION,
        application_id=plan.application_id,
        shuffle_partitions=shuffle_partitions,
        stages=plan.stages,
        subtopologies={
            str(subtopology.id): _subtopology_layout(subtopology)
            for subtopology in plan.subtopologies
        },
        global_stores=_global_stores(plan),
        global_stages=plan.global_stages(),
        repartitions=dict(repartitions),
        tasks={},
        relay_keys=[
            next(grouping_keys_for(partition, shuffle_partitions)) for partition in partitions
        ],
        global_grouping_keys=[
            next(grouping_keys_for(partition, shuffle_partitions, negative=True))
            for partition in partitions
        ],
    )
    for subtopology in plan.subtopologies:
        layout.add_tasks(subtopology, counts[subtopology.id])
    if any(number == GLOBAL_SUBTOPOLOGY for number, _ in plan.changelogs.values()):
        # The first of the copies writes the changelogs.
        layout.tasks[GLOBAL_TASK] = TaskPlacement(
            stage=plan.global_stages()[0],
            grouping_key=layout.global_grouping_keys[0],
            task_number=len(layout.tasks),
        )
    return layout


def _subtopology_layout(subtopology: PlannedSubtopology) -> SubtopologyLayout:
    return SubtopologyLayout(
        stage=subtopology.stage,
        topics=sorted(subtopology.topics),
        repartitions=sorted(subtopology.repartitions),
        stores={name: _store_layout(store) for name, store in sorted(subtopology.stores.items())},
        fixed=subtopology.stage > 0 and bool(subtopology.stores),
    )


def _global_stores(plan: ExecutionPlan) -> dict[str, str]:
    return {
        node.store: f"{_store_layout(subtopology.stores[node.store])} of topic {node.topic!r}"
        for subtopology in plan.global_subtopologies
        for node in subtopology.nodes.values()
        if isinstance(node, GlobalStoreNode)
    }


def _store_layout(store: StoreBuilder[Any]) -> str:
    facts = [kind_in_words(store)]
    if store.retention_ms:
        facts.append(f"retention {store.retention_ms} ms")
    if store.size_ms:
        facts.append(f"windows of {store.size_ms} ms")
    return ", ".join(facts)


def changes(plan: ExecutionPlan, layout: CheckpointLayout) -> list[str]:
    """Return the differences, in words, that keep a topology from using a checkpoint."""
    return list(_changes(plan, layout))


def _changes(plan: ExecutionPlan, layout: CheckpointLayout) -> Iterator[str]:
    if plan.application_id != layout.application_id:
        yield f"it belongs to application {layout.application_id!r}, not {plan.application_id!r}"
        return
    now = {
        str(subtopology.id): _subtopology_layout(subtopology) for subtopology in plan.subtopologies
    }
    if plan.stages != layout.stages:
        yield f"the query had {layout.stages} stateful stages and would have {plan.stages}"
    yield from _changes_of_stores("global store", layout.global_stores, _global_stores(plan))
    if plan.global_stages() != layout.global_stages:
        before, after = layout.global_stages or "none", plan.global_stages() or "none"
        yield f"the stages that keep global stores were {before} and would be {after}"
    for number in sorted({*now, *layout.subtopologies}, key=int):
        old, new = layout.subtopologies.get(number), now.get(number)
        if old is None or new is None:
            yield f"subtopology {number} is {'new' if old is None else 'gone'}"
            continue
        yield from _changes_of_subtopology(number, old, new)
    for topic, count in plan.repartitions.items():
        old_count = layout.repartitions.get(topic)
        if count is not None and old_count is not None and old_count != count:
            yield f"repartition {topic!r} has {old_count} partitions and would have {count}"


def _changes_of_subtopology(
    number: str, before: SubtopologyLayout, after: SubtopologyLayout
) -> Iterator[str]:
    if before.stage != after.stage:
        yield f"subtopology {number} ran in stage {before.stage} and would in {after.stage}"
    for what, old, new in (
        ("reads", before.topics, after.topics),
        ("repartitions by", before.repartitions, after.repartitions),
    ):
        if old != new:
            yield f"subtopology {number} {what} {new or 'nothing'} and not {old or 'nothing'}"
    yield from _changes_of_stores("store", before.stores, after.stores)


def _changes_of_stores(
    what: str, before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[str]:
    for store in sorted({*before, *after}):
        old, new = before.get(store), after.get(store)
        if old is None or new is None:
            yield f"{what} {store!r} is {'new' if old is None else 'gone'}"
        elif old != new:
            yield f"{what} {store!r} was {old} and would be {new}"


def check_growth(
    layout: CheckpointLayout, subtopology: PlannedSubtopology, counts: Mapping[str, int]
) -> None:
    """Raise `TopologyError` if new partitions would move keys of a subtopology to other tasks."""
    tasks = layout.count_of(subtopology.id)
    # Without tasks there is no state yet: a pattern has matched no topic.
    if tasks == 0 or not layout.subtopologies[str(subtopology.id)].fixed:
        return
    for topic, count in counts.items():
        if count > tasks:
            msg = (
                f"Topic {topic!r} has grown to {count} partitions, but its keys are kept in "
                f"{tasks} tasks."
            )
            remedy = (
                "`repartition` the stream before its state, or start again with "
                f"`headrace reset {layout.application_id}`."
            )
            raise TopologyError(msg, remedy)


def read_layout(application_id: str, checkpoint: Path) -> CheckpointLayout | None:
    """Return the layout of a checkpoint, or None; raise `CheckpointError` if it cannot be read."""
    path = checkpoint / LAYOUT_FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        version = msgspec.json.decode(data, type=_Versioned).version
        layout = msgspec.json.decode(data, type=CheckpointLayout) if version == _VERSION else None
    except msgspec.DecodeError as error:
        raise unreadable(path, application_id, error) from error
    if layout is None:
        msg = (
            f"{str(path)!r} was written by another version of Headrace (layout {version}, "
            f"this one reads {_VERSION})."
        )
        remedy = (
            f"Run the version that wrote it, or start again with `headrace reset {application_id}`."
        )
        raise CheckpointError(msg, remedy)
    return layout


def create_layout(checkpoint: Path, layout: CheckpointLayout) -> bool:
    """Write the first layout of a checkpoint; return False if there is one already."""
    return create_file(checkpoint / LAYOUT_FILE, _encoded(layout))


def write_layout(checkpoint: Path, layout: CheckpointLayout) -> None:
    """Write a layout in place of the one that the checkpoint has."""
    replace_file(checkpoint / LAYOUT_FILE, _encoded(layout))


def _encoded(layout: CheckpointLayout) -> bytes:
    return msgspec.json.format(msgspec.json.encode(layout), indent=1)
