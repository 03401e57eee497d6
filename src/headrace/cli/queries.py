"""``headrace query``, ``stores`` and ``status``: ask the instances of an application."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.asking import ApplicationName, InstanceOptions
from headrace.cli.session import NotFoundError, Row, Session, with_options
from headrace.cli.settings import BrokerOptions, timestamp_of_flag
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.queries.client.client import QueryClient, SnapshotReads
    from headrace.queries.client.events import StoreChange, StoreReset

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


@with_options
def query(
    application: ApplicationName,
    store: Annotated[str | None, typer.Argument(help="The name of a store.")] = None,
    key: Annotated[str | None, typer.Argument(help="A key; left out: a range, or all.")] = None,
    *,
    session: Session,
    read: ReadOptions,
    instance: InstanceOptions,
    broker: BrokerOptions,
) -> None:
    """Read a store of a running application: a key, a range, SQL, or its changes."""
    if (store is None) is (read.sql is None):
        msg = "Name a store, or give `--sql`."
        raise ConfigError(msg)
    with instance.client(application, broker) as client:
        if read.watch and store is not None:
            _print_changes(session, client.watch(store, key=key, prefix=read.prefix))
            return
        reads = client if read.snapshot is None else client.snapshot(read.snapshot)
        if read.sql is not None:
            result = reads.sql(read.sql)
            rows = [dict(zip(result.columns, row, strict=True)) for row in result.rows]
            session.show(rows, empty="No rows.")
        elif store is not None:
            _read_store(session, client, reads, store, key, read)
        if not session.is_json and client.last_token is not None:
            session.note(f"Snapshot {client.last_token}.")


def _read_store(
    session: Session,
    client: QueryClient,
    reads: SnapshotReads,
    store: str,
    key: str | None,
    read: ReadOptions,
) -> None:
    kinds = {each["name"]: each["kind"] for each in client.stores()}
    kind = kinds.get(store, "")
    if key is not None and kind in _POINTS:
        as_of = None if read.as_of is None else timestamp_of_flag(read.as_of, "--as-of")
        value = reads.store(store).get(key, as_of)
        if value is None:
            msg = f"Store {store!r} has no key {key!r}."
            raise NotFoundError(msg)
        if kind == "versioned_key_value":
            session.show_one({"value": value.value, "valid_from": value.timestamp})
        elif session.is_json:
            session.show_json(value)
        else:
            typer.echo(_text(value))
        return
    rows = islice(_rows(reads.store(store), kind, key, read), read.limit + 1)
    found = [*rows]
    session.show(found[: read.limit], empty=f"Store {store!r} has no such entry.")
    if len(found) > read.limit:
        session.note(f"There are more: add `--limit {10 * read.limit}`.", more=True)


_POINTS = ("key_value", "timestamped_key_value", "versioned_key_value", "lru_map")


def _rows(found: Any, kind: str, key: str | None, read: ReadOptions) -> Iterator[Row]:
    """Yield the rows of a list of entries, windows or sessions."""
    start = None if read.since is None else timestamp_of_flag(read.since, "--since")
    end = None if read.until is None else timestamp_of_flag(read.until, "--until")
    if "window" in kind:
        if key is not None:
            windows: Iterable[Any] = found.fetch(key, start or 0, _LAST if end is None else end)
            yield from ({"key": key, "start": at, "value": _text(each)} for at, each in windows)
            return
        windows = found.fetch_all(start or 0, _LAST if end is None else end)
    elif kind == "session":
        windows = found.all() if key is None else found.fetch(key)
    else:
        yield from (
            {"key": _text(each), "value": _text(value)} for each, value in _entries(found, read)
        )
        return
    for windowed, value in windows:
        window = windowed.window
        row = {"key": _text(windowed.key), "start": window.start, "end": window.end}
        yield {**row, "value": _text(value)}


_LAST = 2**63 - 1


def _entries(found: Any, read: ReadOptions) -> Iterator[tuple[Any, Any]]:
    if read.prefix is not None:
        return found.prefix_scan(read.prefix)  # type: ignore[no-any-return]
    ranged = found.reverse_range if read.reverse else found.range
    return ranged(read.first, read.last)  # type: ignore[no-any-return]


def _print_changes(session: Session, changes: Iterator[StoreChange | StoreReset]) -> None:
    for change in changes:
        facts = {
            name: str(value) if name == "snapshot" else value
            for name, value in change._asdict().items()
            if value is not None or name == "value"
        }
        if session.is_json:
            session.show_json(facts)
        elif "key" in facts:
            window = f" [{facts['start']}, {facts['end']})" if "end" in facts else ""
            typer.echo(
                f"{facts['snapshot']}  {_text(facts['key'])}{window}  {_text(facts['value'])}"
            )
        else:
            typer.echo(f"{facts['snapshot']}  earlier changes are not known")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@with_options
def stores(
    application: ApplicationName,
    *,
    session: Session,
    instance: InstanceOptions,
    broker: BrokerOptions,
) -> None:
    """List the stores of an application that can be queried."""
    with instance.client(application, broker) as client:
        rows = [
            {name: each[name] for name in ("name", "kind", "key", "value", "partitions")}
            for each in client.stores()
        ]
    session.show(rows, empty="The application has no store that can be queried.")


@with_options
def status(
    application: ApplicationName,
    *,
    session: Session,
    instance: InstanceOptions,
    broker: BrokerOptions,
) -> None:
    """Show which instance answers for which partitions."""
    with instance.client(application, broker) as client:
        shards = client.metadata()
    rows = [
        {
            "stores": ", ".join(each["stores"]),
            "partition": each["partition"],
            "active": _address(each["active"]),
            "standby": ", ".join(map(_address, each["standby"])) or None,
            "ready": "yes" if each["is_ready"] else "no",
        }
        for each in shards
    ]
    session.show(rows, empty="No snapshot was read yet. Has the application run?")


def _address(host: Any) -> str:
    return "-" if host is None else f"{host['host']}:{host['port']}"
