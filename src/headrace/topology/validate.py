"""Checks of a lowered graph before it runs."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.errors import TopologyError
from headrace.topology.graph import TopologyGraph
from headrace.topology.nodes import GlobalStoreNode, RepartitionNode, SourceNode


def check_topics(graph: TopologyGraph) -> None:
    """Check that no topic is read by two sources.

    Raises:
        TopologyError: Two sources read one topic, or a pattern matches a topic another reads.
    """
    readers: dict[str, str] = {}
    for name, topics in _subscriptions(graph):
        for topic in topics:
            if topic in readers:
                msg = (
                    f"Topic {topic!r} is read by {readers[topic]!r} and by {name!r}. "
                    "Read it once, and use that stream or table twice."
                )
                raise TopologyError(msg)
            readers[topic] = name
    patterns = [
        (name, node.pattern)
        for name, node in graph.nodes.items()
        if isinstance(node, SourceNode) and node.pattern is not None
    ]
    for name, pattern in patterns:
        for topic, reader in readers.items():
            if pattern.fullmatch(topic):
                msg = (
                    f"The pattern {pattern.pattern!r} of source {name!r} matches topic {topic!r}, "
                    f"which {reader!r} reads. Make the pattern narrower."
                )
                raise TopologyError(msg)


def _subscriptions(graph: TopologyGraph) -> Iterator[tuple[str, tuple[str, ...]]]:
    for name, node in graph.nodes.items():
        if isinstance(node, SourceNode):
            yield name, node.topics
        elif isinstance(node, GlobalStoreNode):
            yield name, (node.topic,)


def check_repartitions(graph: TopologyGraph) -> None:
    """Check that every repartition has a name of its own.

    Raises:
        TopologyError: Two share one, and no optimisation made them one repartition.
    """
    topics: set[str] = set()
    for node in graph.nodes.values():
        if isinstance(node, RepartitionNode):
            if node.topic in topics:
                msg = (
                    f"Two repartitions are called {node.topic!r}. Give one of the groupings or "
                    "joins that need them another `name=`, or use one grouping for both."
                )
                raise TopologyError(msg)
            topics.add(node.topic)


def check_partition_counts(graph: TopologyGraph) -> None:
    """Check that repartitions joined with each other do not ask for different partition counts.

    Raises:
        TopologyError: They do.
    """
    for group in graph.copartitions:
        members = [graph.nodes[name] for name in sorted(group) if name in graph.nodes]
        counts = {
            node.topic: node.partitions
            for node in members
            if isinstance(node, RepartitionNode) and node.partitions is not None
        }
        if len(counts) == len(members) and len(set(counts.values())) > 1:
            msg = (
                "Topics that are joined must have the same number of partitions, but they ask for "
                f"{counts}. Give their `repartition` steps the same `partitions=`."
            )
            raise TopologyError(msg)


def check_explicit_names(graph: TopologyGraph) -> None:
    """Check that no internal topic or store has a generated name.

    Kafka's ``ensure.explicit.internal.resource.naming``.

    Raises:
        TopologyError: Some have; all are listed.
    """
    stores = [name for name, store in graph.stores.items() if store.generated_name]
    topics = [
        node.topic
        for node in graph.nodes.values()
        if isinstance(node, RepartitionNode) and node.generated_name
    ]
    if stores or topics:
        named = [f"store {name!r}" for name in stores] + [f"topic {name!r}" for name in topics]
        msg = (
            f"`ensure_explicit_internal_resource_naming` is set, but these names were generated: "
            f"{', '.join(named)}. Name them with `materialized=` and `name=`."
        )
        raise TopologyError(msg)
