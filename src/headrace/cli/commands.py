"""All commands, put together."""

from __future__ import annotations

import typer

from headrace.cli.about import config_app, doctor, version
from headrace.cli.describe import describe
from headrace.cli.groups import groups, lag
from headrace.cli.records import consume, produce
from headrace.cli.reset import reset
from headrace.cli.run import plan, run
from headrace.cli.topics import topics

app = typer.Typer(
    name="headrace",
    help="Kafka Streams for Python, run by Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
for _command in (run, plan, describe):
    app.command(rich_help_panel="Programs")(_command)
for _command in (lag, reset):
    app.command(rich_help_panel="Applications")(_command)
app.add_typer(topics, name="topics", rich_help_panel="Topics and records")
for _command in (produce, consume):
    app.command(rich_help_panel="Topics and records")(_command)
app.add_typer(groups, name="groups", rich_help_panel="Topics and records")
for _command in (doctor, version):
    app.command(rich_help_panel="This installation")(_command)
app.add_typer(config_app, name="config", rich_help_panel="This installation")
