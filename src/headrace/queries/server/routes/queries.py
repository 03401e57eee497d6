"""The routes that read several stores at one snapshot."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from headrace.queries.reads import (
    FetchSessions,
    FetchVersions,
    FetchWindows,
    GetKey,
    Operation,
    ScanKeys,
)
from headrace.queries.server.bounds import LAST_TIME, MOST_ROWS, BoundQuery, EncodingName
from headrace.queries.server.replies import list_answer
from headrace.queries.server.routes.stores import Shared
from headrace.queries.server.store_encodings import StoreEncoding

router = APIRouter(prefix="/v1", tags=["queries"])

MOST_READS = 100

Milliseconds = Annotated[int, Field(ge=0, le=LAST_TIME)]


class _Read(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    store: str = Field(description="The name of the store.")


class KeyRead(_Read):
    """The value of a key."""

    read: Literal["key"]
    key: Any
    as_of: Milliseconds | None = None

    def operation(self, encoded: StoreEncoding) -> Operation:
        """Return the read of the store."""
        return GetKey(encoded.key_from_json(self.key), self.as_of)


class EntriesRead(_Read):
    """Entries by key."""

    read: Literal["entries"]
    first: Any = Field(None, alias="from")
    to: Any = None
    prefix: str | None = None
    order: Literal["asc", "desc"] = "asc"

    def operation(self, encoded: StoreEncoding) -> Operation:
        """Return the read of the store."""
        return ScanKeys(
            None if self.first is None else encoded.key_from_json(self.first),
            None if self.to is None else encoded.key_from_json(self.to),
            None if self.prefix is None else encoded.prefix_from_text(self.prefix),
            descending=self.order == "desc",
        )


class WindowsRead(_Read):
    """Windows of a key, of a range of keys, or of all keys."""

    read: Literal["windows"]
    key: Any = None
    to_key: Any = Field(None, description="The last key; `key` is then the first.")
    first: Milliseconds = Field(0, alias="from")
    to: Milliseconds = LAST_TIME
    order: Literal["asc", "desc"] = "asc"

    def operation(self, encoded: StoreEncoding) -> Operation:
        """Return the read of the store."""
        keys = _keys(encoded, self.key, self.to_key)
        return FetchWindows(*keys, self.first, self.to, descending=self.order == "desc")


class SessionsRead(_Read):
    """Sessions of a key, of a range of keys, or of all keys."""

    read: Literal["sessions"]
    key: Any = None
    to_key: Any = Field(None, description="The last key; `key` is then the first.")
    earliest_end: Milliseconds = 0
    latest_start: Milliseconds = LAST_TIME
    order: Literal["asc", "desc"] = "asc"

    def operation(self, encoded: StoreEncoding) -> Operation:
        """Return the read of the store."""
        keys = _keys(encoded, self.key, self.to_key)
        times = self.earliest_end, self.latest_start
        return FetchSessions(*keys, *times, descending=self.order == "desc")


class VersionsRead(_Read):
    """Versions of a key."""

    read: Literal["versions"]
    key: Any
    first: Milliseconds = Field(0, alias="from")
    to: Milliseconds = LAST_TIME
    order: Literal["asc", "desc"] = "desc"

    def operation(self, encoded: StoreEncoding) -> Operation:
        """Return the read of the store."""
        key = encoded.key_from_json(self.key)
        return FetchVersions(key, self.first, self.to, ascending=self.order == "asc")


class QueryBody(BaseModel):
    """Several reads."""

    model_config = ConfigDict(extra="forbid")
    reads: list[
        Annotated[
            KeyRead | EntriesRead | WindowsRead | SessionsRead | VersionsRead,
            Field(discriminator="read"),
        ]
    ] = Field(min_length=1, max_length=MOST_READS)
    limit: int = Field(
        MOST_ROWS, ge=1, le=MOST_ROWS, description="A read with more rows is refused."
    )


def _keys(encoded: StoreEncoding, first: Any, last: Any) -> tuple[bytes | None, bytes | None]:
    return (
        None if first is None else encoded.key_from_json(first),
        None if last is None else encoded.key_from_json(last),
    )


@router.post("/query", summary="Several reads at one snapshot")
async def read_several(
    body: QueryBody,
    bound: BoundQuery,
    served: Shared,
    request: Request,
    encoding: EncodingName = "json",
) -> Response:
    """Return a list of rows for each read, all of one snapshot."""
    encodings = [served.encoding(each.store, encoding) for each in body.reads]
    reads = [
        (each.store, each.operation(encoded))
        for each, encoded in zip(body.reads, encodings, strict=True)
    ]
    answers = await served.coordinator.read_many(reads, bound, limit=body.limit)
    items = (
        b"[%b]" % b",".join(map(encoded.row_to_json, rows))
        for encoded, rows in zip(encodings, answers.rows, strict=True)
    )
    return list_answer(request, served, items, None, answers.record)
