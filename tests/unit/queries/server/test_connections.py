"""An instance's own server gives the answers of uvicorn, and point reads in a shorter way."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import httpx
import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headrace.queries.server import QueryApp, QueryServer, create_app
from headrace.queries.server.point_reads import PointAnswer
from headrace.queries.server.server import MOST_AT_ONCE, Connection
from tests.certificates import make_certificate
from tests.unit.queries.server.served_application import ServedApplication
from tests.waiting import PATIENCE

needs_a_port = pytest.mark.tier("test")

TOKEN = "0123456789abcdef-secret"
VOLATILE = {"date", "headrace-age", "headrace-request-id", "content-length"}
ALICE, BOB = "/v1/stores/counts/keys/alice", "/v1/stores/counts/keys/bob"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def steady(self) -> Answer:
        """Return the answer without the values that differ each time."""
        headers = {name: "" if name in VOLATILE else each for name, each in self.headers.items()}
        request_id = self.headers.get("headrace-request-id", "none").encode()
        return Answer(self.status, headers, self.body.replace(request_id, b""))


class Client:
    """A connection over which a test writes any bytes."""

    def __init__(self, server: QueryServer) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
        self._received = self.socket.makefile("rb")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._received.close()
        self.socket.close()

    def send(self, *requests: bytes) -> None:
        self.socket.sendall(b"".join(requests))

    def answer(self, *, has_body: bool = True) -> Answer | None:
        """Return the next answer; None: the connection has ended."""
        line = self._received.readline()
        if not line:
            return None
        headers = {}
        while (field := self._received.readline()) != b"\r\n":
            name, _, value = field.decode().partition(":")
            headers[name.lower()] = value.strip()
        status = int(line.split()[1])
        size = int(headers.get("content-length", 0)) if has_body and status != 304 else 0
        return Answer(status, headers, self._received.read(size))


def request(
    path: str, *fields: str, method: str = "GET", body: bytes = b"", version: str = "1.1"
) -> bytes:
    lines = (f"{method} {path} HTTP/{version}", "Host: localhost", *fields, "", "")
    return "\r\n".join(lines).encode() + body


def serve(
    stack: ExitStack,
    app: QueryApp,
    config: Any,
    *,
    is_plain: bool = False,
) -> QueryServer:
    """Start a server; a plain one has uvicorn's connections, as that of a user."""
    server = QueryServer(config, "127.0.0.1", 0)
    server.bind()
    server.start(app, None if is_plain else app.point_reads)
    stack.callback(server.close)
    return server


@pytest.fixture(scope="module")
def servers(application: ServedApplication) -> Iterator[tuple[QueryServer, QueryServer]]:
    with ExitStack() as stack:
        own, plain = (
            serve(stack, create_app(application), application.config, is_plain=is_plain)
            for is_plain in (False, True)
        )
        yield own, plain


KEYS = "/v1/stores/{}/keys/{}".format
REQUESTS = {
    "a key": request(ALICE),
    "a key with a slash": request(KEYS("counts", "a%2Fb%20c")),
    "a key with a slash as it is": request(KEYS("counts", "a/b%20c")),
    "a key of numbers": request(KEYS("people", "7")),
    "a key of bytes": request(KEYS("blobs", "-_8")),
    "serialised bytes": request(KEYS("counts", "YWxpY2U") + "?encoding=bytes"),
    "a versioned store": request(KEYS("prices", "tea")),
    "an old version": request(KEYS("prices", "tea") + "?as_of=1500"),
    "a global store": request(KEYS("countries", "AT")),
    "an earlier snapshot will do": request(ALICE + "?min_snapshot={token}&wait_ms=10"),
    "a later snapshot is needed": request(ALICE + "?min_snapshot={later}&wait_ms=1"),
    "another history": request(ALICE + "?min_snapshot=00000000.0&wait_ms=1"),
    "that snapshot": request(ALICE + "?snapshot={token}"),
    "records that are needed": request(ALICE + "?min_position=lines:0:1"),
    "no parameters": request(ALICE + "?"),
    "an odd parameter": request(ALICE + "?a=b"),
    "a token that is none": request(ALICE + "?min_snapshot=x"),
    "a fragment": request(ALICE + "#part"),
    "an address in full": request("http://localhost" + ALICE),
    "no such key": request(KEYS("counts", "nobody")),
    "no such store": request(KEYS("none", "alice")),
    "no such text": request(KEYS("people", "x")),
    "no UTF-8": request(KEYS("counts", "%ff")),
    "an empty key": request(KEYS("counts", "")),
    "a store of windows": request(KEYS("windows", "alice")),
    "another route": request("/v1/stores/counts?counted=false"),
    "no route": request("/v1/none"),
    "only the head": request(ALICE, method="HEAD"),
    "a wrong method": request(ALICE, "Content-Length: 2", method="POST", body=b"{}"),
    "an unchanged answer": request(ALICE, 'If-None-Match: "x", "{token}"'),
    "a changed answer": request(ALICE, 'If-None-Match: "x"'),
    "an id of the request": request(ALICE, "Headrace-Request-Id: mine"),
    "a body": request(ALICE, "Content-Length: 2", body=b"ab"),
    "a body in chunks": request(ALICE, "Transfer-Encoding: chunked", body=b"1\r\na\r\n0\r\n\r\n"),
    "no body expected": request(ALICE, "Expect: 100-continue"),
    "another name": request(ALICE, "Host: evil.example"),
    "an upgrade": request(ALICE, "Connection: Upgrade", "Upgrade: h2c"),
    "an end": request(ALICE, "Connection: close"),
    "an end, in a list": request(ALICE, "Connection: close, te"),
    "an old version of the protocol": request(ALICE, version="1.0"),
    "an old one that stays open": request(ALICE, "Connection: keep-alive", version="1.0"),
    "no version": b"GET " + ALICE.encode() + b"\r\n\r\n",
    "no host": b"GET " + ALICE.encode() + b" HTTP/1.1\r\n\r\n",
    "a broken line": request(ALICE + " x"),
    "text that is not ASCII": b"GET " + ALICE.encode() + "ü".encode() + b" HTTP/1.1\r\n\r\n",
}


@needs_a_port
@pytest.mark.parametrize("what", REQUESTS)
def test_each_answer_is_that_of_uvicorn(
    what: str, servers: tuple[QueryServer, QueryServer], application: ServedApplication
) -> None:
    history, _, number = (token := application.token()).partition(".")
    asked = REQUESTS[what].replace(b"{token}", token.encode())
    asked = asked.replace(b"{later}", f"{history}.{int(number) + 1}".encode())
    found = []

    for server in servers:
        with Client(server) as client:
            client.send(asked)
            first = client.answer(has_body=not asked.startswith(b"HEAD"))
            try:
                client.send(request("/health/live"))
                second = client.answer()
            except ConnectionError:  # closed, and our request was not read
                second = None
            found.append([each and each.steady() for each in (first, second)])

    assert found[0] == found[1]
    assert found[0][0] is not None


@needs_a_port
def test_answers_of_one_connection_are_in_order_behind_a_slow_one(
    application: ServedApplication,
) -> None:
    app = create_app(application)
    begun, may_end = threading.Event(), asyncio.Event()

    @app.get("/slow")
    async def slow() -> str:
        begun.set()
        await may_end.wait()
        return "slow"

    @app.get("/end")
    async def end() -> str:
        may_end.set()
        return "end"

    with ExitStack() as stack:
        server = serve(stack, app, application.config)
        waiting, other = (stack.enter_context(Client(server)) for _ in range(2))
        waiting.send(*map(request, (ALICE, "/slow", BOB, "/health/live", ALICE)))
        assert begun.wait(PATIENCE)
        other.send(request(BOB), request("/end"))
        meanwhile = [other.answer() for _ in range(2)]
        found = [waiting.answer() for _ in range(5)]

    assert [each and each.body for each in meanwhile] == [b"1", b'"end"']
    bodies = [each and each.body for each in found]
    assert [*bodies[:3], bodies[4]] == [b"2", b'"slow"', b"1", b"2"]
    assert {each and each.status for each in found} == {200}


@needs_a_port
def test_many_requests_at_once_are_answered_in_order(
    servers: tuple[QueryServer, QueryServer],
) -> None:
    with Client(servers[0]) as client:
        client.send(*[request(ALICE), request(BOB), request(BOB)] * 500)
        found = [client.answer() for _ in range(1_500)]

    assert [each and each.body for each in found] == [b"2", b"1", b"1"] * 500


@needs_a_port
def test_a_token_is_needed(application: ServedApplication, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    config = application.config.with_settings(server_token_file=file)
    locked = SimpleNamespace(
        topology=application.topology, config=config, instance=application.instance
    )
    with ExitStack() as stack:
        client = stack.enter_context(Client(serve(stack, create_app(locked), config)))
        found = []
        for given in (
            (),
            (f"Authorization: Bearer {TOKEN}x",),
            (f"Authorization: bearer {TOKEN}",),
        ):
            client.send(request(ALICE, *given))
            found.append(client.answer())

    assert [each and each.status for each in found] == [401, 401, 200]
    assert found[0] is not None
    assert found[0].headers["content-type"] == "application/problem+json"


@needs_a_port
def test_point_reads_over_tls(application: ServedApplication, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    config = application.config.with_settings(
        server_tls_certificate=certificate, server_tls_key=key
    )
    with ExitStack() as stack:
        server = serve(stack, create_app(application), config)
        trusted = ssl.create_default_context(cafile=str(certificate))
        client = stack.enter_context(httpx.Client(base_url=server.url, verify=trusted))
        found = [client.get(path).text for path in (ALICE, "/health/live", BOB)]

    assert found == ["2", "live\n", "1"]


@needs_a_port
def test_a_server_that_stops_closes_connections_that_wait(application: ServedApplication) -> None:
    with ExitStack() as stack:
        client = None
        with ExitStack() as serving:
            server = serve(serving, create_app(application), application.config)
            client = stack.enter_context(Client(server))
            client.send(request(ALICE))
            assert client.answer() is not None

        assert client.answer() is None


class Transport(asyncio.Transport):
    """Records the answers of a connection."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 50_000), "sockname": ("127.0.0.1", 80)})
        self.written = b""
        self.closed = asyncio.Event()

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed.set()

    def is_closing(self) -> bool:
        return self.closed.is_set()

    def pause_reading(self) -> None:
        """Do nothing: a test calls `data_received`."""

    def resume_reading(self) -> None:
        """Do nothing: a test calls `data_received`."""

    @property
    def answers(self) -> int:
        """The number of answers that were written."""
        return self.written.count(b"HTTP/1.1 200 OK")


async def fail(_scope: Any, _receive: Any, _send: Any) -> None:
    """Answer as an application that must not be asked."""
    raise AssertionError("the application was asked")


def connection(
    application: ServedApplication, app: Any = None, *, reads: Any = None, keep_alive: int = 5
) -> tuple[Connection, Transport]:
    """Return a connection without a socket, in the loop that runs."""
    own = create_app(application)
    config = uvicorn.Config(app or own, timeout_keep_alive=keep_alive, log_config=None)
    server = uvicorn.Server(config)
    config.load()
    made = Connection(
        reads or own.point_reads, config=config, server_state=server.server_state, app_state={}
    )
    made.connection_made(transport := Transport())
    return made, transport


async def until(is_so: Callable[[], bool]) -> None:
    """Run the loop until a condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not is_so():
            await asyncio.sleep(0)


def test_a_point_read_is_answered_in_one_write_without_the_application(
    application: ServedApplication,
) -> None:
    async def run() -> bytes:
        made, transport = connection(application, fail)
        made.data_received(request(ALICE))
        return transport.written

    written = asyncio.run(run())

    head, _, body = written.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert body == b"2"


def test_a_fragment_is_no_part_of_a_key(application: ServedApplication) -> None:
    reads = SimpleNamespace(answer=lambda *_: PointAnswer(200, b"", b""))

    async def run() -> list[int]:
        made, transport = connection(application, reads=reads)
        found = []
        for path in (ALICE, f"{ALICE}#part"):
            made.data_received(request(path))
            found.append(transport.answers)
        await until(lambda: transport.answers == 2)
        return found

    assert asyncio.run(run()) == [1, 1]


def test_a_request_in_pieces_is_answered_when_it_is_complete(
    application: ServedApplication,
) -> None:
    asked = request(ALICE, "Accept: application/json")

    async def run() -> list[bytes]:
        made, transport = connection(application, fail)
        found = []
        for number in range(len(asked)):
            found.append(transport.written)
            made.data_received(asked[number : number + 1])
        return [*found, transport.written]

    *before, after = asyncio.run(run())

    assert {*before} == {b""}
    assert after.endswith(b"\r\n\r\n2")


def test_a_connection_with_many_requests_lets_others_have_their_turn(
    application: ServedApplication,
) -> None:
    async def run() -> tuple[int, int]:
        made, transport = connection(application)
        made.data_received(request(ALICE) * 100)
        at_once = transport.answers
        await until(lambda: transport.answers == 100)
        made.data_received(request(ALICE))
        return at_once, transport.answers

    assert asyncio.run(run()) == (MOST_AT_ONCE, 101)


def test_nothing_is_written_to_a_client_that_does_not_read(
    application: ServedApplication,
) -> None:
    async def run() -> tuple[int, int]:
        made, transport = connection(application)
        made.pause_writing()
        made.data_received(request(ALICE) * 2)
        for _ in range(20):
            await asyncio.sleep(0)
        before = transport.answers
        made.resume_writing()
        await until(lambda: transport.answers == 2)
        return before, transport.answers

    assert asyncio.run(run()) == (0, 2)


def test_a_client_that_asks_no_more_is_cut_off(application: ServedApplication) -> None:
    async def run() -> bool:
        made, transport = connection(application, fail, keep_alive=0)
        made.data_received(request(ALICE))
        is_open = not transport.is_closing()
        async with asyncio.timeout(PATIENCE):
            await transport.closed.wait()
        return is_open

    assert asyncio.run(run())


def test_each_answer_is_counted(application: ServedApplication) -> None:
    async def run() -> tuple[int, str]:
        made, transport = connection(application)
        made.data_received(request(ALICE) * 3)
        made.data_received(request("/metrics"))
        await until(lambda: transport.answers == 4)
        return made.server_state.total_requests, transport.written.decode()

    requests, written = asyncio.run(run())

    assert requests == 4
    assert "headrace_query_total{" in written
    [line] = [each for each in written.splitlines() if each.startswith("headrace_query_total{")]
    assert 'store="counts",kind="keys",code="OK"' in line
    assert line.endswith(" 3")


def test_an_error_of_the_program_is_logged_and_not_shown(
    application: ServedApplication,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> bytes:
        made, transport = connection(application)
        made.data_received(request(ALICE))
        await until(lambda: transport.written.endswith(b"}"))
        return transport.written

    def fail_to_hash(*_: object) -> None:
        raise ZeroDivisionError("a detail")

    monkeypatch.setattr("headrace.queries.catalog.remembered_partition", fail_to_hash)

    written = asyncio.run(run())

    assert written.startswith(b"HTTP/1.1 500 ")
    assert b'"code":"INTERNAL"' in written
    assert b"a detail" not in written
    assert "a detail" in caplog.text


def test_uvicorn_has_the_parts_that_a_connection_uses(application: ServedApplication) -> None:
    async def run() -> Connection:
        made, transport = connection(application)
        assert made.cycle is None
        made.data_received(request("/health/live"))
        assert made.cycle.response_complete is False
        await until(lambda: made.cycle.response_complete)
        assert transport.answers == 1
        return made

    hint = f"uvicorn {uvicorn.__version__} differs: adapt headrace/queries/server/server.py"
    for callback in (
        "data_received",
        "on_headers_complete",
        "on_message_complete",
        "on_response_complete",
    ):
        assert callable(getattr(HttpToolsProtocol, callback, None)), hint
    made = asyncio.run(run())
    assert made.url == b"/health/live", hint
    assert made.headers == [(b"host", b"localhost")], hint
    assert made.client == ("127.0.0.1", 50_000), hint
    assert made.flow.write_paused is False, hint
    assert isinstance(made.server_state.default_headers, list), hint
    assert made.parser.get_method() == b"GET", hint
