"""``headrace query``, ``stores`` and ``status``: ask the instances of an application."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.asking import ApplicationName, InstanceOptions
from headrace.cli.session import NotFoundError, Session, with_options
from headrace.cli.settings import BrokerOptions, timestamp_of_flag
from headrace.cli.store_rows import ReadOptions, check_flags, rows_of, text_of
from headrace.errors import ConfigError
from headrace.state.store_types.lookup import logged_type_named

if TYPE_CHECKING:
    from headrace.queries.client.client import QueryClient, SnapshotReads
    from headrace.queries.client.events import StoreChange, StoreReset


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
    if read.watch or read.sql is not None:
        check_flags(read, None, key)
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
    kinds = {each["name"]: each["kind"] for each in client.stores(counted=False)}
    store_type = logged_type_named(kinds[store]) if store in kinds else None
    check_flags(read, store_type, key)
    if key is not None and store_type is not None and not store_type.has_windows:
        as_of = None if read.as_of is None else timestamp_of_flag(read.as_of, "--as-of")
        value = reads.store(store).get(key, as_of)
        if value is None:
            msg = f"Store {store!r} has no key {key!r}."
            raise NotFoundError(msg)
        if store_type.is_versioned:
            session.show_one({"value": value.value, "valid_from": value.timestamp})
        elif session.is_json:
            session.show_json(value)
        else:
            typer.echo(text_of(value))
        return
    rows = islice(rows_of(reads.store(store), store_type, key, read), read.limit + 1)
    found = [*rows]
    session.show(found[: read.limit], empty=f"Store {store!r} has no such entry.")
    if len(found) > read.limit:
        session.note(f"There are more: add `--limit {10 * read.limit}`.", more=True)


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
                f"{facts['snapshot']}  {text_of(facts['key'])}{window}  {text_of(facts['value'])}"
            )
        else:
            typer.echo(f"{facts['snapshot']}  earlier changes are not known")


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
        found = client.stores()
    columns = ("name", "kind", "key", "value", "partitions", "snapshot", "lag")
    rows = [{name: each[name] for name in columns} | {"entries": _entries(each)} for each in found]
    session.show(rows, empty="The application has no store that can be queried.")


def _entries(store: dict[str, Any]) -> str | int | None:
    entries: int | None = store["entries"]
    return entries if store["entries_are_complete"] or entries is None else f"over {entries}"


@with_options
def status(
    application: ApplicationName,
    *,
    session: Session,
    instance: InstanceOptions,
    broker: BrokerOptions,
) -> None:
    """Show state, lag and errors, and which instance answers for what."""
    with instance.client(application, broker) as client:
        shards, snapshots = client.metadata(), client.snapshots()
        lags, errors = client.lag(), client.errors()
    facts = _facts_of_run(shards, snapshots, lags, errors)
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
    if session.is_json:
        session.show_json({**facts, "shards": rows})
        return
    session.show_one(facts)
    typer.echo()
    session.show(rows, empty="The application has no store that can be queried.")


def _facts_of_run(
    shards: list[dict[str, Any]],
    snapshots: list[dict[str, Any]],
    lags: list[dict[str, Any]],
    errors: list[dict[str, Any]],
) -> dict[str, Any]:
    """Return what the newest snapshot says about the application."""
    newest = snapshots[0] if snapshots else {}
    records, seconds = newest.get("records"), newest.get("seconds")
    of_inputs = [each["lag"] for each in lags if each["kind"] == "input"]
    return {
        "state": "RUNNING" if all(each["is_ready"] for each in shards) else "REBALANCING",
        "snapshot": newest.get("snapshot"),
        "batch": newest.get("batch"),
        "age_ms": newest.get("age_ms"),
        "records_per_second": round(records / seconds) if records and seconds else records,
        "lag": sum(each for each in of_inputs if each is not None),
        "errors": sum(each["count"] for each in errors),
        "most_frequent_error": errors[0]["first"] or errors[0]["reason"] if errors else None,
    }


def _address(host: Any) -> str:
    return "-" if host is None else f"{host['host']}:{host['port']}"
