"""HTTP answers of reads: headers that name the snapshot, lists, and streams of rows."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable, Mapping

import msgspec
from fastapi import Request
from starlette.responses import Response, StreamingResponse

from headrace.queries.http_names import (
    AGE_HEADER,
    ARROW_TYPE,
    JSON_TYPE,
    NDJSON_TYPE,
    POSITION_HEADER,
    SNAPSHOT_HEADER,
    TIMESTAMP_HEADER,
)
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.server.problem_answers import problem_answer
from headrace.queries.server.served import Served
from headrace.queries.server.store_encodings import StoreEncoding
from headrace.queries.tokens import Token, token_of
from headrace.runtime.snapshots import SnapshotRecord

MOST_POSITION_BYTES = 4_096
"""A longer position is left out of the headers: clients refuse very long ones."""
BYTES_TYPE = "application/octet-stream"

_TAGS = {JSON_TYPE: "", NDJSON_TYPE: "-n", ARROW_TYPE: "-a", BYTES_TYPE: "-b"}
_encode = msgspec.json.Encoder().encode


def snapshot_headers(
    served: Served, record: SnapshotRecord, content_type: str = JSON_TYPE
) -> dict[str, str]:
    """Return the headers that say what an answer reflects."""
    token = str(token_of(record))
    headers = {
        SNAPSHOT_HEADER: token,
        AGE_HEADER: str(served.age_ms(record)),
        "ETag": f'"{token}{_TAGS[content_type]}"',
        "Cache-Control": "no-cache",
        "Vary": "Accept",
    }
    position = _encode(record.position)
    if len(position) <= MOST_POSITION_BYTES:
        headers[POSITION_HEADER] = position.decode()
    return headers


def is_unchanged(request: Request, headers: Mapping[str, str]) -> bool:
    """Return whether the client has this answer already. That to a POST depends on its body."""
    if request.method not in ("GET", "HEAD"):
        return False
    given = request.headers.get("if-none-match")
    if given is None:
        return False
    tags = {tag.strip().removeprefix("W/") for tag in given.split(",")}
    return headers["ETag"] in tags


def unchanged_answer(headers: Mapping[str, str]) -> Response:
    """Return the answer to a client that has it already."""
    return Response(status_code=304, headers=dict(headers))


def value_answer(
    request: Request,
    served: Served,
    encoding: StoreEncoding,
    found: tuple[bytes, int | None] | None,
    record: SnapshotRecord,
) -> Response:
    """Return the answer to a point read.

    Args:
        request: The request.
        served: The state that the routes share.
        encoding: How values travel.
        found: The value and its timestamp; None: there is no such key.
        record: The snapshot.
    """
    content_type = BYTES_TYPE if encoding.is_bytes else JSON_TYPE
    headers = snapshot_headers(served, record, content_type)
    if found is None:
        del headers["ETag"]
        msg = f"Store {encoding.store.name!r} has no such key at snapshot {token_of(record)}."
        problem = QueryProblemError(ProblemCode.KEY_NOT_FOUND, msg)
        request.state.code = problem.code.name
        return problem_answer(problem, request.url.path, request.state.request_id, headers)
    if is_unchanged(request, headers):
        return unchanged_answer(headers)
    value, timestamp = found
    if timestamp is not None:
        headers[TIMESTAMP_HEADER] = str(timestamp)
    body = value if encoding.is_bytes else encoding.value_to_json(value)
    return Response(body, headers=headers, media_type=content_type)


def list_json(items: Iterable[bytes], next_: str | None, token: Token | None) -> bytes:
    """Return the JSON of a list."""
    return b'{"data":[%b],"next":%b,"snapshot":%b}' % (
        b",".join(items),
        _encode(next_),
        _encode(None if token is None else str(token)),
    )


def list_answer(
    request: Request,
    served: Served,
    items: Iterable[bytes],
    next_: str | None,
    record: SnapshotRecord,
) -> Response:
    """Return the answer of a list whose items are JSON."""
    headers = snapshot_headers(served, record)
    if is_unchanged(request, headers):
        return unchanged_answer(headers)
    body = list_json(items, next_, token_of(record))
    return Response(body, headers=headers, media_type=JSON_TYPE)


def plain_answer(request: Request, served: Served, items: Iterable[object]) -> Response:
    """Return a list of plain values about the newest record that the instance has read."""
    record = served.instance.newest_record()
    token = None if record is None else token_of(record)
    return present_answer(request, served, list_json(map(_encode, items), None, token), record)


def present_answer(
    request: Request,
    served: Served,
    body: bytes,
    record: SnapshotRecord | None,
    content_type: str = JSON_TYPE,
) -> Response:
    """Return an answer that may change while its snapshot stays: its ETag is that of its bytes.

    Args:
        request: The request.
        served: The state that the routes share.
        body: The answer.
        record: The snapshot; None: the instance has read none.
        content_type: The type of the answer.
    """
    tag = hashlib.sha256(body).hexdigest()[:16]
    if record is None:
        headers = {"Cache-Control": "no-cache"}
    else:
        headers = snapshot_headers(served, record)
        tag = f"{token_of(record)}-{tag}"
    headers["ETag"] = f'"{tag}"'
    if is_unchanged(request, headers):
        return unchanged_answer(headers)
    return Response(body, headers=headers, media_type=content_type)


def stream_type(request: Request) -> str | None:
    """Return the content type of the stream that a client accepts; None: it takes pages."""
    accepted = [
        part.partition(";")[0].strip().lower()
        for part in request.headers.get("accept", "").split(",")
    ]
    return next((each for each in accepted if each in (NDJSON_TYPE, ARROW_TYPE)), None)


def stream_answer(
    request: Request,
    served: Served,
    parts: AsyncIterator[bytes],
    record: SnapshotRecord,
    content_type: str,
) -> Response:
    """Return the answer of a stream."""
    headers = snapshot_headers(served, record, content_type)
    if is_unchanged(request, headers):
        return unchanged_answer(headers)
    return StreamingResponse(parts, headers=headers, media_type=content_type)
