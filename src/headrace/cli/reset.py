"""``headrace reset``: let an application start over."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.brokers import TopicLog
from headrace.brokers.topic_names import unknown_topic
from headrace.cli.groups import application_id_of
from headrace.cli.session import NotFoundError, Session, with_options
from headrace.cli.settings import BrokerOptions, code_of, duration_of_flag, timestamp_of_flag
from headrace.cli.targets import is_target, load_target
from headrace.clients.reset import ResetPlan, ResetTo, execute_reset, plan_reset
from headrace.config import StreamsConfig
from headrace.errors import ConfigError, UnknownTopicError
from headrace.topology.naming import internal_topic, leader_name, markers_name, queries_name

_PANEL = "Where it starts over"


@dataclass(frozen=True)
class PositionOptions:
    """Flags that say where an application starts over; one of them, or none for the beginning."""

    to_earliest: Annotated[
        bool,
        typer.Option(
            "--to-earliest", help="At the beginning: the default.", rich_help_panel=_PANEL
        ),
    ] = False
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="At the end.", rich_help_panel=_PANEL)
    ] = False
    to_current: Annotated[
        bool,
        typer.Option(
            "--to-current", help="Where it was, without its state.", rich_help_panel=_PANEL
        ),
    ] = False
    to_offset: Annotated[
        int | None,
        typer.Option("--to-offset", min=0, help="At an offset.", rich_help_panel=_PANEL),
    ] = None
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime",
            help="At the first record of a time: 2026-01-31T08:00:00Z.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    by_duration: Annotated[
        str | None,
        typer.Option(
            "--by-duration", help="So long before now: 7d, 1h30m, P7D.", rich_help_panel=_PANEL
        ),
    ] = None
    shift_by: Annotated[
        int | None,
        typer.Option(
            "--shift-by", help="So many offsets on, or back if negative.", rich_help_panel=_PANEL
        ),
    ] = None

    def position(self) -> ResetTo:
        """Return where to start over.

        Raises:
            ConfigError: Several flags were given, or one cannot be read.
        """
        given: dict[str, Any] = {
            name: value
            for name, value in vars(self).items()
            if value is not None and value is not False
        }
        if len(given) > 1:
            flags = " and ".join(f"`--{name.replace('_', '-')}`" for name in given)
            msg = f"{flags} contradict each other. Give one."
            raise ConfigError(msg)
        if self.to_offset is not None:
            return ResetTo("offset", self.to_offset)
        if self.shift_by is not None:
            return ResetTo("shift", self.shift_by)
        if self.to_datetime is not None:
            return ResetTo("time", timestamp_of_flag(self.to_datetime, "--to-datetime"))
        if self.by_duration is not None:
            back = duration_of_flag(self.by_duration, "--by-duration")
            return ResetTo("time", time.time_ns() // 1_000_000 - back)
        if self.to_latest:
            return ResetTo("latest")
        return ResetTo("current" if self.to_current else "earliest")


@with_options
def reset(
    application: Annotated[str, typer.Argument(help="A program, or an application id.")],
    input_topics: Annotated[
        str | None,
        typer.Option("--input-topics", help="Start over in these alone: orders,payments"),
    ] = None,
    internal_topics: Annotated[
        str | None,
        typer.Option("--internal-topics", help="Delete these; left out: those with its name."),
    ] = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    session: Session,
    positions: PositionOptions,
    broker: BrokerOptions,
) -> None:
    """Let an application start over: offsets, internal topics, markers and checkpoint.

    What it wrote to its output topics stays there.
    """
    target = load_target(application) if is_target(application) else None
    code = None if target is None else code_of(target)
    config = broker.config(code)
    name = application_id_of(application, target, config)
    to = positions.position()
    lock = nullcontext() if dry_run else lock_of(config, name)
    with lock, broker.open(code) as log:
        there = log.list_topics()
        expected = target.input_topics(config, there) if target else []
        chosen = _names(input_topics) or []
        if missing := [topic for topic in chosen if topic not in there]:
            raise _unknown(missing[0], there, expected, log, name)
        plan = plan_reset(
            log,
            name,
            state_dir=config.state_dir,
            to=to,
            input_topics=chosen,
            expected_topics=expected,
            internal_topics=_names(internal_topics),
            there=there,
        )
        if target is None:
            _refuse_unknown(plan, log, config.state_dir)
        if not session.is_json:
            session.say(str(plan))
        if plan.is_empty:
            session.did("There is nothing to reset.", **_data(plan), done=False)
            return
        if not dry_run:
            session.ask(f"Reset application {name!r}?", yes=yes)
            execute_reset(log, plan)
        done = "Nothing was changed." if dry_run else f"Application {name!r} starts over."
        session.did(done, **_data(plan), done=not dry_run)


def lock_of(config: StreamsConfig, name: str) -> AbstractContextManager[object]:
    """Return what a running application holds, so that none runs while it is reset.

    Entering it raises an error that names who holds it.
    """
    from headrace.home import DirectoryLock, application_directory

    folder = application_directory(config.state_dir, name)
    return DirectoryLock(folder) if folder.is_dir() else nullcontext()


def _unknown(
    topic: str, there: Iterable[str], expected: Iterable[str], log: TopicLog, application_id: str
) -> UnknownTopicError:
    """Say that a topic to start over in does not exist; to create it would not help."""
    own = internal_topic(application_id, "")
    committed = {name.topic for name in log.committed_offsets(application_id)}
    read = sorted({each for each in committed if not each.startswith(own)} | {*expected})
    remedy = f"Application {application_id!r} reads {', '.join(read) or 'no topic yet'}."
    return UnknownTopicError(topic, nearest=unknown_topic(topic, there).nearest, remedy=remedy)


def _refuse_unknown(plan: ResetPlan, log: TopicLog, state_dir: Path) -> None:
    """Refuse an id of which there is no trace. What was reset keeps its offsets and its folder."""
    folders = state_dir.iterdir() if state_dir.is_dir() else ()
    known = {*log.list_groups(), *(folder.name for folder in folders if folder.is_dir())}
    if plan.application_id in known or plan.topics or plan.groups:
        return
    endings = tuple(name("") for name in (markers_name, leader_name, queries_name))
    ids = sorted(name for name in known if not name.endswith(endings))
    near = " or ".join(map(repr, get_close_matches(plan.application_id, ids, n=2)))
    remedy = f"Did you mean {near}?" if near else f"There is: {', '.join(ids[:10]) or 'none'}."
    msg = f"There is no application {plan.application_id!r}. {remedy}"
    raise NotFoundError(msg)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _data(plan: ResetPlan) -> dict[str, Any]:
    return {
        "application_id": plan.application_id,
        "offsets": [change._asdict() for change in plan.offsets],
        "topics": list(plan.topics),
        "groups": list(plan.groups),
        "checkpoint": None if plan.checkpoint is None else str(plan.checkpoint),
    }
