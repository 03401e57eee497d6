"""Prints a plan: as text for people, or as data for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.cli.session import counted
from headrace.config import StreamsConfig
from headrace.runtime.plan import ExecutionPlan, PlannedSubtopology, full_names
from headrace.state.store_types.lookup import kind_in_words
from headrace.topology.naming import changelog_topic, internal_topic
from headrace.topology.nodes import GlobalStoreNode, ProcessorNode, SinkNode, SourceNode

_WRITES = {
    "exactly_once_v2": "one transaction per Spark partition and batch",
    "at_least_once": "no transactions; a batch that is repeated is written again",
}


def text_from_plan(plan: ExecutionPlan, config: StreamsConfig) -> str:
    """Return a plan as people read it. Internal topics have their full names."""
    return "\n".join(_lines(plan, config))


def _lines(plan: ExecutionPlan, config: StreamsConfig) -> Iterator[str]:
    yield f"Application {plan.application_id}: one streaming query"
    for node in _global_nodes(plan):
        yield f"  global store {node.store}  from {node.topic}, a copy per Spark partition"
    for stage in range(plan.stages + 1):
        yield ""
        yield f"Stage {stage}  {_where(stage)}"
        for subtopology in plan.subtopologies:
            if subtopology.stage == stage:
                yield from _lines_of(subtopology, plan)
            elif stage == 0:
                yield from _lines_of_packing(subtopology, plan)
        if stage < plan.stages:
            yield f"  exchange  packed records, to stage {stage + 1}"
    yield ""
    yield f"Write  a Python stream sink: {_WRITES[config.processing_guarantee]}"


def _lines_of_packing(subtopology: PlannedSubtopology, plan: ExecutionPlan) -> Iterator[str]:
    for source in subtopology.sources:
        if not source.internal:
            yield f"  pack   {_subscription(source, plan)}  for subtopology {subtopology.id}"


def _where(stage: int) -> str:
    if stage == 0:
        return "inside the Python stream source"
    return "engine tasks in transformWithState"


def _lines_of(subtopology: PlannedSubtopology, plan: ExecutionPlan) -> Iterator[str]:
    yield f"  subtopology {subtopology.id}  {_tasks(subtopology, plan)}"
    for source in subtopology.sources:
        loops = _kind_of(full_names(source, plan.application_id), plan) == "loop"
        kind = "repartition" if source.internal and not loops else "read"
        later = ", written by this query, in a later batch" if loops else ""
        yield f"    {kind:<6} {_subscription(source, plan)}{later}"
    steps = [f"{name} ({origin})" if origin else name for name, origin in _steps(subtopology)]
    if steps:
        yield f"    run    {', '.join(steps)}"
    for name, kind, changelog in _stores(subtopology, plan):
        logged = f", changelog {changelog}" if changelog else ""
        yield f"    store  {name} ({kind}){logged}"
    for node in subtopology.nodes.values():
        if isinstance(node, SinkNode):
            kind = "repartition to" if node.internal else "write "
            yield f"    {kind} {_written_topic(node, plan) or 'a topic chosen per record'}"


def _tasks(subtopology: PlannedSubtopology, plan: ExecutionPlan) -> str:
    count = _task_count(subtopology, plan)
    if count is not None:
        return counted(count, "task")
    read = ", ".join(_subscription(source, plan) for source in subtopology.sources)
    return f"a task per partition of {read}"


def _subscription(source: SourceNode, plan: ExecutionPlan) -> str:
    if source.pattern is not None:
        return f"topics that match {source.pattern.pattern!r}"
    return ", ".join(full_names(source, plan.application_id))


def data_from_plan(plan: ExecutionPlan, config: StreamsConfig) -> dict[str, Any]:
    """Return a plan as data for JSON. Internal topics have their full names."""
    return {
        "application_id": plan.application_id,
        "processing_guarantee": config.processing_guarantee,
        "global_stores": [
            {"name": node.store, "topic": node.topic, "stages": plan.global_stages()}
            for node in _global_nodes(plan)
        ],
        "stages": [
            {
                "stage": stage,
                "runs": _where(stage),
                "subtopologies": [
                    _subtopology_data(subtopology, plan)
                    for subtopology in plan.subtopologies
                    if subtopology.stage == stage
                ],
            }
            for stage in range(plan.stages + 1)
        ],
        "exchanges": [{"from_stage": stage, "to_stage": stage + 1} for stage in range(plan.stages)],
        "repartitions": [
            {"name": name, "partitions": count, "written_by": list(plan.writers[name])}
            for name, count in plan.repartitions.items()
        ],
        "write": {"runs": "a Python stream sink", "how": _WRITES[config.processing_guarantee]},
    }


def _subtopology_data(subtopology: PlannedSubtopology, plan: ExecutionPlan) -> dict[str, Any]:
    return {
        "id": subtopology.id,
        "tasks": _task_count(subtopology, plan),
        "sources": [_source_data(source, plan) for source in subtopology.sources],
        "steps": [{"name": name, "origin": origin} for name, origin in _steps(subtopology)],
        "stores": [
            {"name": name, "kind": kind, "changelog": changelog}
            for name, kind, changelog in _stores(subtopology, plan)
        ],
        "sinks": [
            _sink_data(node, plan)
            for node in subtopology.nodes.values()
            if isinstance(node, SinkNode)
        ],
    }


def _source_data(source: SourceNode, plan: ExecutionPlan) -> dict[str, Any]:
    names = full_names(source, plan.application_id)
    pattern = None if source.pattern is None else source.pattern.pattern
    return {"kind": _kind_of(names, plan), "topics": list(names), "pattern": pattern}


def _sink_data(sink: SinkNode, plan: ExecutionPlan) -> dict[str, Any]:
    name = _written_topic(sink, plan)
    return {"kind": "topic" if name is None else _kind_of((name,), plan), "topic": name}


def _written_topic(sink: SinkNode, plan: ExecutionPlan) -> str | None:
    """Return the full name of the topic that a sink writes; None if it is chosen per record."""
    if not isinstance(sink.topic, str):
        return None
    return internal_topic(plan.application_id, sink.topic) if sink.internal else sink.topic


def _kind_of(names: tuple[str, ...], plan: ExecutionPlan) -> str:
    """Return the kind of topics. A query writes a loop topic and reads it in a later batch."""
    if any(name in plan.loops for name in names):
        return "loop"
    return "repartition" if any(name in plan.repartitions for name in names) else "topic"


def _task_count(subtopology: PlannedSubtopology, plan: ExecutionPlan) -> int | None:
    """Return how many tasks there are; None: as many as there are partitions of what is read."""
    counts = [plan.repartitions[topic] for topic in subtopology.repartitions]
    return max((count for count in counts if count is not None), default=None)


def _steps(subtopology: PlannedSubtopology) -> Iterator[tuple[str, str | None]]:
    """Yield the names of steps, and the lines of the program they come from."""
    for name, node in subtopology.nodes.items():
        if isinstance(node, ProcessorNode):
            yield name, node.origin or None


def _stores(
    subtopology: PlannedSubtopology, plan: ExecutionPlan
) -> Iterator[tuple[str, str, str | None]]:
    """Yield name, kind and changelog of each store."""
    for name, store in subtopology.stores.items():
        log = changelog_topic(plan.application_id, name)
        yield name, kind_in_words(store), log if log in plan.changelogs else None


def _global_nodes(plan: ExecutionPlan) -> list[GlobalStoreNode]:
    return [
        node
        for subtopology in plan.global_subtopologies
        for node in subtopology.nodes.values()
        if isinstance(node, GlobalStoreNode)
    ]
