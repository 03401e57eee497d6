"""Many scenarios as one topology: each has a mark in all of its names, so that none meet.

Generated names get the mark before their number. The results of a scenario are compared without the
mark, so names read as they were recorded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from headrace import StreamsBuilder, StreamsConfig, Topology
from headrace.dsl.graph import GraphBuilder
from headrace.topology.graph import TopologyGraph
from headrace_conformance.build import Scenario, build_topology
from headrace_conformance.handles import Build, Handle
from headrace_conformance.kept import KeptEffects, KeptMemory, KeptPrints
from headrace_conformance.script import Memory

_NAMES = ("topic", "named", "pipe", "snapshot", "store", "name", "source", "processor")
_LISTS_OF_NAMES = ("topics", "stores", "parents", "processors")
_PARTS = (
    *("sources", "operations", "topology", "steps", "query", "branches", "stores", "store"),
    *("processor", "process", "init", "then", "else", "do"),
)


def marked(scenario: Scenario, mark: str) -> dict[str, Any]:
    """Return a scenario with a mark in front of every name that it gives."""
    if not mark:
        return dict(scenario)
    parts = {name: part for name, part in scenario.items() if name != "name"}
    return {**_marked_entry(parts, mark), "name": scenario["name"]}


def unmarked(result: Any, mark: str) -> Any:
    """Return what a scenario did without the mark."""
    return json.loads(json.dumps(result).replace(mark, "")) if mark else result


def _marked_entry(entry: Mapping[str, Any], mark: str) -> dict[str, Any]:
    return {name: _marked_part(entry, name, part, mark) for name, part in entry.items()}


def _marked_part(entry: Mapping[str, Any], name: str, part: Any, mark: str) -> Any:
    match part:
        case str() if name in _NAMES or (name == "to" and ("do" in entry or "fn" in entry)):
            return mark + part
        case str() if name == "pattern":
            return f"{mark}(?:{part})"
        case str() if name == "topic_fn":
            return f"{part}|prepend:{mark}"
        case dict() if name in _PARTS:
            return _marked_entry(part, mark)
        case list():
            return [_marked_item(name, item, mark) for item in part]
    return part


def _marked_item(name: str, item: Any, mark: str) -> Any:
    if isinstance(item, str) and name in _LISTS_OF_NAMES:
        return mark + item
    return _marked_entry(item, mark) if isinstance(item, dict) and name in _PARTS else item


class _MarkedGraph(GraphBuilder):
    """Generates names with a mark in them."""

    def __init__(self, mark: str) -> None:
        super().__init__()
        self._mark = mark

    def name(self, prefix: str, given: str | None = None) -> str:
        return super().name(prefix + self._mark, given)

    def suffixed(self, prefix: str, given: str | None, suffix: str) -> str:
        return super().suffixed(prefix + self._mark, given, suffix)

    def store_name(self, prefix: str) -> str:
        return super().store_name(prefix + self._mark)


class _Handles(dict[str, Handle]):
    """The handles of a scenario; branches are called as Kafka calls them."""

    def __init__(self, mark: str) -> None:
        super().__init__()
        self._mark = mark

    def __setitem__(self, name: str, handle: Handle) -> None:
        super().__setitem__(name.replace(self._mark, "") if self._mark else name, handle)


class KeptBuild(Build):
    """A build whose functions may run in other processes: what they see is kept in files."""

    def __init__(self, mark: str, folder: Path) -> None:
        builder = StreamsBuilder()
        builder._graph = _MarkedGraph(mark)  # noqa: SLF001  # users have no say in generated names
        super().__init__(builder=builder, handles=_Handles(mark))
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.effects = KeptEffects(folder)
        self.printed = KeptPrints(folder)

    def memory(self, operation: str) -> Memory:
        return self.memories.setdefault(operation, KeptMemory(self._folder / f"{operation}.json"))


@dataclass(frozen=True)
class Part:
    """One scenario among others."""

    name: str
    mark: str
    scenario: Scenario
    """With the mark in its names."""
    build: Build
    topology: Topology
    """The scenario alone, with the mark."""


@dataclass(frozen=True)
class Joined:
    """Scenarios that run together."""

    parts: tuple[Part, ...]
    topology: Topology


def join(scenarios: Mapping[str, Scenario], config: StreamsConfig, folder: Path) -> Joined:
    """Return scenarios of equal settings as one topology; one alone keeps its names.

    Args:
        scenarios: By name.
        config: Their settings.
        folder: Keeps what functions see and remember.
    """
    parts = []
    for number, (name, scenario) in enumerate(scenarios.items()):
        mark = f"s{number:04d}-" if len(scenarios) > 1 else ""
        own = marked(scenario, mark)
        build = KeptBuild(mark, folder / f"{number:04d}")
        parts.append(Part(name, mark, own, build, build_topology(own, config, build)))
    graphs = [part.topology._graph for part in parts]  # noqa: SLF001  # graphs have no other door
    return Joined(tuple(parts), Topology.from_graph(_union(graphs)))


def _union(graphs: Iterable[TopologyGraph]) -> TopologyGraph:
    union = TopologyGraph()
    for graph in graphs:
        union = replace(
            union,
            nodes=MappingProxyType({**union.nodes, **graph.nodes}),
            stores=MappingProxyType({**union.stores, **graph.stores}),
            copartitions=(*union.copartitions, *graph.copartitions),
            joins=(*union.joins, *graph.joins),
            next_index=max(union.next_index, graph.next_index),
        )
    return union
