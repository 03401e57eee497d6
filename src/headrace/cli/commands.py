"""All commands: their names, help texts and modules. A call loads one module."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from headrace import __version__


class CommandEntry(NamedTuple):
    """The module of a command, and its line in the list of commands."""

    module: str
    name: str
    """The function, or the `Typer` that has commands of its own."""
    help: str


COMMANDS: dict[str, dict[str, CommandEntry]] = {
    "Programs": {
        "run": CommandEntry("run", "run", "Run a program on Spark until Ctrl-C."),
        "plan": CommandEntry("run", "plan", "Show how a program runs on Spark."),
        "describe": CommandEntry("describe", "describe", "Show the topology of a program."),
        "example": CommandEntry("example", "example", "List the examples, or run one."),
    },
    "Queries": {
        "serve": CommandEntry("serve", "serve", "Answer queries of an application over HTTP."),
        "query": CommandEntry("queries", "query", "Read a store of a running application."),
        "stores": CommandEntry("queries", "stores", "List the stores of an application."),
        "status": CommandEntry(
            "queries",
            "status",
            "Show state, lag and errors, and which instance answers for what.",
        ),
    },
    "Applications": {
        "lag": CommandEntry("groups", "lag", "Show how many records an application has not read."),
        "reset": CommandEntry("reset", "reset", "Reset an application."),
    },
    "Topics and records": {
        "topics": CommandEntry(
            "topics", "topics", "List, describe, create, alter and delete topics."
        ),
        "produce": CommandEntry("records", "produce", "Write records."),
        "consume": CommandEntry("records", "consume", "Print records."),
        "broker": CommandEntry("broker", "broker", "Run a Kafka broker on 127.0.0.1 until Ctrl-C."),
        "groups": CommandEntry(
            "groups", "groups", "List, describe, reset and delete consumer groups."
        ),
    },
    "This installation": {
        "doctor": CommandEntry("about", "doctor", "Check Java, packages, broker and disk."),
        "warm-up": CommandEntry("warm_up", "warm_up", "Halve the start time of applications."),
        "version": CommandEntry(
            "about", "version", "Show the versions of Headrace and its packages."
        ),
        "config": CommandEntry("about", "config_app", "Show settings."),
    },
}
"""The commands, under the headings of the list."""

_ENTRIES = {name: entry for commands in COMMANDS.values() for name, entry in commands.items()}


class _Loading(dict[str, Any]):
    """The commands by name; `get` loads one."""

    def get(self, name: str, default: Any = None) -> Any:
        return load(name) if name in self else default


class Commands(TyperGroup):
    """Loads only the command that is called: loading all takes longer than most commands run."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Loading(_ENTRIES)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_ENTRIES)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for heading, commands in COMMANDS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, entry.help) for name, entry in commands.items()])


def load(name: str) -> Any:
    """Return a command as typer calls it."""
    entry = _ENTRIES[name]
    command = getattr(import_module(f"headrace.cli.{entry.module}"), entry.name)
    if isinstance(command, typer.Typer):
        return get_group(command)
    single = typer.Typer(add_completion=False)
    single.command(name)(command)
    return get_command(single)


app = typer.Typer(
    name="headrace",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # loading what draws boxes takes longer than all the rest
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def headrace(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Kafka Streams for Python, run by Spark."""
