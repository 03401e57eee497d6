from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from headrace.errors import ConfigError
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.server import doors
from headrace.queries.server.doors import Doors, check_bind, is_loopback, read_token
from headrace.queries.server.problem_answers import TITLES

TOKEN = "0123456789abcdef-secret"

App = Callable[[Any, Any, Any], Awaitable[None]]


async def answer_ok(_scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"fine"})


def ask(
    app: App,
    path: str = "/v1/stores",
    *,
    url: str = "http://127.0.0.1:8080",
    token: str | None = None,
    hosts: tuple[str, ...] = (),
    client_address: str = "127.0.0.1",
    **request: Any,
) -> httpx.Response:
    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(
            Doors(app, token, hosts.__contains__), client=(client_address, 50_000)
        )
        async with httpx.AsyncClient(transport=transport, base_url=url) as client:
            return await client.request(request.pop("method", "GET"), path, **request)

    return asyncio.run(run())


def test_every_code_has_a_title() -> None:
    assert TITLES.keys() == {*ProblemCode}


def test_a_token_is_needed_in_full() -> None:
    for given in (None, "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer ü"):
        headers = {} if given is None else {"Authorization": given.encode()}
        refused = ask(answer_ok, token=TOKEN, headers=headers)
        assert refused.status_code == 401
        assert refused.headers["Content-Type"] == "application/problem+json"
        assert refused.headers["WWW-Authenticate"] == "Bearer"
        assert refused.json()["code"] == "UNAUTHENTICATED"
        assert TOKEN not in refused.text

    answer = ask(answer_ok, token=TOKEN, headers={"Authorization": f"bearer {TOKEN}"})

    assert (answer.status_code, answer.text) == (200, "fine")


def test_probes_and_documentation_need_no_token() -> None:
    for path in ("/health/live", "/health/ready", "/docs", "/openapi.json"):
        assert ask(answer_ok, path, token=TOKEN).status_code == 200


def test_a_page_under_another_name_is_refused_where_no_token_is_needed() -> None:
    for url in ("http://evil.example:8080", "http://10.1.2.3:8080", "http://evil"):
        refused = ask(answer_ok, url=url)
        assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN")
    for url in ("http://localhost:8080", "http://[::1]:8080", "http://127.0.0.1"):
        assert ask(answer_ok, url=url).status_code == 200

    assert ask(answer_ok, url="http://box:8080", hosts=("box",)).status_code == 200
    headers = {"Authorization": f"Bearer {TOKEN}"}
    named = ask(answer_ok, url="http://any:8080", token=TOKEN, headers=headers)
    assert named.status_code == 200


def test_other_machines_need_a_token_whatever_name_they_ask_for() -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    for address in ("10.1.2.3", "2001:db8::1", "::ffff:10.1.2.3", "testclient"):
        refused = ask(answer_ok, url="http://localhost", client_address=address)
        assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN")
        assert "server.token.file" in refused.json()["detail"]
        path = "/health/ready"
        assert ask(answer_ok, path, client_address=address).status_code == 200
        answer = ask(answer_ok, token=TOKEN, headers=headers, client_address=address)
        assert answer.status_code == 200

    # A Unix socket has no address, or an empty one.
    for address in ("127.8.8.8", "::1", "::ffff:127.0.0.1", ""):
        assert ask(answer_ok, client_address=address).status_code == 200


def test_no_answer_allows_other_origins() -> None:
    answer = ask(answer_ok, headers={"Origin": "http://evil.example"})

    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("is_announced", [True, False])
def test_a_large_body_is_refused(is_announced: bool) -> None:
    async def parts() -> Any:
        for _ in range(3):
            yield b"x" * (doors.MOST_BODY_BYTES // 2)

    content: Any = b"x" * (doors.MOST_BODY_BYTES + 1) if is_announced else parts()
    refused = ask(answer_ok, method="POST", content=content)

    assert (refused.status_code, refused.json()["code"]) == (413, "BODY_TOO_LARGE")


def test_a_request_keeps_its_id_and_gets_one_if_it_has_none() -> None:
    first, second = ask(answer_ok), ask(answer_ok)
    own = ask(answer_ok, headers={"Headrace-Request-Id": "mine-7"})
    odd = ask(answer_ok, headers={"Headrace-Request-Id": "a b\tc"})

    ids = [each.headers["Headrace-Request-Id"] for each in (first, second, own, odd)]
    assert ids[2] == "mine-7"
    assert len({*ids}) == 4
    assert " " not in ids[3]


def test_requests_over_the_limit_are_refused_until_others_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for limit in ("MOST_REQUESTS", "MOST_LOCAL_REQUESTS", "MOST_WATCHES"):
        monkeypatch.setattr(doors, limit, 1, raising=False)

    async def run() -> list[int]:
        may_end, begun = asyncio.Event(), []

        async def wait(scope: Any, receive: Any, send: Any) -> None:
            begun.append(scope["path"])
            await may_end.wait()
            await answer_ok(scope, receive, send)

        transport = httpx.ASGITransport(Doors(wait, None))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            paths = ["/a", "/v1/stores/s/changes", "/local/read"]
            running = [asyncio.create_task(client.get(path)) for path in paths]
            while len(begun) < len(paths):
                await asyncio.sleep(0)
            refused = [await client.get(path) for path in paths]
            may_end.set()
            ended = [await each for each in running]
            again = [await client.get(path) for path in paths]
        assert {each.json()["code"] for each in refused} == {"TOO_MANY_QUERIES"}
        assert {each.headers["Retry-After"] for each in refused} == {"1"}
        return [each.status_code for each in (*refused, *ended, *again)]

    assert asyncio.run(run()) == [*[429] * 3, *[200] * 6]


def test_probes_are_answered_while_as_many_requests_as_possible_are_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for limit in ("MOST_REQUESTS", "MOST_LOCAL_REQUESTS", "MOST_WATCHES"):
        monkeypatch.setattr(doors, limit, 0)

    answers = [ask(answer_ok, path) for path in ("/health/live", "/health/ready", "/metrics")]

    assert [each.status_code for each in answers] == [200, 200, 429]


def test_an_error_of_the_program_is_logged_and_not_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(_scope: Any, _receive: Any, _send: Any) -> None:
        raise ZeroDivisionError("a detail")

    with caplog.at_level(logging.ERROR, "headrace"):
        answer = ask(fail, headers={"Headrace-Request-Id": "r1"})

    assert answer.status_code == 500
    assert answer.json()["code"] == "INTERNAL"
    assert answer.json()["kafka_reason"] == "STORE_EXCEPTION"
    assert "a detail" not in answer.text
    assert "Request r1 failed" in caplog.text
    assert "a detail" in caplog.text


def test_a_client_that_leaves_while_its_body_is_read_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sent: list[Any] = []

    async def read_body(scope: Any, receive: Any, _send: Any) -> None:
        await Request(scope, receive).body()

    async def leave() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "path": "/v1/query", "headers": [(b"host", b"127.0.0.1")]}
    with caplog.at_level(logging.DEBUG, "headrace"):
        asyncio.run(Doors(read_body, None)(scope, leave, send))

    assert (sent, caplog.text) == ([], "")


def test_a_problem_says_when_to_try_again() -> None:
    async def fail(_scope: Any, _receive: Any, _send: Any) -> None:
        raise QueryProblemError(ProblemCode.STORE_NOT_READY, "81 %", retry_after_ms=1_200)

    answer = ask(fail, "/v1/stores/counts")

    assert answer.headers["Retry-After"] == "2"
    assert answer.json() == {
        "type": "/docs#STORE_NOT_READY",
        "title": "No instance has a ready copy",
        "status": 503,
        "detail": "81 %",
        "instance": "/v1/stores/counts",
        "code": "STORE_NOT_READY",
        "retry_after_ms": 1_200,
        "kafka_reason": "NOT_PRESENT",
        "request_id": answer.headers["Headrace-Request-Id"],
    }


def test_an_answer_that_fails_half_way_is_cut_off() -> None:
    async def fail(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ask(fail)


def test_a_reader_that_reads_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "SEND_SECONDS", 0.001)

    async def run() -> None:
        async def never(_message: Any) -> None:
            await asyncio.Event().wait()

        async def receive() -> Any:
            return {"type": "http.request", "body": b""}

        headers = [(b"host", b"localhost")]
        scope = {"type": "http", "method": "GET", "path": "/a", "headers": headers}
        await Doors(answer_ok, None)(scope, receive, never)

    with pytest.raises(TimeoutError):
        asyncio.run(run())


def test_other_machines_are_served_only_with_a_token() -> None:
    for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        assert is_loopback(host)
        check_bind(host, None)
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.org", ""):
        with pytest.raises(ConfigError, match=r"server\.token\.file"):
            check_bind(host, None)
        check_bind(host, TOKEN)


def test_a_token_file_must_hold_a_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(ConfigError, match="cannot be read"):
        read_token(path)
    for text in ("", "short", "with a space in the middle", "\x00" * 20):
        path.write_text(text)
        with pytest.raises(ConfigError, match="holds no token"):
            read_token(path)
    path.write_bytes(b"\xff" * 20)
    with pytest.raises(ConfigError, match="not ASCII"):
        read_token(path)

    path.write_text(TOKEN + "\n")

    assert read_token(path) == TOKEN
