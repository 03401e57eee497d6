"""The content of a picture of a topology: topics, steps, stores and arrows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

from headrace.topology.describe import (
    DescribedNode,
    DescribedProcessor,
    DescribedSink,
    DescribedSource,
    TopologyDescription,
)

Shape: TypeAlias = Literal["topic", "source", "processor", "sink", "store"]

_NO_ORIGINS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Item:
    """One thing in the picture."""

    id: str
    """Unique in the picture, and a plain identifier: names may hold anything."""
    label: str
    shape: Shape
    box: int | None = None
    """The subtopology it belongs to; topics belong to none."""
    origin: str | None = None
    """The line of the program that made it."""


@dataclass(frozen=True)
class Arrow:
    """Records flow from one item to another; or, to a store, a processor uses it."""

    start: str
    end: str
    uses: bool = False


@dataclass(frozen=True)
class Picture:
    """Items and arrows, in the order of the description."""

    items: tuple[Item, ...]
    arrows: tuple[Arrow, ...]
    boxes: Mapping[int, str]
    """The title of each subtopology."""


def picture_from(
    description: TopologyDescription, origins: Mapping[str, str] = _NO_ORIGINS
) -> Picture:
    """Return what a picture of a topology shows.

    ``origins`` has the line of the program that made each step, where it is known.
    """
    drawing = _Drawing(origins)
    boxes: dict[int, str] = {}
    for part in description.subtopologies:
        boxes[part.id] = f"Sub-topology {part.id}"
        drawing.add_nodes(part.id, part.nodes)
    for store in description.global_stores:
        boxes[store.id] = f"Global store {store.id}"
        drawing.add_nodes(store.id, (store.source, store.processor))
    return Picture(
        tuple(drawing.items.values()), tuple(dict.fromkeys(drawing.arrows)), MappingProxyType(boxes)
    )


class _Drawing:
    def __init__(self, origins: Mapping[str, str]) -> None:
        self.items: dict[tuple[str, str], Item] = {}
        self.arrows: list[Arrow] = []
        self._origins = origins

    def add_nodes(self, box: int, nodes: Iterable[DescribedNode]) -> None:
        for node in nodes:
            self._add_node(box, node)
        for node in nodes:
            start = self.items["step", node.name].id
            self.arrows += [Arrow(start, self.items["step", after].id) for after in node.successors]

    def _add_node(self, box: int, node: DescribedNode) -> None:
        if isinstance(node, DescribedSource):
            step = self._item(node.name, "source", box)
            topics = node.topics if node.pattern is None else (f"topics like {node.pattern}",)
            self.arrows += [Arrow(self._item(topic, "topic").id, step.id) for topic in topics]
        elif isinstance(node, DescribedSink):
            step = self._item(node.name, "sink", box)
            topic = f"chosen by {node.chooser}" if node.topic is None else node.topic
            self.arrows.append(Arrow(step.id, self._item(topic, "topic").id))
        elif isinstance(node, DescribedProcessor):
            step = self._item(node.name, "processor", box)
            self.arrows += [
                Arrow(step.id, self._item(store, "store", box).id, uses=True)
                for store in node.stores
            ]

    def _item(self, name: str, shape: Shape, box: int | None = None) -> Item:
        kind = "step" if shape in ("source", "processor", "sink") else shape
        known = self.items.get((kind, name))
        if known is None:
            origin = self._origins.get(name) if kind == "step" else None
            known = Item(f"{kind}{len(self.items)}", name, shape, box, origin)
            self.items[kind, name] = known
        return known
