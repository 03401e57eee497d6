"""``headrace run`` and ``headrace plan``: a program on Spark, and how it will run there."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer

from headrace.app import KafkaStreams
from headrace.cli.session import Session, extra_needed, with_options
from headrace.cli.settings import BrokerOptions, code_of, laid_over, named
from headrace.cli.targets import Target, load_target
from headrace.foreground import log_lines, run_until_stopped

_option = partial(typer.Option, rich_help_panel="How it runs")

TargetName = Annotated[str, typer.Argument(help="file.py[:name] or module[:name]")]


@dataclass(frozen=True)
class RunOptions:
    """Flags that are settings of an application."""

    application_id: Annotated[str | None, _option("--application-id", help="Its name.")] = None
    trigger: Annotated[
        str | None,
        _option(
            "--trigger",
            help="continuous, available_now (until the input is used up), or an interval: 5s.",
        ),
    ] = None
    master: Annotated[
        str | None, _option("--master", help="Spark's master: local[4], spark://host:7077.")
    ] = None

    def flags(self) -> dict[str, Any]:
        """Return the flags that were used, under dotted names."""
        named = {
            "application.id": self.application_id,
            "trigger": self.trigger,
            "spark.master": self.master,
        }
        return {name: value for name, value in named.items() if value is not None}


@with_options
def run(target: TargetName, *, session: Session, how: RunOptions, broker: BrokerOptions) -> None:
    """Run a program on Spark until Ctrl-C, or until its input is used up."""
    app = application_of(load_target(target), how, broker)
    terminal = session.terminal()
    level = logging.WARNING if session.quiet or terminal is not None else logging.INFO
    formatter = _JsonLines() if session.is_json else None
    with broker.repeated_in_errors(app.config), log_lines(min(level, session.log_level), formatter):
        code = run_until_stopped(app, terminal)
    if code:
        raise typer.Exit(code)


@with_options
def plan(target: TargetName, *, session: Session, how: RunOptions, broker: BrokerOptions) -> None:
    """Show how a program runs on Spark: stages, tasks, stores and exchanges. Nothing runs."""
    app = application_of(load_target(target), how, broker)
    with extra_needed("The plan", "spark"):
        from headrace.cli.plan_output import data_from_plan, text_from_plan
        from headrace.runtime.plan import plan_topology
    execution_plan = plan_topology(app.topology, app.config)
    if session.is_json:
        session.show_json(data_from_plan(execution_plan, app.config))
    else:
        typer.echo(text_from_plan(execution_plan, app.config))


class _JsonLines(logging.Formatter):
    """Makes a log line that is an object in JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def application_of(target: Target, how: RunOptions, broker: BrokerOptions) -> KafkaStreams:
    """Return the application of a target, with what its surroundings say laid over its settings.

    A target that is only a topology becomes an application, named after its file.
    """
    config = laid_over(code_of(target), broker.flags() | how.flags(), broker.command_config)
    if target.app is not None:
        target.app.config = config
        return target.app
    return KafkaStreams(target.topology, named(config, target))
