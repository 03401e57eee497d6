"""Cursors: where the next page begins, and the snapshots that copies keep for open ones.

A client could ask for the same page without a cursor.
A cursor is checked, but not signed, so every instance takes the cursors of every other one.
"""

from __future__ import annotations

import itertools
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from typing import Annotated

import msgspec

from headrace.errors import QueryError
from headrace.queries.coordination.asking import Asker
from headrace.queries.copy.layout import Shard
from headrace.queries.copy.views import CURSOR_MS
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.reads import Operation
from headrace.queries.tokens import Token, parse_token

MOST_CURSOR_CHARACTERS = 16_384
"""The rest of a longer text is ignored, and so it is no cursor."""
MOST_ID_CHARACTERS = 32
RENEW_SECONDS = CURSOR_MS / 4_000
"""After this time a cursor that is read renews itself on all copies."""
_MOST_CURSORS = 10_000
"""How many cursors a coordinator remembers."""


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """The end of a page of a read."""

    token: str
    """The snapshot of all pages."""
    store: str
    operation: Operation
    """The read: its bounds and its order."""
    partition: Annotated[int, msgspec.Meta(ge=0)]
    """The partition of the last row."""
    position: bytes
    """The position of the last row in its shard."""
    id: Annotated[str, msgspec.Meta(max_length=MOST_ID_CHARACTERS)] = ""
    """The name under which copies keep the snapshot for the read; empty: they do not."""


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


class OpenCursors:
    """Opens, renews and closes cursors.

    Args:
        asker: Asks the copies.
        clock: The time in seconds.
    """

    def __init__(self, asker: Asker, clock: Callable[[], float]) -> None:
        self._asker = asker
        self._clock = clock
        self._prefix = secrets.token_hex(6)
        self._numbers = itertools.count(1)
        self._renewed_at: dict[str, float] = {}

    def new_id(self) -> str:
        """Return an id that no other cursor has."""
        return f"{self._prefix}-{next(self._numbers):x}"

    def open(self, token: Token, shards: Iterable[Shard]) -> str:
        """Open a cursor for a read of some shards, and return its id."""
        cursor = self.new_id()
        self.renew(token, shards, cursor)
        return cursor

    def renew(self, token: Token, shards: Iterable[Shard], cursor: str) -> None:
        """Renew a cursor on all copies, if the last time is long ago.

        The copy that answers a read does so for each read; the others would drop the snapshot.
        """
        now = self._clock()
        if now - self._renewed_at.get(cursor, float("-inf")) < RENEW_SECONDS:
            return
        self._renewed_at.pop(cursor, None)
        if len(self._renewed_at) >= _MOST_CURSORS:
            del self._renewed_at[next(iter(self._renewed_at))]
        self._renewed_at[cursor] = now
        self._asker.keep(token, shards, cursor)

    def close(self, token: Token, shards: Iterable[Shard], cursor: str) -> None:
        """Close a cursor: copies drop the snapshot if nothing else keeps it."""
        self._renewed_at.pop(cursor, None)
        self._asker.keep(token, shards, cursor, closes=True)
