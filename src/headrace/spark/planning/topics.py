"""The topics an application needs besides those it reads: its sinks and its markers."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from headrace.brokers.log import TopicLog
from headrace.config import StreamsConfig
from headrace.errors import TopicExistsError, UnknownTopicError
from headrace.spark.planning.layout import Layout
from headrace.spark.planning.plan import SparkPlan


def epochs_name(application_id: str) -> str:
    """Return the name of the topic of markers, and of the group whose offsets they are."""
    return f"{application_id}-epochs"


def ensure_epochs(log: TopicLog, application_id: str, tasks: int) -> None:
    """Make sure that the topic of markers has a partition for each task; it is never written."""
    name = epochs_name(application_id)
    _ensure_topic(log, name, max(1, tasks))
    if log.partition_count(name) < tasks:
        log.grow_topic(name, partitions=tasks)


def ensure_loops(plan: SparkPlan, layout: Layout, log: TopicLog) -> None:
    """Make sure that the topics are there through which records come back in a later batch."""
    for topic in plan.loops:
        _ensure_topic(log, topic, layout.repartitions[topic])


def _ensure_topic(log: TopicLog, name: str, partitions: int) -> None:
    # Not created at a venture: who may not create topics may still use those that are there.
    try:
        log.partition_count(name)
    except UnknownTopicError:
        with suppress(TopicExistsError):  # another process was faster
            log.create_topic(name, partitions=partitions)


def sink_counts(
    plan: SparkPlan, config: StreamsConfig, log: TopicLog, *, tasks: int
) -> dict[str, int]:
    """Return how many partitions the topics have that are written to.

    On the embedded log topics that are missing are created. On Kafka that is up to its owners.

    Args:
        plan: What runs.
        config: How.
        log: Where the topics are.
        tasks: How many partitions a new topic gets.

    Raises:
        UnknownTopicError: A topic is not there.
    """
    letters = config.errors_dead_letter_queue_topic_name
    written = plan.written_topics.difference(plan.loops)
    names: Iterable[str] = sorted(written | ({letters} if letters else set()))
    counts: dict[str, int] = {}
    for name in names:
        try:
            counts[name] = log.partition_count(name)
        except UnknownTopicError:
            if config.bootstrap_servers is not None:
                raise
            log.create_topic(name, partitions=tasks)
            counts[name] = tasks
    return counts
