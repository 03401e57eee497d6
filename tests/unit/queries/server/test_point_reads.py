"""The head and the body of a small answer leave in one write."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from headrace.queries.server.point_reads import send_at_once

HEAD: Any = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-length", b"2")],
}
BODY: Any = {"type": "http.response.body", "body": b"42"}
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n"


class Transport:
    """Records what a server does with a connection."""

    def __init__(self) -> None:
        self.done: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.done.append(data)

    def close(self) -> None:
        self.done.append(b"closed")

    def is_closing(self) -> bool:
        return b"closed" in self.done


def answered(*, keep_alive: bool) -> tuple[Transport, Any]:
    transport = Transport()
    connection: Any = transport
    scope: Any = {"method": "GET"}  # all that an answer needs
    log = logging.getLogger("uvicorn")
    cycle: Any = RequestResponseCycle(
        scope=scope,
        transport=connection,
        flow=FlowControl(connection),
        logger=log,
        access_logger=log,
        access_log=False,
        default_headers=[],
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=keep_alive,
        on_response=lambda: None,
    )
    asyncio.run(send_at_once(cycle.send, HEAD, BODY))
    return transport, cycle


def test_head_and_body_leave_in_one_write() -> None:
    transport, cycle = answered(keep_alive=True)

    assert transport.done == [WHOLE + b"\r\n42"]
    assert cycle.response_complete
    assert cycle.transport is transport


def test_a_connection_is_closed_behind_the_answer() -> None:
    transport, _ = answered(keep_alive=False)

    assert transport.done == [WHOLE + b"connection: close\r\n\r\n42", b"closed"]


def test_another_server_gets_both_messages() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(send_at_once(send, HEAD, BODY))

    assert sent == [HEAD, BODY]
