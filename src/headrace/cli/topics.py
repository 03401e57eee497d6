"""``headrace topics``: the topics of Kafka or of the embedded log."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.brokers import TopicPartition
from headrace.brokers.topic_names import is_internal
from headrace.cli.session import Session, counted, with_options
from headrace.cli.settings import BrokerOptions, name_and_value
from headrace.errors import ConfigError, TopicExistsError

topics = typer.Typer(
    help="List, describe, create, alter and delete topics.",
    no_args_is_help=True,
    add_completion=False,
)

Topic = Annotated[str, typer.Argument(help="The name of a topic.")]
Partitions = Annotated[
    int, typer.Option("--partitions", "-p", min=1, help="The number of partitions.")
]


@topics.command("list")
@with_options
def list_topics(
    *,
    internal: Annotated[
        bool,
        typer.Option("--internal", help="Also list changelogs and other topics of applications."),
    ] = False,
    session: Session,
    broker: BrokerOptions,
) -> None:
    """List the topics with their partitions and records."""
    with broker.open() as log:
        topics = log.list_topics()
        listed = [topic for topic in topics if internal or not is_internal(topic)]
        counts = {topic: log.partition_count(topic) for topic in listed}
        names = [TopicPartition(topic, n) for topic in counts for n in range(counts[topic])]
        begins, ends = log.beginning_offsets(names), log.end_offsets(names)
    held = dict.fromkeys(counts, 0)
    for name in names:
        held[name.topic] += ends[name] - begins[name]
    rows = [{"topic": t, "partitions": counts[t], "offsets": held[t]} for t in counts]
    session.show(rows, empty="There are no topics.")
    if hidden := len(topics) - len(listed):
        text = f"{counted(hidden, 'internal topic')} not listed; `--internal` lists all."
        session.note(text, internal_topics=hidden)


@topics.command("describe")
@with_options
def describe_topic(topic: Topic, *, session: Session, broker: BrokerOptions) -> None:
    """Show the partitions, offsets and settings of a topic."""
    with broker.open() as log:
        described = log.describe_topic(topic)
        names = [TopicPartition(topic, number) for number in range(described.partitions)]
        begins, ends = log.beginning_offsets(names), log.end_offsets(names)
        offsets = [
            {"partition": n.partition, "beginning": begins[n], "end": ends[n]} for n in names
        ]
    settings = dict(sorted(described.settings.items()))
    if session.is_json:
        session.show_json({"topic": topic, "settings": settings, "partitions": offsets})
        return
    session.show_one({"topic": topic, "partitions": len(names), "settings": settings})
    session.show(offsets)


@topics.command("create")
@with_options
def create_topic(
    topic: Topic,
    partitions: Partitions = 1,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=VALUE", help="A setting, as cleanup.policy=compact"),
    ] = None,
    *,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor", min=1, help="On how many brokers; left out: Kafka's default."
        ),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do nothing if the topic exists.")
    ] = False,
    session: Session,
    broker: BrokerOptions,
) -> None:
    """Create a topic."""
    settings = _settings(config)
    own = settings if replication_factor is None else {**settings, **_replicas(replication_factor)}
    with broker.open() as log:
        try:
            log.create_topic(topic, partitions=partitions, settings=own)
        except TopicExistsError:
            if not if_not_exists:
                raise
            session.did(f"Topic {topic!r} exists.", topic=topic, created=False)
            return
    session.did(
        f"Created topic {topic!r} with {counted(partitions, 'partition')}.",
        topic=topic,
        partitions=partitions,
        settings=settings,
    )


@topics.command("alter")
@with_options
def alter_topic(
    topic: Topic,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, help="Add partitions until there are so many."),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=VALUE", help="A setting, as retention.ms=60000"),
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="NAME", help="Give a setting back to the broker."),
    ] = None,
    *,
    session: Session,
    broker: BrokerOptions,
) -> None:
    """Change the settings of a topic, or add partitions to it."""
    settings: dict[str, str | None] = {**dict.fromkeys(delete_config or ()), **_settings(config)}
    if not settings and partitions is None:
        msg = "There is nothing to alter. Give `--config`, `--delete-config` or `--partitions`."
        raise ConfigError(msg)
    with broker.open() as log:
        if settings:
            log.alter_topic(topic, settings)
        if partitions is not None:
            log.grow_topic(topic, partitions=partitions)
        described = log.describe_topic(topic)
    session.did(
        f"Altered topic {topic!r}.",
        topic=topic,
        partitions=described.partitions,
        settings=dict(sorted(described.settings.items())),
    )


@topics.command("delete")
@with_options
def delete_topic(
    topic: Topic,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    session: Session,
    broker: BrokerOptions,
) -> None:
    """Delete a topic with its records."""
    with broker.open() as log:
        log.partition_count(topic)  # raises if the topic does not exist, before it asks
        session.ask(f"Delete topic {topic!r} with all its records?", yes=yes)
        log.delete_topic(topic)
    session.did(f"Deleted topic {topic!r}.", topic=topic, deleted=True)


@topics.command("grow")
@with_options
def grow_topic(
    topic: Topic, partitions: Partitions, *, session: Session, broker: BrokerOptions
) -> None:
    """Add partitions to a topic; its records stay where they are."""
    with broker.open() as log:
        log.grow_topic(topic, partitions=partitions)
    session.did(
        f"Topic {topic!r} has {counted(partitions, 'partition')} now.",
        topic=topic,
        partitions=partitions,
    )


def _settings(given: list[str] | None) -> dict[str, str]:
    example = "cleanup.policy=compact"
    return dict(name_and_value(text, "--config", example) for text in given or ())


def _replicas(count: int) -> dict[str, str]:
    return {"replication.factor": str(count)}
