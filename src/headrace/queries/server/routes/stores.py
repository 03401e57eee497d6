"""The routes that read one store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from headrace.queries.catalog import QueryableStore
from headrace.queries.coordination.answers import Bound
from headrace.queries.http_names import ARROW_TYPE
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.reads import (
    FetchSessions,
    FetchVersions,
    FetchWindows,
    GetKey,
    Operation,
    Row,
    ScanKeys,
    whole_read,
)
from headrace.queries.server.bounds import (
    LAST_TIME,
    MOST_ROWS,
    BoundQuery,
    CursorText,
    EncodingName,
    KeyText,
    Limit,
    StoreName,
    Time,
    time_from_text,
)
from headrace.queries.server.replies import (
    list_answer,
    list_json,
    plain_answer,
    present_answer,
    stream_answer,
    stream_type,
    value_answer,
)
from headrace.queries.server.routes.arrow_rows import arrow_stream
from headrace.queries.server.served import Served, served_of
from headrace.queries.server.store_encodings import StoreEncoding
from headrace.queries.tokens import token_of
from headrace.runtime.snapshots import SnapshotRecord
from headrace.serdes.base import Serde

router = APIRouter(prefix="/v1/stores", tags=["stores"])

Shared: TypeAlias = Annotated[Served, Depends(served_of)]
Order: TypeAlias = Annotated[Literal["asc", "desc"], Query(description="The order of the keys.")]
KeyQuery: TypeAlias = Annotated[
    str | None, Query(description="A key as text, read by the key type of the store.")
]
"""A key in the parameters of a URL."""

COUNTED_ENTRIES = 10_000
_PAGE = 100


class KeyBody(BaseModel):
    """A key of any type."""

    model_config = ConfigDict(extra="forbid")
    key: Any = Field(description="The key as JSON.")
    as_of: int | None = Field(
        None, ge=0, le=LAST_TIME, description="Of a versioned store: the time of the version."
    )


@router.get("", summary="The queryable stores")
async def list_stores(
    served: Shared,
    request: Request,
    *,
    counted: Annotated[bool, Query(description="Whether to count the entries.")] = True,
) -> Response:
    """Return the stores of the application, each as its own route describes it."""
    stores = served.catalog.stores.values()
    found = [await _described(served, each, counted=counted) for each in stores]
    return plain_answer(request, served, found)


async def _described(served: Served, store: QueryableStore, *, counted: bool) -> dict[str, Any]:
    """Return what is known about a store; None in place of what is not."""
    record, entries = served.instance.newest_record(), None
    if counted:
        with suppress(QueryProblemError):
            record, entries = await _counted(served, store)
    return _facts(served, store, record, entries)


def _facts(
    served: Served, store: QueryableStore, record: SnapshotRecord | None, entries: int | None
) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": store.name,
        "kind": store.kind,
        "key": _serde_name(store.key),
        "value": _serde_name(store.value),
        "is_global": store.is_global,
        "changelog": store.changelog,
        "partitions": 0 if record is None else len(served.catalog.shards(store, record)),
        "entries": None if entries is None else min(entries, COUNTED_ENTRIES),
        "entries_are_complete": entries is not None and entries <= COUNTED_ENTRIES,
        "snapshot": None if record is None else str(token_of(record)),
        "position": {} if record is None else record.position,
    }
    lags = served.instance.lags().items()
    of_store = [ends for name, ends in lags if name.topic == store.changelog]
    facts["lag"] = sum(max(0, newest - shown) for shown, newest in of_store)
    return facts


def _serde_name(serde: Serde[Any]) -> str:
    type_ = getattr(serde, "type", None)
    name = type(serde).__name__
    return name if type_ is None else f"{name}({getattr(type_, '__name__', type_)})"


@router.get("/{store}", summary="One store")
async def describe_store(store: StoreName, served: Shared, request: Request) -> Response:
    """Return kind, number of entries, snapshot, position and lag of a store."""
    found = served.store(store)
    record, entries = await _counted(served, found)
    facts = _facts(served, found, record, entries)
    body = list_json([msgspec.json.encode(facts)], None, token_of(record))
    return present_answer(request, served, body, record)


async def _counted(served: Served, store: QueryableStore) -> tuple[SnapshotRecord, int]:
    """Return the snapshot and the number of the entries, up to one more than are counted.

    They stay the same as long as no snapshot follows.
    """
    newest = served.instance.newest_record()
    known = served.counts.get(store.name)
    if (
        known is not None
        and newest is not None
        and (newest.history, newest.snapshot) == (known[0].history, known[0].snapshot)
        and served.instance.problem() is None
    ):
        return known
    _, record, batches = await served.coordinator.row_batches(store.name, whole_read(store.type))
    entries = 0
    async for batch in batches:
        entries += len(batch)
        if entries > COUNTED_ENTRIES:
            break
    served.counts[store.name] = record, entries
    return record, entries


@router.get("/{store}/keys/{key:path}", summary="The value of a key")
async def read_key(
    store: StoreName,
    key: KeyText,
    bound: BoundQuery,
    served: Shared,
    request: Request,
    as_of: Time = None,
    encoding: EncodingName = "json",
) -> Response:
    """Return the bare value; the headers name the snapshot."""
    encoded = served.encoding(store, encoding)
    time = None if as_of is None else time_from_text(as_of, 0)
    read = GetKey(encoded.key_from_text(key), time)
    return await _point_answer(served, request, encoded, read, bound)


@router.post("/{store}/get", summary="The value of a key of any type")
async def read_typed_key(
    store: StoreName,
    body: KeyBody,
    bound: BoundQuery,
    served: Shared,
    request: Request,
    encoding: EncodingName = "json",
) -> Response:
    """Return the bare value of a key that is given as JSON."""
    encoded = served.encoding(store, encoding)
    read = GetKey(encoded.key_from_json(body.key), body.as_of)
    return await _point_answer(served, request, encoded, read, bound)


async def _point_answer(
    served: Served, request: Request, encoded: StoreEncoding, read: GetKey, bound: Bound
) -> Response:
    answer = await served.coordinator.read_key(encoded.store.name, read.key, bound, read)
    found = None if not answer.rows else (answer.rows[0].value, answer.rows[0].timestamp)
    return value_answer(request, served, encoded, found, answer.record)


@dataclass(frozen=True)
class Listing:
    """One request for rows: the parameters that all lists share, and how it is answered."""

    served: Served
    request: Request
    encoded: StoreEncoding
    bound: Bound
    limit: int | None
    cursor: str | None

    async def answer(self, read: Operation) -> Response:
        """Return a page, or all rows as a stream if the client accepts one."""
        coordinator, encoded = self.served.coordinator, self.encoded
        store, content_type = encoded.store, stream_type(self.request)
        if content_type is not None and self.cursor is None:
            _, record, batches = await coordinator.row_batches(store.name, read, self.bound)
            limited = _limited(batches, self.limit)
            if content_type == ARROW_TYPE:
                parts = await arrow_stream(limited, store)
            else:
                parts = _lines(limited, encoded)
            return stream_answer(self.request, self.served, parts, record, content_type)
        operation = None if self.cursor is not None else read
        limit = min(self.limit or _PAGE, MOST_ROWS)
        page = await coordinator.page(store.name, operation, self.bound, limit, self.cursor)
        return self.list_of(page.rows, page.next, page.record)

    def list_of(self, rows: Iterable[Row], next_: str | None, record: SnapshotRecord) -> Response:
        """Return rows as a list."""
        items = map(self.encoded.row_to_json, rows)
        return list_answer(self.request, self.served, items, next_, record)


async def _listing_of(
    store: StoreName,
    bound: BoundQuery,
    served: Shared,
    request: Request,
    limit: Limit = None,
    cursor: CursorText = None,
    encoding: EncodingName = "json",
) -> Listing:
    return Listing(served, request, served.encoding(store, encoding), bound, limit, cursor)


async def _window_times(
    from_: Annotated[Time, Query(alias="from")] = None, to: Time = None
) -> tuple[int, int]:
    return time_from_text(from_, 0), time_from_text(to, LAST_TIME)


async def _session_times(earliest_end: Time = None, latest_start: Time = None) -> tuple[int, int]:
    return time_from_text(earliest_end, 0), time_from_text(latest_start, LAST_TIME)


async def _key_texts(
    from_key: KeyQuery = None, to_key: KeyQuery = None
) -> tuple[str | None, str | None]:
    return from_key, to_key


ListQuery: TypeAlias = Annotated[Listing, Depends(_listing_of)]
TimesQuery: TypeAlias = Annotated[tuple[int, int], Depends(_window_times)]
SpanQuery: TypeAlias = Annotated[tuple[int, int], Depends(_session_times)]
KeysQuery: TypeAlias = Annotated[tuple[str | None, str | None], Depends(_key_texts)]


@router.get("/{store}/entries", summary="Entries by key")
async def read_entries(
    listing: ListQuery,
    from_: Annotated[str | None, Query(alias="from", description="The first key.")] = None,
    to: Annotated[str | None, Query(description="The last key, included.")] = None,
    prefix: Annotated[str | None, Query(description="How the keys begin.")] = None,
    order: Order = "asc",
) -> Response:
    """Return entries of a key-value store, or the latest versions of a versioned one."""
    return await listing.answer(entries_read(listing.encoded, from_, to, prefix, order))


def entries_read(
    encoded: StoreEncoding, first: str | None, last: str | None, prefix: str | None, order: str
) -> ScanKeys:
    """Return the read of the parameters of ``entries``."""
    if prefix is not None and (first is not None or last is not None):
        msg = "Give either `prefix`, or `from` and `to`."
        raise QueryProblemError(ProblemCode.BAD_RANGE, msg)
    return ScanKeys(
        None if first is None else encoded.key_from_text(first),
        None if last is None else encoded.key_from_text(last),
        None if prefix is None else encoded.prefix_from_text(prefix),
        descending=order == "desc",
    )


@router.get("/{store}/windows", summary="Windows of all keys, or of a range of keys")
async def read_windows(
    listing: ListQuery, keys: KeysQuery, times: TimesQuery, order: Order = "asc"
) -> Response:
    """Return windows that start between two times."""
    first, last, has_open_end = key_range(listing.encoded, *keys)
    is_descending = order == "desc"
    return await listing.answer(FetchWindows(first, last, *times, is_descending, has_open_end))


@router.get("/{store}/windows/{key:path}", summary="Windows of one key")
async def read_windows_of_key(
    listing: ListQuery, key: KeyText, times: TimesQuery, order: Order = "asc"
) -> Response:
    """Return the windows of a key that start between two times."""
    serialized = listing.encoded.key_from_text(key)
    return await listing.answer(FetchWindows(serialized, None, *times, order == "desc"))


@router.get("/{store}/sessions", summary="Sessions of all keys, or of a range of keys")
async def read_sessions(
    listing: ListQuery, keys: KeysQuery, times: SpanQuery, order: Order = "asc"
) -> Response:
    """Return sessions that overlap a stretch of time."""
    first, last, has_open_end = key_range(listing.encoded, *keys)
    is_descending = order == "desc"
    return await listing.answer(FetchSessions(first, last, *times, is_descending, has_open_end))


@router.get("/{store}/sessions/{key:path}", summary="Sessions of one key")
async def read_sessions_of_key(
    listing: ListQuery, key: KeyText, times: SpanQuery, order: Order = "asc"
) -> Response:
    """Return the sessions of a key that overlap a stretch of time."""
    serialized = listing.encoded.key_from_text(key)
    return await listing.answer(FetchSessions(serialized, None, *times, order == "desc"))


@router.get("/{store}/versions/{key:path}", summary="Versions of one key")
async def read_versions(
    listing: ListQuery,
    key: KeyText,
    times: TimesQuery,
    as_of: Time = None,
    order: Order = "desc",
) -> Response:
    """Return the versions of a key that were valid between two times, the newest first."""
    serialized = listing.encoded.key_from_text(key)
    if as_of is None:
        return await listing.answer(FetchVersions(serialized, *times, order == "asc"))
    read = GetKey(serialized, time_from_text(as_of, 0))
    name, coordinator = listing.encoded.store.name, listing.served.coordinator
    answer = await coordinator.read_key(name, read.key, listing.bound, read)
    return listing.list_of(answer.rows, None, answer.record)


def key_range(
    encoded: StoreEncoding, first: str | None, last: str | None
) -> tuple[bytes | None, bytes | None, bool]:
    """Return the first and the last key of a range, and whether it has no last one."""
    return (
        None if first is None else encoded.key_from_text(first),
        None if last is None else encoded.key_from_text(last),
        first is not None and last is None,
    )


async def _limited(
    batches: AsyncIterator[list[Row]], limit: int | None
) -> AsyncIterator[list[Row]]:
    left = limit
    async for batch in batches:
        if left is None:
            yield batch
            continue
        yield batch[:left]
        left -= len(batch)
        if left <= 0:
            return


async def _lines(batches: AsyncIterator[list[Row]], encoded: StoreEncoding) -> AsyncIterator[bytes]:
    async for batch in batches:
        yield b"".join(encoded.row_to_json(row) + b"\n" for row in batch)
