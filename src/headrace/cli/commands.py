"""All commands: their names and what they do, and where each is, loaded when it is called."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group


class Place(NamedTuple):
    """Where a command is, and what the list of commands says about it."""

    module: str
    name: str
    """The function, or the `Typer` that has commands of its own."""
    help: str


COMMANDS: dict[str, dict[str, Place]] = {
    "Programs": {
        "run": Place("run", "run", "Run a program on Spark until Ctrl-C."),
        "plan": Place("run", "plan", "Show how a program runs on Spark."),
        "describe": Place("describe", "describe", "Show what a topology is made of."),
    },
    "Applications": {
        "lag": Place("groups", "lag", "Show how much input lies before an application."),
        "reset": Place("reset", "reset", "Reset an application."),
    },
    "Topics and records": {
        "topics": Place("topics", "topics", "List, describe, create, delete and grow topics."),
        "produce": Place("records", "produce", "Write records."),
        "consume": Place("records", "consume", "Print records."),
        "groups": Place("groups", "groups", "List, describe and delete consumer groups."),
    },
    "This installation": {
        "doctor": Place("about", "doctor", "Check what Headrace needs."),
        "warm-up": Place("warm_up", "warm_up", "Let applications start in half the time."),
        "version": Place("about", "version", "Show the versions of Headrace and of what it uses."),
        "config": Place("about", "config_app", "Show settings."),
    },
}
"""The commands, under the headings of the list."""

_PLACES = {name: place for commands in COMMANDS.values() for name, place in commands.items()}


class _Loading(dict[str, Any]):
    """The commands by name; each is loaded when it is asked for."""

    def get(self, name: str, default: Any = None) -> Any:
        return load(name) if name in self else default


class Commands(TyperGroup):
    """Loads the command that is called and no other: together they take longer than most do."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Loading(_PLACES)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_PLACES)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for heading, commands in COMMANDS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, place.help) for name, place in commands.items()])


def load(name: str) -> Any:
    """Return a command as typer calls it."""
    place = _PLACES[name]
    found = getattr(import_module(f"headrace.cli.{place.module}"), place.name)
    if isinstance(found, typer.Typer):
        return get_group(found)
    single = typer.Typer(add_completion=False)
    single.command(name)(found)
    return get_command(single)


app = typer.Typer(
    name="headrace",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # loading what draws boxes takes longer than all the rest
    context_settings={"help_option_names": ["--help", "-h"]},
)


@app.callback()
def headrace() -> None:
    """Kafka Streams for Python, run by Spark."""
