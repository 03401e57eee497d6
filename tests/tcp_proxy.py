"""A loopback TCP proxy between a Kafka client and a broker, for faults of the network.

The broker must advertise the proxy's port: see `proxy_ports` of `tests/kafka_broker.py`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from typing import Literal, TypeAlias

Direction: TypeAlias = Literal["to_broker", "to_client"]

_LOOK_SECONDS = 0.005
_CHUNK_BYTES = 1 << 16
_ANSWERED_SECONDS = 0.3
"""In this time a broker has surely done what a request asks for."""


class Request(IntEnum):
    """Requests of clients, by the numbers of Kafka's protocol."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS = 24
    ADD_OFFSETS = 25
    END_TRANSACTION = 26
    COMMIT_OFFSETS = 28


class TcpProxy:
    """Passes bytes on until a fault stops it; a ``with`` block ends it.

    Its methods may be called from any thread.

    Args:
        target: Where to, as "host:port"; may be said later with `lead_to`.
    """

    def __init__(self, target: str | None = None) -> None:
        self._target = target
        self._is_cut = False
        self._delay = 0.0
        self._stalled: set[Direction] = set()
        self._frozen: set[asyncio.Task[None]] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._trap: tuple[Request, Callable[[], object], bool, bytes] | None = None
        self.trapped = threading.Event()
        """Whether the request that `on_request` waits for has come."""
        self.met = 0
        """How many connections and chunks a fault has met so far."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tcp-proxy")
        self._thread.start()
        opening = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(opening, self._loop).result()
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"

    def __enter__(self) -> TcpProxy:
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def lead_to(self, target: str) -> None:
        """Set the target of the proxy."""
        self._target = target

    def cut(self) -> None:
        """Break all connections, and every new one, until `heal`."""
        self._is_cut = True
        self.drop()

    def drop(self) -> None:
        """Break the connections there are; new ones are made as before."""
        self._loop.call_soon_threadsafe(self._cancel)

    def stall(self, *directions: Direction) -> None:
        """Hold bytes back, in one direction or both, until `heal`; connections stay open."""
        self._stalled |= set(directions or ("to_broker", "to_client"))

    def freeze(self) -> None:
        """Hold back for ever what comes over the connections there are; new ones work."""
        self._frozen |= self._connections

    def delay(self, seconds: float) -> None:
        """Pass everything on later, until `heal`."""
        self._delay = seconds

    def heal(self) -> None:
        """Undo `cut`, `stall` and `delay`."""
        self._is_cut, self._delay = False, 0.0
        self._stalled.clear()

    def on_request(
        self,
        request: Request,
        fault: Callable[[], object],
        *,
        arrives: bool = False,
        of: str = "",
    ) -> None:
        """Inject a fault when a client next sends a request.

        Args:
            request: Which.
            fault: One of the methods above.
            arrives: Whether the broker still gets the request, and only the answer is met.
            of: A name that the request must contain: another client may send one, too.
        """
        self.trapped.clear()
        self._trap = request, fault, arrives, of.encode()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        outwards: asyncio.StreamWriter | None = None
        pumps: list[asyncio.Task[None]] = []
        try:
            if self._is_cut or self._target is None:
                self.met += 1
                return
            host, _, port = self._target.rpartition(":")
            inwards, outwards = await asyncio.open_connection(host, int(port))
            pumps = [
                asyncio.ensure_future(self._pump_requests(reader, outwards, task)),
                asyncio.ensure_future(self._pump(inwards, writer, task)),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for pump in pumps:
                pump.cancel()
            for each in (writer, outwards):
                if each is not None:
                    each.transport.abort()
            self._connections.discard(task)
            self._frozen.discard(task)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        connection: asyncio.Task[None],
    ) -> None:
        with suppress(OSError):
            while chunk := await reader.read(_CHUNK_BYTES):
                await self._pass_on(chunk, writer, connection, "to_client")

    async def _pump_requests(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        connection: asyncio.Task[None],
    ) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readexactly(4)
                body = await reader.readexactly(int.from_bytes(head, "big"))
                trap, asked = self._trap, int.from_bytes(body[:2], "big")
                if trap is None or trap[0] != asked or trap[3] not in body:
                    await self._pass_on(head + body, writer, connection, "to_broker")
                    continue
                _, fault, arrives, _ = trap
                self._trap = None
                if arrives:
                    # The broker does it; its answer waits, and meets the fault.
                    self._stalled.add("to_client")
                    await self._pass_on(head + body, writer, connection, "to_broker")
                    await asyncio.sleep(_ANSWERED_SECONDS)
                    self._stalled.discard("to_client")
                fault()
                self.trapped.set()
                if not arrives:
                    await self._pass_on(head + body, writer, connection, "to_broker")

    async def _pass_on(
        self,
        data: bytes,
        writer: asyncio.StreamWriter,
        connection: asyncio.Task[None],
        direction: Direction,
    ) -> None:
        if self._delay:
            self.met += 1
            await asyncio.sleep(self._delay)
        if direction in self._stalled or connection in self._frozen:
            self.met += 1
        while direction in self._stalled or connection in self._frozen:
            await asyncio.sleep(_LOOK_SECONDS)
        writer.write(data)
        await writer.drain()

    def _cancel(self) -> None:
        self.met += len(self._connections)
        for connection in self._connections:
            connection.cancel()

    async def _end(self) -> None:
        self._server.close()
        self._is_cut = True
        self._cancel()
        while self._connections:
            await asyncio.sleep(_LOOK_SECONDS)
