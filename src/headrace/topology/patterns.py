"""Which source reads a topic that no source names."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.errors import TopologyError
from headrace.topology.nodes import SourceNode


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
