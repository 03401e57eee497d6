"""The route of a watch: changes of a store as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import StreamingResponse

from headrace.queries.coordination.answers import Change, Heartbeat, Reset, parse_event_id
from headrace.queries.http_names import EVENTS_TYPE, SNAPSHOT_HEADER
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.server.bounds import EncodingName, StoreName
from headrace.queries.server.routes.stores import Shared
from headrace.queries.server.store_encodings import StoreEncoding

router = APIRouter(prefix="/v1/stores", tags=["changes"])


@router.get(
    "/{store}/changes",
    summary="Changes of a store, as server-sent events",
    response_class=StreamingResponse,
    responses={200: {"content": {EVENTS_TYPE: {}}}},
)
async def watch(
    store: StoreName,
    served: Shared,
    key: Annotated[str | None, Query(description="Changes of this key alone.")] = None,
    prefix: Annotated[str | None, Query(description="Changes of keys that begin so.")] = None,
    since: Annotated[
        str | None, Query(max_length=8_192, description="The same as `Last-Event-ID`.")
    ] = None,
    last_event_id: Annotated[
        str | None, Header(description="The id of the last event that the client has.")
    ] = None,
    encoding: EncodingName = "json",
) -> StreamingResponse:
    """Return changes, snapshot by snapshot, until the client goes away."""
    if key is not None and prefix is not None:
        msg = "Give either `key` or `prefix`."
        raise QueryProblemError(ProblemCode.BAD_RANGE, msg)
    encoded = served.encoding(store, encoding)
    given = since if last_event_id is None else last_event_id
    events = served.coordinator.watch(
        store,
        key=None if key is None else encoded.key_from_text(key),
        prefix=None if prefix is None else encoded.prefix_from_text(prefix),
        since=None if given is None else parse_event_id(given),
    )
    # A problem that is there from the start gets a status of its own.
    first = await anext(events)
    headers = {
        SNAPSHOT_HEADER: str(first.event_id.token),
        "Cache-Control": "no-store",
        "X-Accel-Buffering": "no",
    }
    return StreamingResponse(_texts(first, events, encoded), 200, headers, EVENTS_TYPE)


async def _texts(
    first: Change | Reset | Heartbeat,
    events: AsyncIterator[Change | Reset | Heartbeat],
    encoded: StoreEncoding,
) -> AsyncIterator[bytes]:
    yield _text(first, encoded)
    async with aclosing(events):  # type: ignore[type-var]  # it is a generator
        try:
            async for event in events:
                yield _text(event, encoded)
        except QueryProblemError as problem:
            # The client connects again, and gets the problem or the next events.
            yield b": %b\n\n" % problem.code.name.encode()


def _text(event: Change | Reset | Heartbeat, encoded: StoreEncoding) -> bytes:
    token = str(event.event_id.token).encode()
    match event:
        case Change():
            return b"event: change\nid: %b\ndata: %b\n\n" % (
                str(event.event_id).encode(),
                encoded.change_to_json(event)[:-1] + b',"snapshot":"%b"}' % token,
            )
        case Reset():
            name = b"reset"
        case Heartbeat():
            name = b"heartbeat"
    return b'event: %b\nid: %b\ndata: {"snapshot":"%b"}\n\n' % (
        name,
        str(event.event_id).encode(),
        token,
    )
