from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.config import StreamsConfig
from headrace.queries.coordination.http_transport import HttpTransport
from headrace.queries.coordination.local_answers import answer_locally
from headrace.queries.coordination.local_changes import answer_changes
from headrace.queries.coordination.local_reads import (
    LocalChanges,
    LocalRead,
    MessagePack,
    PeerUnreachableError,
    ShardRead,
)
from headrace.queries.coordination.local_routes import CHANGES_PATH, READ_PATH, STATUS_PATH
from headrace.queries.copy.layout import Shard
from headrace.queries.members import MemberStatus
from headrace.queries.reads import ScanKeys
from headrace.queries.server.doors import Doors
from headrace.queries.server.server import QueryServer
from tests.unit.queries.fake_cluster import STORE, FakeApplication, FakeCluster, FakeInstance

TOKEN = "a-token-of-enough-characters"
Answer = Callable[[str, bytes], Awaitable[tuple[int, bytes]]]


def _server(tmp_path: Path, answer: Answer) -> QueryServer:
    token = tmp_path / "token"
    token.write_text(TOKEN)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        status, content = await answer(scope["path"], body)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": content})

    server = QueryServer(
        StreamsConfig(application_id="app", server_token_file=token), "127.0.0.1", 0
    )
    server.bind()
    server.start(Doors(app, TOKEN))
    return server


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Answer], str]]:
    servers: list[QueryServer] = []

    def start(answer: Answer) -> str:
        servers.append(_server(tmp_path, answer))
        return f"127.0.0.1:{servers[-1].port}"

    yield start
    for server in servers:
        server.close()


@asynccontextmanager
async def _transport(token: str | None = TOKEN) -> AsyncIterator[HttpTransport]:
    transport = HttpTransport(token)
    try:
        yield transport
    finally:
        await transport.close()


def _answers_of(instance: FakeInstance) -> Answer:
    async def answer(path: str, body: bytes) -> tuple[int, bytes]:
        if path == READ_PATH:
            read = MessagePack.decode_read(body)
            return 200, MessagePack.encode(await answer_locally(instance, read))
        if path == CHANGES_PATH:
            changes = MessagePack.decode_changes(body)
            return 200, MessagePack.encode(await answer_changes(instance, changes))
        assert path == STATUS_PATH
        return 200, msgspec.json.encode(instance.status())

    return answer


def test_reads_changes_and_status_travel_over_http(serve: Callable[[Answer], str]) -> None:
    async def make() -> FakeCluster:
        cluster = FakeCluster(FakeApplication(1), "a", standbys=0)
        cluster.apply_everywhere()
        cluster.application.commit({STORE: {b"\xff\x00": b"1", b"b": b"2"}})
        cluster.apply_everywhere()
        return cluster

    cluster = asyncio.run(make())
    instance, token = cluster.instances["a"], str(cluster.application.token())
    member = serve(_answers_of(instance))

    async def main() -> None:
        async with _transport() as transport:
            read = LocalRead(reads=(ShardRead(STORE, 0, ScanKeys()),), at=token, wants_record=True)
            answer = await transport.read(member, read)
            assert [row.key for row in answer.shards[0].rows] == [b"b", b"\xff\x00"]
            assert (answer.token, answer.record) == (token, cluster.application.records[2])
            assert answer.status == instance.status()
            after = str(cluster.application.token(1))
            changes = LocalChanges(store=STORE, partitions=(0,), after=after)
            changed = await transport.changes(member, changes)
            assert [row.key for row in changed.shards[0].rows] == [b"b", b"\xff\x00"]
            assert await transport.status(member) == instance.status()

    asyncio.run(main())


def test_a_peer_that_gives_no_usable_answer_is_unreachable(
    serve: Callable[[Answer], str],
) -> None:
    async def answer(path: str, _: bytes) -> tuple[int, bytes]:
        return (500, b"") if path == CHANGES_PATH else (200, b"not MessagePack")

    member = serve(answer)

    async def main() -> None:
        async with _transport() as transport:
            with pytest.raises(PeerUnreachableError, match="another version"):
                await transport.read(member, LocalRead())
            with pytest.raises(PeerUnreachableError, match="another version"):
                await transport.status(member)
            changes = LocalChanges(store=STORE, partitions=(), after="")
            with pytest.raises(PeerUnreachableError, match="status 500"):
                await transport.changes(member, changes)
        async with _transport(None) as transport:
            with pytest.raises(PeerUnreachableError, match=r"server\.token\.file"):
                await transport.read(member, LocalRead())

    asyncio.run(main())


def test_a_peer_that_is_gone_is_unreachable() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        member = f"127.0.0.1:{closed.getsockname()[1]}"

        async def main() -> None:
            async with _transport() as transport:
                with pytest.raises(PeerUnreachableError, match="does not answer"):
                    await transport.read(member, LocalRead())
                with pytest.raises(PeerUnreachableError, match="does not answer"):
                    await transport.status(member)

        asyncio.run(main())


def test_a_peer_that_resets_a_connection_while_it_is_opened_is_unreachable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The library that opens the connection then asks a socket that is None for its address."""

    def reset(_transport: object, _request: object) -> object:
        raise AttributeError("'NoneType' object has no attribute 'getpeername'")

    monkeypatch.setattr("httpx.AsyncHTTPTransport.handle_async_request", reset)

    async def ask() -> None:
        transport = HttpTransport(TOKEN)
        for question in (transport.status("a:1"), transport.read("a:1", LocalRead())):
            with pytest.raises(PeerUnreachableError, match="does not answer: 'NoneType' object"):
                await question
        await transport.close()

    asyncio.run(ask())


def test_plain_http_loads_no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """To read those of the system takes longer than a question, and status is asked often."""
    loaded: list[str] = []
    load = ssl.SSLContext.load_verify_locations

    def note(context: ssl.SSLContext, *places: Any, **names: Any) -> None:
        loaded.append("certificates")
        load(context, *places, **names)

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", note)

    async def ask() -> None:
        async with _transport() as transport:
            with pytest.raises(PeerUnreachableError):
                await transport.status("127.0.0.1:1")
            with pytest.raises(PeerUnreachableError):
                await transport.read("127.0.0.1:1", LocalRead())

    asyncio.run(ask())

    assert loaded == []


@pytest.mark.parametrize("member", ["", "host", "host:1/x", "a@b:1", "host:1?", "../x:1", "h:1\n"])
def test_a_name_that_is_no_address_is_not_asked(member: str) -> None:
    async def main() -> MemberStatus:
        return await HttpTransport().status(member)

    with pytest.raises(PeerUnreachableError, match="no address"):
        asyncio.run(main())


def test_a_connection_that_the_peer_has_closed_is_opened_again() -> None:
    async def main() -> None:
        requests = 0

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal requests
            await reader.readuntil(b"\r\n\r\n")
            requests += 1
            if requests > 1:
                content = MessagePack.encode({})
                head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
                writer.write(head % len(content) + content)
                await writer.drain()
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        async with server, _transport() as transport:
            port = server.sockets[0].getsockname()[1]
            answer = await transport.read(f"127.0.0.1:{port}", LocalRead())
        assert (answer.token, requests) == (None, 2)

    asyncio.run(main())


def test_the_bytes_of_a_shard_arrive_as_they_are_sent(
    serve: Callable[[Answer], str],
) -> None:
    async def answer(path: str, _body: bytes) -> tuple[int, bytes]:
        return (200, b"1" * 300_000) if path == "/local/shards/a-b/3" else (503, b"")

    member = serve(answer)

    with HttpTransport(TOKEN).shard(member, Shard("a-b", 3)) as chunks:
        assert b"".join(chunks) == b"1" * 300_000
    for token, shard, reason in (
        (TOKEN, Shard("a-b", 4), "status 503"),
        (None, Shard("a-b", 3), "server.token.file"),
    ):
        transport = HttpTransport(token)
        with pytest.raises(PeerUnreachableError, match=reason), transport.shard(member, shard):
            pass
    with (
        pytest.raises(PeerUnreachableError, match="does not answer"),
        HttpTransport(TOKEN).shard("127.0.0.1:1", Shard("a", 0)),
    ):
        pass


def test_a_shard_that_is_cut_off_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def cut() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(10_000)
                head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                connection.sendall(head + b"2\r\nab\r\n")

        thread = threading.Thread(target=cut)
        thread.start()
        member = f"127.0.0.1:{server.getsockname()[1]}"
        with (
            pytest.raises(PeerUnreachableError, match="does not answer"),
            HttpTransport().shard(member, Shard("a", 0)) as chunks,
        ):
            list(chunks)
        thread.join()
