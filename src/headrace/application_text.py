"""The text of an application: its topology, its stores, and where its tasks run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from headrace.brokers.opening import log_text
from headrace.config import StreamsConfig
from headrace.topology.describe import (
    DescribedProcessor,
    DescribedSource,
    DescribedSubTopology,
    TopologyDescription,
)


def application_text(
    config: StreamsConfig,
    state: str,
    leader: str | None,
    topology: TopologyDescription,
    positions: Mapping[tuple[str, int], tuple[int, int]],
) -> str:
    """Return an application as people read it.

    Args:
        config: Its settings.
        state: Its state.
        leader: The process that runs it, if this one stands by.
        topology: Its program.
        positions: The offset and the lag of each partition that it reads.
    """
    return "\n".join(
        [
            f"Application {config.application_id!r}: {state}",
            f"Topics: {log_text(config)}",
            f"Tasks: {_run_by(config, leader)}",
            *(line for each in topology.subtopologies for line in _tasks(each, positions)),
            "Stores:",
            *(_stores(topology) or ["  none"]),
            str(topology).rstrip(),
        ]
    )


def _run_by(config: StreamsConfig, leader: str | None) -> str:
    if leader is not None:
        return f"run by {leader}; this process stands by"
    threads = config.num_stream_threads or "*"
    return f"run by Spark at {config.spark.get('spark.master', f'local[{threads}]')}"


def _tasks(
    subtopology: DescribedSubTopology, positions: Mapping[tuple[str, int], tuple[int, int]]
) -> Iterator[str]:
    """Yield the tasks that read topics, once the application has a position in them."""
    sources = [node for node in subtopology.nodes if isinstance(node, DescribedSource)]
    topics = {topic for source in sources for topic in source.topics}
    read = sorted((number, topic) for topic, number in positions if topic in topics)
    for number, topic in read:
        offset, lag = positions[topic, number]
        yield f"  {subtopology.id}_{number}  {topic}-{number} at offset {offset}, lag {lag}"


def _stores(topology: TopologyDescription) -> list[str]:
    lines = []
    for subtopology in topology.subtopologies:
        names = _names(node for node in subtopology.nodes if isinstance(node, DescribedProcessor))
        lines += [f"  {name}, in subtopology {subtopology.id}" for name in names]
    for each in topology.global_stores:
        names = _names([each.processor])
        lines += [f"  {name}, global, from {', '.join(each.source.topics)}" for name in names]
    return lines


def _names(processors: Iterable[DescribedProcessor]) -> list[str]:
    return sorted({name for processor in processors for name in processor.stores})
