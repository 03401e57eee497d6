"""A proxy between an application and a Kafka cluster, which cuts the network once.

Clients ask a broker for the addresses of all brokers, so the proxy puts its own into those answers.
It reads no TLS, so the brokers must have a plain listener.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

from headrace.examples.exactly_once.addresses import FIND_COORDINATOR, METADATA, readdressed

T = TypeVar("T")

PRODUCE = 0
CUT_SECONDS = 1.0


class CuttableNetwork:
    """Leads to brokers, for the time of a ``with`` block.

    Args:
        servers: The ``bootstrap.servers`` of the cluster.
    """

    def __init__(self, servers: str) -> None:
        self.cuts = 0
        """How often the network was cut."""
        self._topic: bytes | None = None
        self._is_cut = False
        self._listeners: dict[str, asyncio.Server] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._thread.start()
        ports = [self._run(self._port_of(each.strip())) for each in servers.split(",")]
        self.address = ",".join(f"127.0.0.1:{port}" for port in ports)
        """The ``bootstrap.servers`` that lead through this proxy."""

    def __enter__(self) -> CuttableNetwork:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut_at_write(self, topic: str) -> None:
        """Cut the network for a second when a broker has written to a topic, before it says so."""
        self._topic = topic.encode()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _port_of(self, broker: str) -> int:
        """Return the port that leads to a broker."""
        if broker not in self._listeners:

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await self._serve(broker, reader, writer)

            self._listeners[broker] = await asyncio.start_server(serve, "127.0.0.1", 0)
        port: int = self._listeners[broker].sockets[0].getsockname()[1]
        return port

    async def _serve(
        self, broker: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        writers = [writer]
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            if not self._is_cut:
                host, _, port = broker.rpartition(":")
                answers, requests = await asyncio.open_connection(host.strip("[]"), int(port))
                writers.append(requests)
                asked: dict[bytes, tuple[int, int]] = {}
                pumps = asyncio.gather(
                    self._pass_requests(reader, requests, asked),
                    self._pass_answers(answers, writer, asked),
                )
                await pumps
        for each in writers:
            each.transport.abort()
        self._connections.discard(task)

    async def _pass_requests(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        asked: dict[bytes, tuple[int, int]],
    ) -> None:
        while True:
            request = await _message(reader)
            kind, version = int.from_bytes(request[:2]), int.from_bytes(request[2:4])
            if kind in (METADATA, FIND_COORDINATOR):
                asked[request[4:8]] = kind, version
            elif kind == PRODUCE and self._topic is not None and self._topic in request:
                asked[request[4:8]] = kind, version
                self._topic = None
            await _send(writer, request)

    async def _pass_answers(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        asked: dict[bytes, tuple[int, int]],
    ) -> None:
        while True:
            answer = await _message(reader)
            kind, version = asked.pop(answer[:4], (None, 0))
            if kind == PRODUCE:
                self._cut()
                await asyncio.Event().wait()  # until this connection ends, too
            elif kind is not None:
                answer = await readdressed(answer, kind, version, self._port_of)
            await _send(writer, answer)

    def _cut(self) -> None:
        """Break all connections, and each new one for a second."""
        self.cuts += 1
        self._is_cut = True
        self._loop.call_later(CUT_SECONDS, self._heal)
        for each in self._connections:
            each.cancel()

    def _heal(self) -> None:
        self._is_cut = False

    async def _end(self) -> None:
        for listener in self._listeners.values():
            listener.close()
        for each in self._connections:
            each.cancel()
        while self._connections:
            await asyncio.sleep(0.01)


async def _message(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(4))
    return await reader.readexactly(size)


async def _send(writer: asyncio.StreamWriter, message: bytes) -> None:
    writer.write(len(message).to_bytes(4) + message)
    await writer.drain()
