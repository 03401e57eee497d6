"""Finds the source that reads a topic."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.errors import TopologyError
from headrace.topology.naming import internal_topic
from headrace.topology.nodes import GlobalStoreNode, Node, SourceNode


class Sources:
    """The sources among some nodes."""

    def __init__(self, nodes: Iterable[Node], application_id: str) -> None:
        self.by_topic: dict[str, SourceNode | GlobalStoreNode] = {}
        """Those that name their topics."""
        self._by_pattern: list[SourceNode] = []
        for node in nodes:
            if isinstance(node, GlobalStoreNode):
                self.by_topic[node.topic] = node
            elif isinstance(node, SourceNode):
                for topic in node.topics:
                    name = internal_topic(application_id, topic) if node.internal else topic
                    self.by_topic[name] = node
                if node.pattern is not None:
                    self._by_pattern.append(node)

    def of(self, topic: str) -> SourceNode | GlobalStoreNode | None:
        """Return the source that reads a topic, if one does.

        Raises:
            TopologyError: The patterns of two match it.
        """
        # A pattern may match internal topics too, but each of those has a source of its own.
        return self.by_topic.get(topic) or source_matching(topic, self._by_pattern)


def source_matching(topic: str, sources: Iterable[SourceNode]) -> SourceNode | None:
    """Return the source whose pattern matches the whole name of a topic; None if none does.

    Raises:
        TopologyError: Two do: as in Kafka, only one of them could read it.
    """
    matching = [
        (source, source.pattern)
        for source in sources
        if source.pattern is not None and source.pattern.fullmatch(topic)
    ]
    if len(matching) > 1:
        (first, one), (second, other), *_ = matching
        msg = (
            f"Topic {topic!r} matches the pattern {one.pattern!r} of source {first.name!r} and the "
            f"pattern {other.pattern!r} of source {second.name!r}, but a topic is read by one "
            "source. Make the patterns narrower, so that only one of them matches it, or use one "
            "pattern for both."
        )
        raise TopologyError(msg)
    return matching[0][0] if matching else None
