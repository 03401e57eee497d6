"""The options of all commands: how they print, ask and fail."""

from __future__ import annotations

import inspect
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_type_hints

import typer

from headrace.cli.line_values import json_text
from headrace.cli.targets import TargetError
from headrace.control_characters import escape_controls
from headrace.errors import (
    BrokerUnavailableError,
    BufferExhaustedError,
    ConfigError,
    QueryError,
    StreamsError,
    UnknownTopicError,
)

if TYPE_CHECKING:
    from rich.console import Console

FAILED, USAGE, NOT_READY, NOT_FOUND, INTERRUPTED = 1, 2, 3, 4, 130
"""The exit codes besides 0."""
_CODES_OF_STATUS = {401: FAILED, 403: FAILED, 404: NOT_FOUND, 422: USAGE, 500: FAILED}
"""The exit codes for answers of instances; others mean that it is not ready."""

_LONGEST_PATH = 200
"""How many characters of a path a message shows."""

Row: TypeAlias = Mapping[str, Any]


class OutputFormat(StrEnum):
    """The format of results."""

    TABLE = "table"
    JSON = "json"


class NotFoundError(StreamsError):
    """There is no such topic, group, application or program."""


class RefusedError(StreamsError):
    """A command does nothing because it was not confirmed."""


@dataclass(frozen=True)
class Session:
    """One run of a command, and how it prints."""

    output: Annotated[OutputFormat, typer.Option("--output", help="The format of results.")] = (
        OutputFormat.TABLE
    )
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print results and errors, nothing else.")
    ] = False
    no_color: Annotated[
        bool, typer.Option("--no-color", help="No colours; the variable NO_COLOR does the same.")
    ] = False
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where in the program an error was raised.")
    ] = False
    verbose: Annotated[
        int, typer.Option("--verbose", "-v", count=True, help="Log more; twice: everything.")
    ] = 0

    @property
    def is_json(self) -> bool:
        """Return whether results are written for programs."""
        return self.output is OutputFormat.JSON

    @property
    def log_level(self) -> int:
        """The lowest level that is logged."""
        return max(logging.WARNING - 10 * self.verbose, logging.DEBUG)

    def terminal(self) -> Console | None:
        """Return the terminal to draw on, if there is one and drawing is wanted."""
        if self.quiet or self.is_json or not sys.stdout.isatty():
            return None
        from rich.console import Console

        return Console(no_color=True if self.no_color else None)

    def say(self, text: str) -> None:
        """Print something that is not a result."""
        if not self.quiet and not self.is_json:
            typer.echo(text)

    def show(self, rows: Sequence[Row], *, empty: str = "Nothing.") -> None:
        """Print rows: a table, or a list in JSON. The names of the first row are the columns."""
        if self.is_json:
            self.show_json(list(rows))
        elif not rows:
            self.say(empty)
        elif sys.stdout.isatty():
            print_table(rows, no_color=self.no_color)
        else:
            typer.echo(_columns(rows))

    def show_one(self, row: Row) -> None:
        """Print one thing: a name and a value on each line, or an object in JSON."""
        if self.is_json:
            self.show_json(row)
            return
        width = max(len(name) for name in row)
        for name, value in row.items():
            typer.echo(f"{name:{width}}  {_text(value)}")

    def show_json(self, value: Any) -> None:
        """Print a value in JSON."""
        typer.echo(escape_controls(json_text(value)))

    def did(self, text: str, **facts: Any) -> None:
        """Print the outcome: in words, or the facts in JSON."""
        if self.is_json:
            self.show_json(facts)
        else:
            self.say(text)

    def note(self, text: str, **facts: Any) -> None:
        """Print something beside the result, on standard error: in words, or the facts in JSON."""
        if not self.quiet:
            typer.echo(json.dumps(facts, ensure_ascii=False) if self.is_json else text, err=True)

    def ask(self, question: str, *, yes: bool) -> None:
        """Return if the user agrees, or has agreed with ``--yes``.

        Raises:
            RefusedError: The answer was no, or standard input is not a terminal.
        """
        if yes:
            return
        if not can_answer():
            msg = f"{question} Cannot ask: standard input is not a terminal. Add `--yes`."
            raise RefusedError(msg)
        if not typer.confirm(question):
            msg = "Nothing was changed."
            raise RefusedError(msg)

    def run(self, command: Callable[[], None]) -> None:
        """Run a command, and turn an error into a message and an exit code."""
        logging.basicConfig(level=self.log_level)
        logging.getLogger("py4j").setLevel(logging.WARNING)  # it logs each call to Java
        logging.getLogger().addFilter(_is_not_of_py4j)
        try:
            command()
        except StreamsError as error:
            self._report(error)
            raise typer.Exit(exit_code_of(error)) from None
        except BrokenPipeError:  # the reader of a pipe has ended, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit from None
        except OSError as error:
            if error.filename is None:
                raise  # not of a path that the user has given
            path = _shortened(str(error.filename))
            failure = StreamsError(f"Cannot use {path!r}: {error.strerror}.", "Use another path.")
            self._report(failure.with_traceback(error.__traceback__))
            raise typer.Exit(FAILED) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None

    def _report(self, error: StreamsError) -> None:
        if self.traceback:
            text = "".join(traceback.format_exception(error))
            typer.echo(escape_controls(text, keep="\n\t"), err=True, nl=False)
        elif self.is_json:
            report = {"error": type(error).__name__, "message": str(error)}
            typer.echo(escape_controls(json.dumps(report, ensure_ascii=False)), err=True)
        else:
            notes = getattr(error, "__notes__", ())
            text = "\n".join([f"Error: {error}", *notes])
            typer.echo(escape_controls(text, keep="\n\t"), err=True)


def _shortened(path: str) -> str:
    """Return a path, or its beginning if it is too long for any file system."""
    return path if len(path) <= _LONGEST_PATH else f"{path[:_LONGEST_PATH]}…"


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Return whether a record of the root logger is ours; py4j's tracebacks of Java are not."""
    return f"{os.sep}py4j{os.sep}" not in record.pathname


def counted(number: int, noun: str) -> str:
    """Return how many there are in words: 1 record, 2 records."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def can_answer() -> bool:
    """Return whether standard input is a terminal."""
    return sys.stdin.isatty()


@contextmanager
def extra_needed(what: str, extra: str) -> Iterator[None]:
    """Turn a failed import into an error that names the extra to install.

    Raises:
        StreamsError: A package of the extra is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        msg = (
            f"{what} needs {error.name!r}, which is not installed. "
            f"Install it with `pip install 'headrace[{extra}]'`."
        )
        raise StreamsError(msg) from error


def exit_code_of(error: StreamsError) -> int:
    """Return the exit code for an error."""
    if isinstance(error, ConfigError):
        return USAGE
    status = getattr(getattr(error, "code", None), "status", None)
    if status in _CODES_OF_STATUS:  # an instance has answered
        return _CODES_OF_STATUS[status]
    if isinstance(error, UnknownTopicError | NotFoundError):
        return NOT_FOUND
    if isinstance(error, TargetError):
        return NOT_FOUND if error.missing else FAILED
    if isinstance(error, BrokerUnavailableError | BufferExhaustedError | QueryError):
        return NOT_READY
    return FAILED


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Expand option groups: a parameter that is a dataclass becomes one option per field.

    A group called ``session`` also runs the command.
    """
    hints = get_type_hints(command, include_extras=True)
    hints.pop("return", None)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            parameters += _parameters_of(groups[name])
        else:
            parameters.append(
                parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hints[name])
            )

    @wraps(command)
    def expanded(**arguments: Any) -> None:
        made: dict[str, Any] = {
            name: group(**{field.name: arguments.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        made["session"].run(lambda: command(**arguments, **made))

    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by typer
    expanded.__annotations__ = {p.name: p.annotation for p in parameters}
    return expanded


def _parameters_of(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]


def print_table(rows: Sequence[Row], *, no_color: bool = False) -> None:
    """Print rows as a table that fits the terminal."""
    # Most output goes to no terminal, and loading this takes longer than most commands.
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in rows[0]:
        right = all(isinstance(row[name], int | float) for row in rows)
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_text(value) for value in row.values()))
    plain = no_color or bool(os.environ.get("NO_COLOR"))
    Console(no_color=plain, highlight=False, markup=False).print(table)


def _columns(rows: Sequence[Row]) -> str:
    """Return rows as aligned text, of any width: other programs read it."""
    lines = [list(rows[0]), *([_text(value) for value in row.values()] for row in rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    return "\n".join(_line(cells, widths) for cells in lines)


def _line(cells: Iterable[str], widths: Iterable[int]) -> str:
    return "  ".join(c.ljust(width) for c, width in zip(cells, widths, strict=True)).rstrip()


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={item}" for name, item in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "-"
    return escape_controls(str(value))
