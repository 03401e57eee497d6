"""A watch over the changes of a store, which resumes by itself without a gap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.queries.client.conversations import Conversations, problem_of, store_path
from headrace.queries.client.events import Event, EventParser, StoreChange, StoreReset
from headrace.queries.client.steps import Conversation, Emit, NextPart, Open, Pause, Unreachable
from headrace.queries.client.store_encodings import StoreEncoding
from headrace.queries.http_names import EVENTS_TYPE
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.tokens import Token, parse_token

_SILENT_SECONDS = 20.0
"""Without a part for so long the stream is dead: instances send heartbeats every 5 s."""
_PAUSE_SECONDS = 0.05
"""How long a watch waits before it connects again."""


def watch(
    client: Conversations,
    store: str,
    *,
    key: Any = None,
    prefix: Any = None,
    since: Token | str | None = None,
) -> Conversation[None]:
    """Emit changes and resets. A stream that breaks is opened again behind the last event.

    Raises:
        QueryProblemError: The watch is refused, or no instance answers within the timeout.
    """
    encoding = client.encoding(store)
    params = dict(encoding.params)
    if key is not None:
        params["key"] = encoding.key_to_text(key)
    if prefix is not None:
        params["prefix"] = encoding.key_to_text(prefix)
    path = f"{store_path(store)}/changes"
    last = None if since is None else str(since)
    while True:
        yield from _connect(client, path, params, last)
        parser = EventParser()
        while (part := (yield NextPart())) is not None:
            for event in parser.feed(part):
                item = _item(event, encoding)
                if item is not None:
                    yield Emit(item)
                last = event.event_id or last
        # It ends, has cut off a slow reader, or stands still.
        client.leave_server()
        yield Pause(_PAUSE_SECONDS)


def _connect(
    client: Conversations, path: str, params: Mapping[str, str], last: str | None
) -> Conversation[None]:
    headers = {"Accept": EVENTS_TYPE}
    if last is not None:
        headers["Last-Event-ID"] = last
    deadline = client.clock() + client.timeout
    untried = client.server_count
    while True:
        reply = yield Open(client.request(path, params, headers=headers, timeout=_SILENT_SECONDS))
        if isinstance(reply, Unreachable):
            problem = client.ask_next_server(reply)
            untried -= 1
        elif reply.status < 400:
            return
        else:
            problem = problem_of(reply)
            untried = 0
        if problem.retry_after_ms is None:
            raise problem
        seconds = problem.retry_after_ms / 1000
        if client.clock() + seconds >= deadline and untried <= 0:
            raise problem
        yield Pause(seconds)


def _item(event: Event, encoding: StoreEncoding) -> StoreChange | StoreReset | None:
    data = encoding.document(event.data)
    if event.name == "heartbeat":
        return None
    token = parse_token(data["snapshot"])
    if event.name == "reset":
        return StoreReset(token, event.event_id)
    if event.name != "change":
        msg = f"The instance sends events of an unknown kind, {event.name!r}. Update the client."
        raise QueryProblemError(ProblemCode.INTERNAL, msg)
    return StoreChange(
        encoding.key_from_json(data["key"]),
        encoding.value_from_json(data["value"]),
        token,
        data.get("timestamp"),
        data.get("start", data.get("valid_from")),
        data.get("end", data.get("valid_to")),
        event.event_id,
    )
