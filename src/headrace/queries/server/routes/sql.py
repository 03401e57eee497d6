"""The route of SQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from headrace.queries.coordination.answers import Bound
from headrace.queries.coordination.coordinator import Coordinator
from headrace.queries.http_names import JSON_TYPE
from headrace.queries.reads import Operation, Row
from headrace.queries.server.bounds import BoundQuery
from headrace.queries.server.replies import snapshot_headers
from headrace.queries.server.routes.stores import Shared
from headrace.queries.sql.engine import SECONDS
from headrace.queries.tables.sql_values import SqlResult
from headrace.queries.tokens import Token, token_of
from headrace.runtime.snapshots import SnapshotRecord

router = APIRouter(prefix="/v1", tags=["queries"])

_WAIT_SECONDS = 3 * SECONDS
"""How long a statement waits for a part of its rows; the coordinator gives up long before."""

T = TypeVar("T")
Scalar = str | int | float | bool | None


class SqlBody(BaseModel):
    """A statement."""

    model_config = ConfigDict(extra="forbid")
    sql: Annotated[str, Field(max_length=65_536, description="One SELECT.")]
    params: Annotated[
        list[Scalar] | dict[str, Scalar] | None,
        Field(description="The values of `?`, or of `:name`."),
    ] = None


@dataclass
class _SnapshotRows:
    """The rows of stores at one snapshot, for a statement in a thread of its own."""

    coordinator: Coordinator
    bound: Bound
    loop: asyncio.AbstractEventLoop
    record: SnapshotRecord | None = None
    token: Token | None = None

    def open(self, stores: frozenset[str]) -> _SnapshotRows:
        """Choose the snapshot, which all stores of a statement have."""
        if stores:
            self.token, self.record = self._wait(self.coordinator.pin(sorted(stores), self.bound))
        return self

    def rows(self, store: str, operation: Operation, *, is_ordered: bool) -> Iterator[Row]:
        """Yield the rows of a read. They always have an order."""
        assert is_ordered is not None, "both are served by the same rows"
        bound = Bound(at=self.token)
        _, _, batches = self._wait(self.coordinator.row_batches(store, operation, bound))
        while (batch := self._wait(_next(batches))) is not None:
            yield from batch

    def _wait(self, question: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(question, self.loop).result(_WAIT_SECONDS)


async def _next(batches: AsyncIterator[list[Row]]) -> list[Row] | None:
    return await anext(batches, None)


@router.post("/sql", summary="Rows of a SELECT over the stores")
async def run_sql(body: SqlBody, bound: BoundQuery, served: Shared) -> Response:
    """Return the rows of one statement that only reads, all of one snapshot."""
    loop = asyncio.get_running_loop()
    source = _SnapshotRows(served.coordinator, bound, loop)
    engine = served.sql()

    def run() -> SqlResult:
        return engine.run(body.sql, body.params, source.open)

    result = await loop.run_in_executor(served.sql_threads, run)
    record = source.record or served.instance.newest_record()
    answer = {
        "columns": result.columns,
        "data": result.rows,
        "next": None,
        "snapshot": None if record is None else str(token_of(record)),
    }
    headers = {} if record is None else snapshot_headers(served, record)
    headers.pop("ETag", None)
    return Response(msgspec.json.encode(answer), headers=headers, media_type=JSON_TYPE)
