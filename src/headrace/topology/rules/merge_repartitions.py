"""One repartition below a key change instead of several further down."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from headrace.serdes.slots import SerdeSlot
from headrace.topology.graph import TopologyGraph
from headrace.topology.naming import REPARTITION_SUFFIX
from headrace.topology.nodes import Node, ProcessorNode, RepartitionNode


def merge_repartitions(graph: TopologyGraph) -> TopologyGraph:
    """Merge the repartitions below one key-changing step into the first one's topic.

    Kafka's ``merge.repartition.topics``::

        map ─┬─ repartition A ── count          map ── repartition A ─┬─ count
             └─ repartition B ── reduce   =>                          └─ reduce

    A step that changes values between the two keeps its repartition where it is.
    """
    for changer, repartitions in _repartitions_by_key_change(graph).items():
        if repartitions:
            graph = _sharing_one(graph, changer, repartitions)
    return graph


def _repartitions_by_key_change(graph: TopologyGraph) -> dict[str, list[str]]:
    repartitions_of: dict[str, list[str]] = {}
    for node in sorted(graph.nodes.values(), key=lambda node: node.priority):
        if _changes_key(node):
            repartitions_of[node.name] = []
        elif isinstance(node, RepartitionNode) and node.mergeable:
            changer = _nearest(graph, node, _changes_key)
            if changer is not None and changer == _nearest(graph, node, _changes_key_or_value):
                repartitions_of[changer].append(node.name)
    return _moved_below_merges(graph, repartitions_of)


def _moved_below_merges(
    graph: TopologyGraph, repartitions_of: dict[str, list[str]]
) -> dict[str, list[str]]:
    """Count the repartitions below a merge of several key changes as the merge's."""
    gone: set[str] = set()
    for merge in [node.name for node in graph.nodes.values() if _merges(node)]:
        changers = [
            changer
            for changer, repartitions in repartitions_of.items()
            if all(_lies_below(graph, repartition, merge) for repartition in repartitions)
            and _lies_below(graph, merge, changer)
        ]
        together = dict.fromkeys(name for changer in changers for name in repartitions_of[changer])
        repartitions_of[merge] = list(together)
        gone.update(changers)
    return {changer: names for changer, names in repartitions_of.items() if changer not in gone}


def _sharing_one(graph: TopologyGraph, changer: str, replaced: list[str]) -> TopologyGraph:
    olds = [node for name in replaced if isinstance(node := graph.nodes[name], RepartitionNode)]
    first = olds[0]
    # Kafka burns three numbers for the names it then takes from the topic.
    graph = replace(graph, next_index=graph.next_index + 3)
    topic = first.topic.removesuffix(REPARTITION_SUFFIX) + REPARTITION_SUFFIX
    shared = RepartitionNode(
        name=f"{topic}-source+{changer}",  # two key changes may ask for one topic
        source=f"{topic}-source",
        parents=(changer,),
        priority=graph.nodes[changer].priority,
        origin=first.origin,
        call=first.call,
        topic=topic,
        sink=f"{topic}-sink",
        filter=f"{topic}-filter",
        key=_first_known(old.key for old in olds),
        value=_first_known(old.value for old in olds),
        mergeable=True,
        generated_name=first.generated_name,
    )
    moved = {_child_towards(graph, changer, old.name) for old in olds} - set(replaced)
    parents_of = {old.name: old.parents for old in olds}

    def new_parents(node: Node) -> tuple[str, ...]:
        unchanged, new = [], []
        for parent in node.parents:
            if parent in parents_of:
                new += [shared.name if up == changer else up for up in parents_of[parent]]
            elif parent == changer and node.name in moved:
                new.append(shared.name)
            else:
                unchanged.append(parent)
        return tuple(dict.fromkeys((*unchanged, *new)))  # Kafka, too, adds new parents last

    graph = graph.reparenting(new_parents).without(name for name in replaced)
    graph = replace(graph, nodes={**graph.nodes, shared.name: shared})
    groups = (
        frozenset(shared.name if name in parents_of else name for name in group)
        for group in graph.copartitions
    )
    return replace(graph, copartitions=tuple(groups))


def _first_known(slots: Iterable[SerdeSlot]) -> SerdeSlot:
    together = list(slots)
    return next((slot for slot in together if slot.serde is not None), together[0])


def _nearest(graph: TopologyGraph, start: Node, wanted: Callable[[Node], bool]) -> str | None:
    """Return the first matching node upwards, as Kafka looks for it: parents, then theirs."""
    if wanted(start):
        return start.name
    nearest = None
    for parent in start.parents:
        if wanted(graph.nodes[parent]):
            return parent
        nearest = _nearest(graph, graph.nodes[parent], wanted)
    return nearest


def _lies_below(graph: TopologyGraph, name: str, ancestor: str) -> bool:
    return _nearest(graph, graph.nodes[name], lambda node: ancestor in node.parents) is not None


def _child_towards(graph: TopologyGraph, ancestor: str, name: str) -> str | None:
    return _nearest(graph, graph.nodes[name], lambda node: ancestor in node.parents)


def _changes_key(node: Node) -> bool:
    return isinstance(node, ProcessorNode) and node.changes_key


def _changes_key_or_value(node: Node) -> bool:
    return isinstance(node, ProcessorNode) and (node.changes_key or node.changes_value)


def _merges(node: Node) -> bool:
    return isinstance(node, ProcessorNode) and node.merges
