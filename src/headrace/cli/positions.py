"""The flags for where an application or a group starts over."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from headrace.cli.settings import duration_of_flag, timestamp_of_flag
from headrace.clients.offsets import ResetTo
from headrace.errors import ConfigError

_PANEL = "Where it starts over"


@dataclass(frozen=True)
class PositionOptions:
    """Flags for where reading starts over; one of them, or none for the beginning."""

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
            "--by-duration", help="This long before now: 7d, 1h30m, P7D.", rich_help_panel=_PANEL
        ),
    ] = None
    shift_by: Annotated[
        int | None,
        typer.Option(
            "--shift-by",
            help="This many offsets later, or earlier if negative.",
            rich_help_panel=_PANEL,
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
