"""``headrace groups`` and ``headrace lag``: their members, committed offsets and lag."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from headrace.brokers import TopicLog, TopicPartition
from headrace.cli.positions import PositionOptions
from headrace.cli.session import NotFoundError, Session, counted, with_options
from headrace.cli.settings import BrokerOptions, code_of, duration_of_flag, named
from headrace.cli.targets import Target, is_target, load_target
from headrace.clients.lag import PartitionLag, lag_of
from headrace.clients.offsets import execute_group_reset, plan_group_reset
from headrace.config import StreamsConfig
from headrace.errors import ConfigError

groups = typer.Typer(
    help="List, describe, reset and delete consumer groups, and show their offsets.",
    no_args_is_help=True,
    add_completion=False,
)

Group = Annotated[str, typer.Argument(help="The name of a group.")]


@groups.command("list")
@with_options
def list_groups(*, session: Session, broker: BrokerOptions) -> None:
    """List the groups with their members and lag."""
    with broker.open() as log:
        rows = [
            {"group": group, "members": len(log.describe_group(group)), "lag": _total(log, group)}
            for group in log.list_groups()
        ]
        session.show(rows, empty="There are no groups.")


@groups.command("describe")
@with_options
def describe_group(group: Group, *, session: Session, broker: BrokerOptions) -> None:
    """Show the members of a group and their partitions."""
    with broker.open() as log:
        _require(log, group)
        members = [
            {
                "member": member.member_id,
                "client": member.client_id,
                "partitions": [f"{topic}-{number}" for topic, number in member.partitions],
            }
            for member in log.describe_group(group)
        ]
        lags = lag_of(log, group)
    if session.is_json:
        session.show_json({"group": group, "members": members, "offsets": _rows(lags)})
        return
    session.show(members, empty=f"Group {group!r} has no members.")
    session.show(_rows(lags), empty="It has committed nothing.")


@groups.command("offsets")
@with_options
def show_offsets(group: Group, *, session: Session, broker: BrokerOptions) -> None:
    """Show the committed offsets of a group."""
    with broker.open() as log:
        _require(log, group)
        session.show(_rows(lag_of(log, group)), empty=f"Group {group!r} has committed nothing.")


@groups.command("delete")
@with_options
def delete_group(
    group: Group,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    session: Session,
    broker: BrokerOptions,
) -> None:
    """Delete a group and its offsets."""
    with broker.open() as log:
        _require(log, group)
        session.ask(f"Delete group {group!r} with its offsets?", yes=yes)
        log.delete_group(group)
    session.did(f"Deleted group {group!r}.", group=group, deleted=True)


@groups.command("reset")
@with_options
def reset_group(
    group: Group,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="TOPIC[:PARTITIONS]",
            help="Reset this alone: orders, or orders:0,2. May be repeated; left out: all it read.",
        ),
    ] = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the offsets, and change nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    session: Session,
    positions: PositionOptions,
    broker: BrokerOptions,
) -> None:
    """Reset the offsets of a group without members."""
    to = positions.position()
    with broker.open() as log:
        if not topic:
            _require(log, group)
        chosen = [name for text in topic or () for name in _partitions(log, text)]
        changes = plan_group_reset(log, group, to, chosen if topic else None)
        rows = [change._asdict() for change in changes]
        if not session.is_json:
            session.show(rows, empty=f"Group {group!r} has committed nothing.")
        if changes and not dry_run:
            session.ask(f"Reset group {group!r}?", yes=yes)
            execute_group_reset(log, group, changes)
    done = bool(changes) and not dry_run
    text = f"Group {group!r} starts over." if done else "Nothing was changed."
    session.did(text, group=group, offsets=rows, done=done)


@with_options
def lag(
    application: Annotated[
        str | None,
        typer.Argument(help="An application id, a group, or a program; left out: all groups."),
    ] = None,
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat until Ctrl-C.")] = False,
    interval: Annotated[
        str, typer.Option("--interval", help="The pause between two tables.")
    ] = "2s",
    session: Session,
    broker: BrokerOptions,
) -> None:
    """Show how many records an application has not read."""
    pause_ms = duration_of_flag(interval, "--interval")
    target = load_target(application) if application and is_target(application) else None
    code = None if target is None else code_of(target)
    with broker.open(code) as log:
        ask = _question(log, application, target, broker.config(code))
        session.show(ask(), empty="Nothing is committed, and nothing is waiting.")
        while watch:
            time.sleep(pause_ms / 1000)
            session.say("")
            session.show(ask(), empty="Nothing is committed, and nothing is waiting.")


def application_id_of(text: str, target: Target | None, config: StreamsConfig) -> str:
    """Return the application id that a word on the command line means."""
    config = StreamsConfig(application_id=text) if target is None else named(config, target)
    return config.require_application_id()


def _question(
    log: TopicLog, application: str | None, target: Target | None, config: StreamsConfig
) -> Callable[[], list[dict[str, Any]]]:
    if application is None:
        return lambda: [{"group": group, "lag": _total(log, group)} for group in log.list_groups()]
    name = application_id_of(application, target, config)
    if target is None:
        _require(log, name)
        return lambda: _rows(lag_of(log, name))
    return lambda: _rows(lag_of(log, name, target.input_topics(config, log.list_topics())))


def _partitions(log: TopicLog, text: str) -> list[TopicPartition]:
    """Return the partitions that ``TOPIC`` or ``TOPIC:0,2`` means."""
    topic, colon, listed = text.partition(":")
    numbers = range(log.partition_count(topic))
    if not colon:
        return [TopicPartition(topic, number) for number in numbers]
    words = [word.strip() for word in listed.split(",")]
    if not all(word.isdecimal() and int(word) in numbers for word in words):
        msg = (
            f"`--topic {text}` names no partitions of {topic!r}. "
            f"It has {counted(len(numbers), 'partition')}, from 0: write `--topic {topic}:0`."
        )
        raise ConfigError(msg)
    return [TopicPartition(topic, int(word)) for word in words]


def _require(log: TopicLog, group: str) -> None:
    groups = log.list_groups()
    if group not in groups:
        there = ", ".join(groups[:10]) or "none"
        msg = f"There is no group {group!r}. The groups are: {there}."
        raise NotFoundError(msg)


def _total(log: TopicLog, group: str) -> int:
    return sum(partition.lag for partition in lag_of(log, group))


def _rows(lags: list[PartitionLag]) -> list[dict[str, Any]]:
    return [partition._asdict() for partition in lags]
