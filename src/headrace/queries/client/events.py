"""Changes of a store as a client sees them, and the events of the stream that carries them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from headrace.queries.tokens import Token


class StoreChange(NamedTuple):
    """An entry of a store that a snapshot has changed."""

    key: Any
    value: Any
    """The new value; None: the entry was deleted."""
    snapshot: Token
    """The snapshot that has the new value."""
    timestamp: int | None
    """The timestamp of the value, if the store keeps one."""
    start: int | None
    """The start of the window or session; the time from which a version is valid."""
    end: int | None
    """The end of the window or session; the time until which a version is valid."""
    event_id: str
    """Where to resume: give it as ``since``."""


class StoreReset(NamedTuple):
    """Some changes before a snapshot are not known: read the whole store at it."""

    snapshot: Token
    event_id: str
    """Where to resume: give it as ``since``."""


class Event(NamedTuple):
    """One server-sent event."""

    name: str
    event_id: str
    data: str


class EventParser:
    """Makes events of the parts of a stream of server-sent events."""

    def __init__(self) -> None:
        self._rest = b""
        self._fields: dict[str, str] = {}

    def feed(self, part: bytes) -> Iterator[Event]:
        """Yield the events that a part of the stream ends."""
        *lines, self._rest = (self._rest + part).split(b"\n")
        for line in lines:
            event = self._feed_line(line.rstrip(b"\r").decode())
            if event is not None:
                yield event

    def _feed_line(self, line: str) -> Event | None:
        if line:
            name, _, value = line.partition(":")  # a comment has no name
            self._fields[name] = value.removeprefix(" ")
            return None
        fields, self._fields = self._fields, {}
        if "data" not in fields:
            return None
        return Event(fields.get("event", "message"), fields.get("id", ""), fields["data"])
