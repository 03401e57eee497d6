"""Rows as an Arrow stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from headrace.queries.catalog import QueryableStore
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.reads import Row

if TYPE_CHECKING:
    from headrace.queries.tables.arrow_tables import ArrowStream


async def arrow_stream(
    batches: AsyncIterator[list[Row]], store: QueryableStore
) -> AsyncIterator[bytes]:
    """Return the parts of an Arrow IPC stream, one record batch for each list of rows.

    Raises:
        QueryProblemError: There is no pyarrow.
    """
    # The first import of pyarrow takes long.
    stream = await asyncio.to_thread(_new_stream, store)

    async def parts() -> AsyncIterator[bytes]:
        async for rows in batches:
            yield stream.write(rows)
        yield stream.end()

    return parts()


def _new_stream(store: QueryableStore) -> ArrowStream:
    try:
        from headrace.queries.tables.arrow_tables import ArrowStream
    except ImportError:
        msg = "This instance has no pyarrow. Install it, or ask for JSON."
        raise QueryProblemError(ProblemCode.BAD_REQUEST, msg) from None
    return ArrowStream(store)
