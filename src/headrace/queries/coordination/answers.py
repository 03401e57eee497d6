"""The bounds of a read, and its answers: rows, pages and changes, each of one snapshot."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.brokers.log import TopicPartition
from headrace.errors import QueryError
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.reads import Row
from headrace.queries.tokens import Token, parse_token
from headrace.runtime.snapshots import SnapshotRecord

_EVENT_ID = re.compile(r"([0-9a-f.]+)(?::([0-9]{1,9}):([A-Za-z0-9_-]*))?")


@dataclass(frozen=True)
class Bound:
    """The snapshots that may answer a read; by default the newest that the copies have."""

    at: Token | None = None
    """Exactly this snapshot."""
    minimum: Token | None = None
    """This snapshot or a later one."""
    position: Mapping[TopicPartition, int] | None = None
    """Records of inputs that the answer reflects, by their offsets: read your writes."""
    wait_ms: int = 0
    """How long a read waits for ``minimum`` and ``position``."""


NEWEST = Bound()
"""The state of the copies."""


@dataclass(frozen=True)
class Answer:
    """The rows of a read, all of one snapshot."""

    rows: Sequence[Row]
    token: Token
    record: SnapshotRecord


@dataclass(frozen=True)
class Answers:
    """The rows of several reads, all of one snapshot."""

    rows: Sequence[Sequence[Row]]
    """For each read its rows."""
    token: Token
    record: SnapshotRecord


@dataclass(frozen=True)
class Page:
    """Some rows of a read. All pages of a read are of one snapshot."""

    rows: Sequence[Row]
    next: str | None
    """The cursor of the next page; None: this is the last page."""
    token: Token
    record: SnapshotRecord


class EventId(NamedTuple):
    """The position of a reader of a watch. Every instance resumes behind it."""

    token: Token
    partition: int | None = None
    """The partition of the last change; None: the reader has all changes of the snapshot."""
    position: bytes = b""
    """The position of the last change in the order of its snapshot."""

    def __str__(self) -> str:
        if self.partition is None:
            return str(self.token)
        position = urlsafe_b64encode(self.position).rstrip(b"=").decode()
        return f"{self.token}:{self.partition}:{position}"


def parse_event_id(text: str) -> EventId:
    """Return the id that a client has sent.

    Raises:
        QueryProblemError: The text is no event id.
    """
    form = _EVENT_ID.fullmatch(text)
    try:
        if form is not None:
            token = parse_token(form[1])
            if form[2] is None:
                return EventId(token)
            position = urlsafe_b64decode(form[3] + "=" * (-len(form[3]) % 4))
            return EventId(token, int(form[2]), position)
    except (QueryError, ValueError):
        pass
    msg = f"{text!r} is no event id. Copy it from an event of a watch."
    raise QueryProblemError(ProblemCode.BAD_REQUEST, msg)


@dataclass(frozen=True)
class Change:
    """An entry of a store that a snapshot has changed."""

    event_id: EventId
    key: bytes
    value: bytes | None
    """None: the entry was deleted."""
    timestamp: int | None = None
    start: int | None = None
    """The start of the window or session; the time from which a version is valid."""
    end: int | None = None
    """The end of the window or session; the time until which a version is valid."""


@dataclass(frozen=True)
class Reset:
    """Some changes before a snapshot are not known: the reader reads the store at it, whole."""

    token: Token

    @property
    def event_id(self) -> EventId:
        """The id to resume behind, for a reader that has read the store."""
        return EventId(self.token)


@dataclass(frozen=True)
class Heartbeat:
    """No changes for a while. Each watch begins with one, which names where it begins."""

    event_id: EventId
    """The reader has everything up to here."""
