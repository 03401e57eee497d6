"""The route of SQL."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from headrace.errors import QueryError
from headrace.queries.coordination.answers import Bound
from headrace.queries.coordination.coordinator import Pinned
from headrace.queries.copy.views import ShownSnapshot
from headrace.queries.local.shown_rows import needed_shards, shown_batches
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.reads import ListedRows, Operation, Row, RowBatch
from headrace.queries.server.bounds import BoundQuery
from headrace.queries.server.replies import present_answer
from headrace.queries.server.routes.stores import Shared
from headrace.queries.server.served import Served
from headrace.queries.sql.engine import SECONDS
from headrace.queries.sql.tables import HeavyStatementError
from headrace.queries.tables.sql_values import (
    BYTES,
    SqlParameters,
    SqlResult,
    SqlValue,
    json_from_sql,
    sql_from_json,
)
from headrace.queries.tokens import Token, token_of
from headrace.runtime.snapshots import SnapshotRecord

router = APIRouter(prefix="/v1", tags=["queries"])

T = TypeVar("T")


class BytesParameter(BaseModel):
    """Bytes, which JSON does not have."""

    model_config = ConfigDict(extra="forbid")
    data: Annotated[str, Field(alias=BYTES, description="The bytes as base64url.")]


Scalar = str | int | float | bool | None | BytesParameter


class SqlBody(BaseModel):
    """A statement."""

    model_config = ConfigDict(extra="forbid")
    sql: Annotated[str, Field(max_length=65_536, description="One SELECT.")]
    params: Annotated[
        list[Scalar] | dict[str, Scalar] | None,
        Field(description="The values of `?`, or of `:name`."),
    ] = None

    def parameters(self) -> SqlParameters:
        """Return the values for SQL.

        Raises:
            QueryProblemError: Bytes are not base64url.
        """
        given = self.params
        try:
            if isinstance(given, dict):
                return {name: _value(each) for name, each in given.items()}
            return None if given is None else [*map(_value, given)]
        except ValueError as error:
            msg = f"A parameter cannot be read: {error}."
            raise QueryProblemError(ProblemCode.BAD_REQUEST, msg) from None


def _value(given: Scalar) -> SqlValue:
    if isinstance(given, BytesParameter):
        data: bytes = sql_from_json({BYTES: given.data})
        return data
    return given


@dataclass
class SnapshotRows:
    """The rows of stores at one snapshot, for a statement in a thread of its own."""

    served: Served
    bound: Bound
    loop: asyncio.AbstractEventLoop
    record: SnapshotRecord | None = None
    token: Token | None = None
    pinned: Pinned | None = None
    is_here: bool = False
    """Whether the rows must be those of this instance's own copy, because nothing may wait."""
    deadline: float = 0.0
    """The time of `time.monotonic` when the statement must have its rows."""

    async def pin(self, stores: frozenset[str]) -> None:
        """Choose the snapshot, which all stores of a statement have; no thread waits for it."""
        if stores:
            self.pinned = await self.served.coordinator.pin_until_closed(sorted(stores), self.bound)
            self.token, self.record, _ = self.pinned

    def open(self, _stores: frozenset[str]) -> SnapshotRows:
        """Return the rows at the snapshot that `pin` has chosen."""
        return self

    def open_here(self, stores: frozenset[str]) -> SnapshotRows:
        """Choose the snapshot in the event loop itself."""
        self.is_here = True
        if stores:
            pinned = self.served.coordinator.pin_here(sorted(stores), self.bound)
            if pinned is None:
                raise HeavyStatementError
            self.token, self.record = pinned
        return self

    def close(self) -> None:
        """Release the snapshot: copies may drop it."""
        if self.pinned is not None:
            self.served.coordinator.unpin(self.pinned)

    def batches(self, store: str, operation: Operation, *, is_ordered: bool) -> Iterator[RowBatch]:
        """Return the rows of a read, from this instance's own copy if it has all of them."""
        catalog, found = self.served.catalog, self.served.store(store)
        shown = self._shown()
        if shown is None or not shown.shards.keys() >= {
            *needed_shards(shown, catalog, found, operation)
        }:
            if self.is_here:
                raise HeavyStatementError
            return self._asked_batches(store, operation)
        return shown_batches(shown, catalog, found, operation, is_ordered=is_ordered)

    def _shown(self) -> ShownSnapshot | None:
        assert self.token is not None, "a statement that reads a store has a snapshot"
        try:
            return self.served.instance.snapshots.at(self.token)
        except QueryError:
            return None

    def _asked_batches(self, store: str, operation: Operation) -> Iterator[RowBatch]:
        """Yield the rows of a read, which the coordinator gathers. They always have an order."""
        bound = Bound(at=self.token)
        _, _, batches = self._wait(self.served.coordinator.row_batches(store, operation, bound))
        while (batch := self._wait(_next(batches))) is not None:
            if batch:
                yield ListedRows(batch)

    def _wait(self, question: Coroutine[Any, Any, T]) -> T:
        asked = asyncio.run_coroutine_threadsafe(question, self.loop)
        try:
            return asked.result(max(0.0, self.deadline - time.monotonic()))
        except TimeoutError:
            asked.cancel()
            msg = f"Other instances did not send their rows within {SECONDS:g} s. Ask again soon."
            raise QueryProblemError(ProblemCode.TIMEOUT, msg, retry_after_ms=1_000) from None


async def _next(batches: AsyncIterator[list[Row]]) -> list[Row] | None:
    return await anext(batches, None)


@router.post("/sql", summary="Rows of a SELECT over the stores")
async def run_sql(body: SqlBody, bound: BoundQuery, served: Shared, request: Request) -> Response:
    """Return the rows of one statement that only reads, all of one snapshot."""
    loop = asyncio.get_running_loop()
    source = SnapshotRows(served, bound, loop)
    engine = served.sql()

    params = body.parameters()
    result = engine.run_quickly(body.sql, params, source.open_here)
    if result is None:
        source = SnapshotRows(served, bound, loop)
        await source.pin(engine.stores_of(body.sql, params))

        def run(deadline: float) -> SqlResult:
            source.deadline = deadline
            return engine.run(body.sql, params, source.open, deadline=deadline)

        try:
            result = await served.statements.run(run)
        finally:
            source.close()
    record = source.record or served.instance.newest_record()
    answer = {
        "columns": result.columns,
        "data": [
            [*map(json_from_sql, row)] if bytes in map(type, row) else row for row in result.rows
        ],
        "next": None,
        "snapshot": None if record is None else str(token_of(record)),
    }
    return present_answer(request, served, msgspec.json.encode(answer), record)
