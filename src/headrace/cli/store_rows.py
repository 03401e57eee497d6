"""Reads the entries of a store for ``headrace query``, and prints them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer

from headrace.cli.line_values import json_text
from headrace.cli.session import Row
from headrace.cli.settings import timestamp_of_flag
from headrace.errors import ConfigError
from headrace.state.store_types.base import LoggedStoreType

_option = partial(typer.Option, rich_help_panel="What to read")


@dataclass(frozen=True)
class ReadOptions:
    """Flags that choose the entries of a store."""

    first: Annotated[str | None, _option("--from", help="The first key of a range.")] = None
    last: Annotated[str | None, _option("--to", help="The last key of a range, included.")] = None
    prefix: Annotated[str | None, _option("--prefix", help="How the keys begin.")] = None
    since: Annotated[
        str | None, _option("--since", help="Of windows and sessions: the earliest time.")
    ] = None
    until: Annotated[
        str | None, _option("--until", help="Of windows and sessions: the latest time.")
    ] = None
    as_of: Annotated[
        str | None, _option("--as-of", help="Of a versioned store: the time of the version.")
    ] = None
    reverse: Annotated[bool, _option("--reverse", help="The last key first.")] = False
    limit: Annotated[int, _option("--limit", min=1, help="Print at most this many.")] = 100
    snapshot: Annotated[
        str | None, _option("--snapshot", help="Read at this snapshot: 3f9a1c07.812.")
    ] = None
    sql: Annotated[
        str | None, _option("--sql", help="A SELECT, in which each store is a table.")
    ] = None
    watch: Annotated[
        bool, _option("--watch", "-w", help="Print changes until Ctrl-C; a key chooses.")
    ] = False


_LAST = 2**63 - 1
_RANGE = {"--from", "--to", "--reverse"}
_TIMES = {"--since", "--until"}


def check_flags(
    read: ReadOptions, store_type: type[LoggedStoreType] | None, key: str | None
) -> None:
    """Refuse flags that the read does not use.

    The type is None if the application has no such store.

    Raises:
        ConfigError: A flag has no effect.
    """
    given = {
        name
        for name, value in (
            ("--from", read.first),
            ("--to", read.last),
            ("--prefix", read.prefix),
            ("--since", read.since),
            ("--until", read.until),
            ("--as-of", read.as_of),
            ("--reverse", read.reverse or None),
            ("--snapshot", read.snapshot),
            ("--sql", read.sql),
            ("--watch", read.watch or None),
        )
        if value is not None
    }
    what, allowed = _allowed(read, store_type, key)
    unused = sorted(given - allowed)
    if unused:
        msg = f"{what} does not use {', '.join(f'`{each}`' for each in unused)}. Leave it out."
        raise ConfigError(msg)


def _allowed(
    read: ReadOptions, store_type: type[LoggedStoreType] | None, key: str | None
) -> tuple[str, set[str]]:
    """Return what is read, and the flags that it uses."""
    if read.sql is not None:
        return "`--sql`", {"--sql", "--snapshot"}
    if read.watch:
        prefix = {"--prefix"} if key is None else set()
        return "`--watch`", {"--watch"} | prefix
    pinned = {"--snapshot"}
    if store_type is not None and store_type.has_windows:
        if store_type.has_sessions and key is None:
            return "A read of all sessions", pinned | _RANGE
        of_keys = _RANGE if key is None else {"--reverse"}
        return f"A read of a {store_type.kind} store", pinned | _TIMES | of_keys
    if key is not None:
        as_of = {"--as-of"} if store_type is None or store_type.is_versioned else set()
        return "A read of one key", pinned | as_of
    if read.prefix is not None:
        return "A read with `--prefix`", pinned | {"--prefix"}
    return "A read of several keys", pinned | _RANGE


def rows_of(
    found: Any, store_type: type[LoggedStoreType] | None, key: str | None, read: ReadOptions
) -> Iterator[Row]:
    """Yield the rows of a list of entries, windows or sessions.

    The type is None if the application has no such store. `check_flags` has passed the flags.
    """
    start = 0 if read.since is None else timestamp_of_flag(read.since, "--since")
    end = _LAST if read.until is None else timestamp_of_flag(read.until, "--until")
    if store_type is None or not store_type.has_windows:
        is_versioned = store_type is not None and store_type.is_versioned
        for each, value in _entries(found, read):
            shown = value.value if is_versioned and hasattr(value, "value") else value
            yield {"key": text_of(each), "value": text_of(shown)}
    elif key is not None and not store_type.has_sessions:
        fetch = found.backward_fetch if read.reverse else found.fetch
        for at, value in fetch(key, start, end):
            yield {"key": key, "start": at, "value": text_of(value)}
    else:
        for windowed, value in _windowed(found, store_type, key, (start, end), read):
            window = windowed.window
            row = {"key": text_of(windowed.key), "start": window.start, "end": window.end}
            yield {**row, "value": text_of(value)}


def _windowed(
    found: Any,
    store_type: type[LoggedStoreType],
    key: str | None,
    times: tuple[int, int],
    read: ReadOptions,
) -> Iterator[tuple[Any, Any]]:
    if key is not None:
        fetch = found.backward_find_sessions if read.reverse else found.find_sessions
        return fetch(key, *times)  # type: ignore[no-any-return]
    fetch = found.backward_fetch_range if read.reverse else found.fetch_range
    of_windows = () if store_type.has_sessions else times
    return fetch(read.first, read.last, *of_windows)  # type: ignore[no-any-return]


def _entries(found: Any, read: ReadOptions) -> Iterator[tuple[Any, Any]]:
    if read.prefix is not None:
        return found.prefix_scan(read.prefix)  # type: ignore[no-any-return]
    ranged = found.reverse_range if read.reverse else found.range
    return ranged(read.first, read.last)  # type: ignore[no-any-return]


def text_of(value: Any) -> str:
    """Return a value for people: text as it is, others as JSON."""
    return value if isinstance(value, str) else json_text(value)
