"""Cursors of pages: where the next page begins. A client could ask for the same without one.

A cursor is checked, but not signed, so every instance takes the cursors of every other one.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated

import msgspec

from headrace.errors import QueryError
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.reads import Operation
from headrace.queries.tokens import parse_token

MOST_CURSOR_CHARACTERS = 16_384
"""The rest of a longer text is ignored, and so it is no cursor."""


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """Where a page of a read ends."""

    token: str
    """The snapshot of all pages."""
    store: str
    operation: Operation
    """The read: its bounds and its order."""
    partition: Annotated[int, msgspec.Meta(ge=0)]
    """The partition of the last row."""
    position: bytes
    """The position of the last row in its shard."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Cursor)


def encode_cursor(cursor: Cursor) -> str:
    """Return the text of a cursor. It can stand in a URL."""
    return urlsafe_b64encode(_encoder.encode(cursor)).rstrip(b"=").decode()


def decode_cursor(text: str) -> Cursor:
    """Return the cursor that a client has sent.

    Raises:
        QueryProblemError: The text is no cursor.
    """
    try:
        data = text[:MOST_CURSOR_CHARACTERS].encode("ascii")
        cursor = _decoder.decode(urlsafe_b64decode(data + b"=" * (-len(data) % 4)))
        parse_token(cursor.token)
    except (ValueError, msgspec.MsgspecError, QueryError) as error:
        msg = "The cursor cannot be read. Copy `next` of the page before, or begin without one."
        raise QueryProblemError(ProblemCode.BAD_REQUEST, msg) from error
    return cursor
