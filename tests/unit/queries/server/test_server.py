from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace import StreamsConfig
from headrace.errors import ConfigError, QueryError
from headrace.queries.server import doors
from headrace.queries.server.doors import Doors
from headrace.queries.server.server import QueryServer
from tests.certificates import make_certificate

pytestmark = pytest.mark.tier("test")

TOKEN = "0123456789abcdef-secret"


async def app(scope: Any, _receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        raise ValueError("no lifespan")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/v1/stores/a/changes":
        await send({"type": "http.response.body", "body": b"first\n", "more_body": True})
        await asyncio.Event().wait()
    await send({"type": "http.response.body", "body": b"fine"})


def test_a_server_answers_from_bind_to_close_and_ends_open_watches() -> None:
    server = QueryServer(StreamsConfig(), "127.0.0.1", 0)
    port = server.bind()
    server.start(Doors(app, None))
    read, ended = threading.Event(), threading.Event()

    def watch() -> None:
        with httpx.stream("GET", f"{server.url}/v1/stores/a/changes", timeout=60) as answer:
            for _ in answer.iter_lines():
                read.set()
        ended.set()

    thread = threading.Thread(target=watch)
    thread.start()
    assert read.wait(60)
    assert httpx.get(f"{server.url}/a").text == "fine"
    assert server.url == f"http://127.0.0.1:{port}"

    server.close()

    assert ended.wait(60), "the watch ends in an orderly way, not by an error"
    thread.join()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/a")


def test_a_reader_of_a_watch_who_reads_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "SEND_SECONDS", 0.2)
    ended: list[type[BaseException]] = []
    is_over = threading.Event()

    async def watch(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while True:
                await send({"type": "http.response.body", "body": b"." * 65_536, "more_body": True})
        except BaseException as error:
            ended.append(type(error))
            raise
        finally:
            is_over.set()

    server = QueryServer(StreamsConfig(), "127.0.0.1", 0)
    port = server.bind()
    server.start(Doors(watch, None))
    with socket.create_connection(("127.0.0.1", port)) as reader:
        reader.settimeout(60)
        reader.sendall(b"GET /v1/stores/a/changes HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert reader.recv(1)

        assert is_over.wait(60)

        assert ended == [TimeoutError]
        with suppress(ConnectionResetError):
            while reader.recv(1 << 20):
                pass
    server.close()


def test_the_next_free_port_is_used() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        alone = QueryServer(StreamsConfig(), "127.0.0.1", port)
        with pytest.raises(QueryError, match=f"port {port}: Address already in use"):
            alone.bind()
        alone.close()
        server = QueryServer(StreamsConfig(), "127.0.0.1", port, last_port=port + 50)

        found = server.bind()

        assert port < found <= port + 50
        server.close()


def test_a_token_lets_other_machines_in(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    with pytest.raises(ConfigError, match="Any machine that reaches"):
        QueryServer(StreamsConfig(), "0.0.0.0", 0)
    server = QueryServer(StreamsConfig(server_token_file=path), "0.0.0.0", 0)
    url = f"http://127.0.0.1:{server.bind()}/a"
    server.start(Doors(app, TOKEN))

    assert httpx.get(url).status_code == 401
    assert httpx.get(url, headers={"Authorization": f"Bearer {TOKEN}"}).text == "fine"
    server.close()


def test_tls_by_settings(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    config = StreamsConfig(server_tls_certificate=certificate, server_tls_key=key)
    server = QueryServer(config, "127.0.0.1", 0)
    server.bind()
    server.start(Doors(app, None))

    assert server.url.startswith("https://")
    trusted = ssl.create_default_context(cafile=str(certificate))
    assert httpx.get(f"{server.url}/a", verify=trusted).text == "fine"
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/a")
    server.close()


def test_a_server_does_not_wait_for_idle_clients_to_end_tls(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = make_certificate(tmp_path)
    config = StreamsConfig(server_tls_certificate=certificate, server_tls_key=key)
    server = QueryServer(config, "127.0.0.1", 0)
    server.bind()
    server.start(Doors(app, None))
    with httpx.Client(verify=ssl.create_default_context(cafile=str(certificate))) as client:
        client.get(f"{server.url}/a")

        server.close()

    assert [each.message for each in caplog.records if each.levelname == "ERROR"] == []


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_certificate_that_cannot_be_used_is_refused(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "cert.pem"
    if content is not None:
        path.write_text(content)
    config = StreamsConfig(server_tls_certificate=path, server_tls_key=path)
    server = QueryServer(config, "127.0.0.1", 0)
    server.bind()

    with pytest.raises(ConfigError, match=r"server\.tls\.certificate"):
        server.start(Doors(app, None))
    server.close()


def test_an_application_that_does_not_start_is_an_error() -> None:
    async def fail(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "lifespan"
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no"})

    server = QueryServer(StreamsConfig(), "127.0.0.1", 0)
    server.bind()

    with pytest.raises(QueryError, match="did not start"):
        server.start(Doors(fail, None))
    server.close()
