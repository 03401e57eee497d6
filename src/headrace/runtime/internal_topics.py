"""The topics an application needs besides those it reads: sinks, changelogs, markers.

Run `make nightly PART=model` after a change here.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from headrace.brokers.log import TopicLog, TopicPartition
from headrace.brokers.sessions import Broker
from headrace.config import StreamsConfig
from headrace.errors import CheckpointError, TopicExistsError, TopologyError, UnknownTopicError
from headrace.runtime.checkpoint.layout import CheckpointLayout
from headrace.runtime.plan import ExecutionPlan
from headrace.state.specs import StoreBuilder
from headrace.state.store_types.lookup import logged_type_of
from headrace.topology.naming import markers_name, snapshots_name

_EVENT_TIME = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": str(2**63 - 1),
}
"""A record keeps its event time, even one in the far future, which the broker's default refuses."""

_REPARTITION = {
    "cleanup.policy": "delete",
    **_EVENT_TIME,
    "retention.ms": "-1",
    "segment.bytes": "52428800",
}
"""Kafka's settings of a repartition topic: what was read is deleted on purpose, nothing by age."""

_SNAPSHOTS = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "CreateTime",
    "segment.bytes": "16777216",
}
"""The settings of the topic of snapshot records, in which each leader has one key."""

_CREATION_MS = 5_000
"""How long a broker that creates topics by itself may take for one."""


def ensure_marker_topic(
    log: TopicLog, application_id: str, tasks: int, settings: Mapping[str, str] | None = None
) -> None:
    """Create the marker topic, or give it a partition for each task; it is never written."""
    name = markers_name(application_id)
    ensure_topic(log, name, max(1, tasks), settings)
    _grow_to(log, name, tasks)


def ensure_snapshots_topic(plan: ExecutionPlan, config: StreamsConfig, log: TopicLog) -> None:
    """Create the topic of snapshot records, if there are any."""
    if writes_snapshots(plan, config):
        settings = {**internal_settings(config), **_SNAPSHOTS}
        ensure_topic(log, snapshots_name(plan.application_id), 1, settings)


def writes_snapshots(plan: ExecutionPlan, config: StreamsConfig) -> bool:
    """Return whether the leader writes snapshot records.

    Without a store that can be queried, the server of queries has the figures in them.
    """
    return bool(plan.changelogs) or config.application_server is not None


def grow_changelogs(plan: ExecutionPlan, layout: CheckpointLayout, log: TopicLog) -> None:
    """Give each task its partition in the changelogs of its stores."""
    for topic, (subtopology, _) in plan.changelogs.items():
        _grow_to(log, topic, layout.count_of(subtopology))


def _grow_to(log: TopicLog, topic: str, partitions: int) -> None:
    if log.partition_count(topic) < partitions:
        log.grow_topic(topic, partitions=partitions)


def ensure_loops(
    plan: ExecutionPlan, config: StreamsConfig, layout: CheckpointLayout, log: TopicLog
) -> None:
    """Create the loop topics that are missing."""
    settings = {**_REPARTITION, **internal_settings(config)}
    for topic in plan.loops:
        ensure_topic(log, topic, layout.repartitions[topic], settings)


def create_changelogs(
    plan: ExecutionPlan, config: StreamsConfig, layout: CheckpointLayout, log: TopicLog
) -> None:
    """Give each store that can be queried its changelog topic, before there is any state.

    Raises:
        CheckpointError: One has records already, of a state that is gone.
    """
    for topic, (subtopology, store) in plan.changelogs.items():
        settings = changelog_settings(store, config)
        ensure_topic(log, topic, max(1, layout.count_of(subtopology)), settings)
        names = [TopicPartition(topic, p) for p in range(log.partition_count(topic))]
        if any(log.end_offsets(names).values()):
            msg = (
                f"Changelog topic {topic!r} has records, but application "
                f"{plan.application_id!r} has no state yet: they are of an earlier one."
            )
            remedy = (
                f"Delete the topic with `headrace reset {plan.application_id}`, or choose another "
                "`application_id`."
            )
            raise CheckpointError(msg, remedy)


def check_changelogs(plan: ExecutionPlan, layout: CheckpointLayout, log: TopicLog) -> None:
    """Check that changelog topics exist, with a partition for each task.

    Raises:
        CheckpointError: One is missing: a new one would lack the entries of the state.
        TopologyError: One has another number of partitions.
    """
    ways_out = f"start again with `headrace reset {plan.application_id}`"
    for topic, (subtopology, store) in plan.changelogs.items():
        tasks = layout.count_of(subtopology)
        try:
            count = log.partition_count(topic)
        except UnknownTopicError as error:
            msg = (
                f"Store {store.name!r} has state, but its changelog topic {topic!r} is not there, "
                "and a new one would lack that."
            )
            remedy = f"Give the store `logging=False`, or {ways_out}."
            raise CheckpointError(msg, remedy) from error
        # While a pattern matches nothing there are no tasks, and the topic grows with the first.
        if tasks and count != tasks:
            msg = (
                f"Changelog topic {topic!r} has {count} partitions, but store {store.name!r} is "
                f"kept in {tasks} tasks."
            )
            remedy = f"Choose another `application_id`, or {ways_out}, which deletes the topic."
            raise TopologyError(msg, remedy)


def internal_settings(config: StreamsConfig) -> dict[str, str]:
    """Return the application's settings of all its internal topics."""
    return {"replication.factor": str(config.replication_factor), **config.topic}


def changelog_settings(store: StoreBuilder[Any], config: StreamsConfig) -> dict[str, str]:
    """Return the settings of a changelog topic: Kafka's, then the application's, the store's."""
    store_type = logged_type_of(store)
    return {
        "cleanup.policy": store_type.cleanup_policy,
        **_EVENT_TIME,
        **internal_settings(config),
        **store_type.changelog_times(),
        **(store.logging if isinstance(store.logging, Mapping) else {}),
    }


def ensure_topic(
    log: TopicLog, name: str, partitions: int, settings: Mapping[str, str] | None = None
) -> None:
    """Create an internal topic, if it is missing."""
    # A user who may not create topics may still use existing ones.
    try:
        log.partition_count(name)
    except UnknownTopicError:
        with suppress(TopicExistsError):  # another process was faster
            log.create_topic(name, partitions=partitions, settings=settings)


def sink_counts(
    plan: ExecutionPlan, config: StreamsConfig, log: TopicLog, *, tasks: int
) -> dict[str, int]:
    """Return how many partitions the topics have that are written to.

    Where the log `creates_topics`, it creates missing ones with ``tasks`` partitions. Elsewhere
    `check_sinks` has checked them.

    Raises:
        UnknownTopicError: A topic does not exist.
    """
    counts: dict[str, int] = {}
    for name in _sinks(plan, config):
        try:
            counts[name] = log.partition_count(name)
        except UnknownTopicError:
            if not log.creates_topics:
                raise
            log.create_topic(name, partitions=tasks)
            counts[name] = tasks
    return counts


def check_sinks(plan: ExecutionPlan, config: StreamsConfig, log: Broker, *, tasks: int) -> None:
    """Check that Kafka has the topics that are written to.

    They are the user's own. A broker whose ``auto.create.topics.enable`` is true creates missing
    ones, as for any producer. The error names ``tasks`` as the best number of partitions.

    Raises:
        UnknownTopicError: Some do not exist; the error has the commands that create them all.
    """
    if log.creates_topics:
        return  # `sink_counts` does
    missing: dict[str, list[str]] = {}
    for name in _sinks(plan, config):
        try:
            log.partition_count(name)
        except UnknownTopicError as error:
            missing[name] = error.nearest
    if not missing:
        return
    producer = log.open_producer({"max.block.ms": str(_CREATION_MS)})
    try:
        for name in list(missing):
            producer.partition_count(name)
            del missing[name]
    except UnknownTopicError:
        name, nearest = next(iter(missing.items()))
        commands = ", ".join(
            f"`headrace topics create {topic} --partitions {tasks}`" for topic in missing
        )
        raise UnknownTopicError(
            name,
            nearest=nearest,
            remedy=f"The broker creates none by itself. Create what is missing: {commands}.",
        ) from None
    finally:
        producer.close()


def _sinks(plan: ExecutionPlan, config: StreamsConfig) -> list[str]:
    """Return the topics that are written to and are the user's own."""
    dead_letter_topic = config.errors_dead_letter_queue_topic_name
    written = plan.written_topics.difference(plan.loops)
    return sorted(written | ({dead_letter_topic} if dead_letter_topic else set()))
