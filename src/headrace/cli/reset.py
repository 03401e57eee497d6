"""``headrace reset``: delete the state and the progress of an application."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from difflib import get_close_matches
from typing import Annotated, Any

import typer

from headrace.brokers import TopicLog
from headrace.brokers.topic_names import unknown_topic
from headrace.cli.groups import application_id_of
from headrace.cli.positions import PositionOptions
from headrace.cli.session import NotFoundError, Session, with_options
from headrace.cli.settings import BrokerOptions, code_of
from headrace.cli.targets import is_target, load_target
from headrace.clients.reset import ResetPlan, execute_reset, plan_reset
from headrace.errors import UnknownTopicError
from headrace.home import ApplicationHome, applications_in
from headrace.runtime.leadership import locks_of
from headrace.topology.naming import internal_topic, leader_name, markers_name, queries_name


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
        bool, typer.Option("--dry-run", help="Show the steps, and do nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    session: Session,
    positions: PositionOptions,
    broker: BrokerOptions,
) -> None:
    """Reset an application: offsets, internal topics, markers and checkpoint.

    The records in its output topics stay.
    """
    target = load_target(application) if is_target(application) else None
    code = None if target is None else code_of(target)
    config = broker.config(code)
    name = application_id_of(application, target, config)
    to = positions.position()
    with broker.open(code) as log, ExitStack() as locks:
        home = ApplicationHome.of(config.with_settings(application_id=name), log.cluster_id())
        for lock in () if dry_run else locks_of(log, home):
            locks.enter_context(lock)
        existing = log.list_topics()
        expected = target.input_topics(config, existing) if target else []
        chosen = _names(input_topics) or []
        if missing := [topic for topic in chosen if topic not in existing]:
            raise _unknown(missing[0], existing, expected, log, name)
        plan = plan_reset(
            log,
            home,
            to=to,
            input_topics=chosen,
            expected_topics=expected,
            internal_topics=_names(internal_topics),
            existing_topics=existing,
        )
        if target is None:
            _check_known(plan, log)
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


def _unknown(
    topic: str, existing: Iterable[str], expected: Iterable[str], log: TopicLog, application_id: str
) -> UnknownTopicError:
    """Return the error for a topic to start over in that does not exist; creating it is no help."""
    own = internal_topic(application_id, "")
    committed = {name.topic for name in log.committed_offsets(application_id)}
    read = sorted({name for name in committed if not name.startswith(own)} | {*expected})
    remedy = f"Application {application_id!r} reads {', '.join(read) or 'no topic yet'}."
    return UnknownTopicError(topic, nearest=unknown_topic(topic, existing).nearest, remedy=remedy)


def _check_known(plan: ResetPlan, log: TopicLog) -> None:
    """Check that an id has left a trace. An application that was reset has offsets and a folder."""
    state_dir, application_id = plan.home.state_dir, plan.home.application_id
    known = {*log.list_groups(), *applications_in(state_dir)}
    if application_id in known or plan.topics or plan.groups:
        return
    endings = tuple(name("") for name in (markers_name, leader_name, queries_name))
    ids = sorted(name for name in known if not name.endswith(endings))
    near = " or ".join(map(repr, get_close_matches(application_id, ids, n=2)))
    remedy = f"Did you mean {near}?" if near else f"There is: {', '.join(ids[:10]) or 'none'}."
    msg = f"There is no application {application_id!r}. {remedy}"
    raise NotFoundError(msg)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _data(plan: ResetPlan) -> dict[str, Any]:
    return {
        "application_id": plan.home.application_id,
        "offsets": [change._asdict() for change in plan.offsets],
        "topics": list(plan.topics),
        "groups": list(plan.groups),
        "checkpoints": list(plan.checkpoints),
    }
