"""The routes between instances. None of them forwards."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from headrace.queries.coordination.local_answers import answer_locally
from headrace.queries.coordination.local_changes import answer_changes
from headrace.queries.coordination.local_reads import MessagePack
from headrace.queries.coordination.local_routes import (
    CHANGES_PATH,
    MESSAGEPACK_TYPE,
    READ_PATH,
    SHARD_PATH,
    STATUS_PATH,
)
from headrace.queries.copy.layout import Shard
from headrace.queries.http_names import BYTES_TYPE, JSON_TYPE
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.server.routes.stores import Shared

router = APIRouter(tags=["between instances"], include_in_schema=False)


@router.post(READ_PATH)
async def read(request: Request, served: Shared) -> Response:
    """Return what this instance itself has of some shards."""
    try:
        asked = MessagePack.decode_read(await request.body())
    except msgspec.MsgspecError as error:
        raise _unreadable(error) from None
    answer = await answer_locally(served.queried, asked)
    return Response(MessagePack.encode(answer), media_type=MESSAGEPACK_TYPE)


@router.post(CHANGES_PATH)
async def changes(request: Request, served: Shared) -> Response:
    """Return what the next snapshot of this instance has changed."""
    try:
        asked = MessagePack.decode_changes(await request.body())
    except msgspec.MsgspecError as error:
        raise _unreadable(error) from None
    answer = await answer_changes(served.queried, asked)
    return Response(MessagePack.encode(answer), media_type=MESSAGEPACK_TYPE)


@router.get(STATUS_PATH)
async def status(served: Shared) -> Response:
    """Return what this instance says about its copy."""
    return Response(msgspec.json.encode(served.instance.status()), media_type=JSON_TYPE)


@router.get(SHARD_PATH)
async def shard(group: str, partition: int, served: Shared) -> Response:
    """Return the bytes of a shard, for an instance that restores it."""
    # The chunks are made in a thread beside the event loop, each when the one before is sent.
    chunks = served.instance.export_shard(Shard(group, partition))
    return StreamingResponse(chunks, media_type=BYTES_TYPE)


def _unreadable(error: msgspec.MsgspecError) -> QueryProblemError:
    detail = f"The message cannot be read: {error}. Run the same version on all instances."
    return QueryProblemError(ProblemCode.BAD_REQUEST, detail)
