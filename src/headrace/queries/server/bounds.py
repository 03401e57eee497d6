"""The parameters that all reads share, and what they mean."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, TypeAlias

from fastapi import Depends, Path, Query

from headrace.errors import QueryError
from headrace.queries.coordination.answers import Bound
from headrace.queries.http_names import offsets_from_text
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.server.store_encodings import Encoding
from headrace.queries.tokens import Token, parse_token
from headrace.records import timestamp_ms

MOST_WAIT_MS = 30_000
MOST_ROWS = 1_000
"""How many rows a page or a read of several may have."""
LAST_TIME = 2**63 - 1

StoreName: TypeAlias = Annotated[str, Path(description="The name of the store.")]
KeyText: TypeAlias = Annotated[
    str, Path(description="The key as text, read by the key type of the store.")
]
EncodingName: TypeAlias = Annotated[
    Encoding,
    Query(description="`bytes`: keys and values are serialised bytes, as base64url."),
]
Limit: TypeAlias = Annotated[
    int | None, Query(ge=1, le=MOST_ROWS, description="How many rows a page has; 100 if not given.")
]
CursorText: TypeAlias = Annotated[
    str | None, Query(max_length=16_384, description="`next` of the page before.")
]
Time: TypeAlias = Annotated[
    str | None,
    Query(max_length=40, description="Milliseconds, or ISO 8601 with a time zone."),
]


async def bound_of(
    snapshot: Annotated[
        str | None, Query(max_length=40, description="Exactly this snapshot, by its token.")
    ] = None,
    min_snapshot: Annotated[
        str | None, Query(max_length=40, description="This snapshot or a later one.")
    ] = None,
    min_position: Annotated[
        str | None,
        Query(
            max_length=100_000,
            description="Records that must be reflected: `topic:partition:offset,…`.",
        ),
    ] = None,
    wait_ms: Annotated[
        int,
        Query(
            ge=0,
            le=MOST_WAIT_MS,
            description="How long to wait for `min_snapshot` and `min_position`.",
        ),
    ] = 0,
) -> Bound:
    """Return the snapshots that may answer."""
    return Bound(
        at=None if snapshot is None else _token(snapshot),
        minimum=None if min_snapshot is None else _token(min_snapshot),
        position=None if min_position is None else offsets_from_text(min_position),
        wait_ms=wait_ms,
    )


BoundQuery: TypeAlias = Annotated[Bound, Depends(bound_of)]


def _token(text: str) -> Token:
    try:
        return parse_token(text)
    except QueryError as error:
        raise QueryProblemError(ProblemCode.BAD_REQUEST, str(error)) from None


def time_from_text(text: str | None, default: int) -> int:
    """Return the milliseconds of a time parameter.

    Raises:
        QueryProblemError: The text is no time.
    """
    if text is None:
        return default
    try:
        if text.isascii() and text.isdecimal():
            return checked_time(int(text))
        # In a URL a plus stands where a space should.
        return checked_time(timestamp_ms(datetime.fromisoformat(text.replace(" ", "+"))))
    except (ValueError, OverflowError):
        msg = f"{text!r} is no time. Give milliseconds, or ISO 8601 such as '2026-11-15T19:00:00Z'."
        raise QueryProblemError(ProblemCode.BAD_RANGE, msg) from None


def checked_time(time: int) -> int:
    """Return a time if it can be that of a record.

    Raises:
        QueryProblemError: It cannot.
    """
    if 0 <= time <= LAST_TIME:
        return time
    msg = f"{time} ms is no time. Give a time from 1970 on."
    raise QueryProblemError(ProblemCode.BAD_RANGE, msg)
