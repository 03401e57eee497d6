"""Every request without an answer gets a problem of the closed list."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.queries.problems import ProblemCode
from headrace.queries.server import create_app
from headrace.queries.server.problem_answers import TITLES
from tests.meta.repository import ROOT
from tests.unit.queries.server.served_application import ServedApplication

LATER = "00000000.1"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/stores/count/keys/a", 404, "UNKNOWN_STORE"),
        ("/v1/stores/count", 404, "UNKNOWN_STORE"),
        ("/v1/stores/..%2Fcounts/keys/a", 404, "UNKNOWN_ROUTE"),
        ("/v1/stores/../../etc/passwd", 404, "UNKNOWN_ROUTE"),
        ("/v1/stores/%2e%2e/keys/a", 404, "UNKNOWN_STORE"),
        ("/v1/nothing", 404, "UNKNOWN_ROUTE"),
        ("/v1/stores/counts/", 404, "UNKNOWN_ROUTE"),
        ("/v1/stores/windows/keys/a", 409, "WRONG_STORE_KIND"),
        ("/v1/stores/counts/windows/a", 409, "WRONG_STORE_KIND"),
        ("/v1/stores/counts/versions/a", 409, "WRONG_STORE_KIND"),
        ("/v1/stores/counts/sessions", 409, "WRONG_STORE_KIND"),
        ("/v1/stores/people/keys/seven", 422, "BAD_KEY"),
        ("/v1/stores/pairs/keys/x", 422, "BAD_KEY"),
        ("/v1/stores/counts/keys/%ff", 422, "BAD_REQUEST"),
        ("/v1/stores/people/entries?prefix=1", 422, "BAD_RANGE"),
        ("/v1/stores/counts/entries?prefix=a&from=b", 422, "BAD_RANGE"),
        ("/v1/stores/windows/windows?from=yesterday", 422, "BAD_RANGE"),
        ("/v1/stores/windows/windows?from=1900-01-01T00:00:00Z", 422, "BAD_RANGE"),
        ("/v1/stores/windows/windows?to=99999999999999999999", 422, "BAD_RANGE"),
        ("/v1/stores/counts/changes?key=a&prefix=b", 422, "BAD_RANGE"),
        ("/v1/stores/counts/changes?since=x", 422, "BAD_REQUEST"),
        ("/v1/stores/counts/entries?limit=10000000", 422, "LIMIT_TOO_LARGE"),
        ("/v1/stores/counts/entries?limit=0", 422, "BAD_REQUEST"),
        ("/v1/stores/counts/entries?limit=many", 422, "BAD_REQUEST"),
        ("/v1/stores/counts/entries?order=up", 422, "BAD_REQUEST"),
        ("/v1/stores/counts/entries?cursor=x", 422, "BAD_REQUEST"),
        ("/v1/stores/counts/entries?wait_ms=999999999", 422, "LIMIT_TOO_LARGE"),
        ("/v1/stores/counts/keys/a?snapshot=x", 422, "BAD_REQUEST"),
        (f"/v1/stores/counts/keys/a?snapshot={LATER}", 410, "SNAPSHOT_GONE"),
        (f"/v1/stores/counts/keys/a?min_snapshot={LATER}", 410, "SNAPSHOT_GONE"),
        ("/v1/stores/counts/keys/a?min_position=x", 422, "BAD_REQUEST"),
        ("/v1/stores/counts/keys/a?min_position=other:0:1", 422, "NOT_AN_INPUT"),
        ("/v1/stores/counts/keys/a?min_position=lines:0:999", 409, "NOT_UP_TO_BOUND"),
        ("/v1/metadata?key=a", 422, "BAD_REQUEST"),
        ("/v1/topology?format=gif", 422, "BAD_REQUEST"),
    ],
)
def test_a_request_without_an_answer(
    application: ServedApplication, path: str, status: int, code: str
) -> None:
    answer = application.get(path)

    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["status"] == status
    assert answer.json()["request_id"] == answer.headers["Headrace-Request-Id"]


@pytest.mark.parametrize(
    ("path", "content", "code"),
    [
        ("/v1/query", b"not json", "BAD_REQUEST"),
        ("/v1/query", b"\xff\xfe", "BAD_REQUEST"),
        ("/v1/query", b"[" * 100_000, "BAD_REQUEST"),
        ("/v1/query", b"{}", "BAD_REQUEST"),
        ("/v1/query", b'{"reads": []}', "BAD_REQUEST"),
        ("/v1/query", b'{"reads": [{"read": "key", "store": "counts"}]}', "BAD_REQUEST"),
        ("/v1/query", b'{"reads": [{"read": "x", "store": "counts"}]}', "BAD_REQUEST"),
        ("/v1/query", b'{"reads": [{"read": "key", "store": "counts", "key": 1}]}', "BAD_KEY"),
        ("/v1/query", b'{"reads": [{"read": "key", "store": "x", "key": 1}]}', "UNKNOWN_STORE"),
        (
            "/v1/query",
            b'{"reads": [' + b",".join([b'{"read": "entries", "store": "counts"}'] * 101) + b"]}",
            "LIMIT_TOO_LARGE",
        ),
        (
            "/v1/query",
            b'{"reads": [{"read": "entries", "store": "counts"}], "limit": 1}',
            "LIMIT_TOO_LARGE",
        ),
        ("/v1/stores/counts/get", b'{"key": {"a": 1}}', "BAD_KEY"),
        ("/v1/stores/counts/get", b"", "BAD_REQUEST"),
        ("/v1/dlq/replay", b"{}", "ADMIN_DISABLED"),
        ("/v1/sql", b'{"sql": "DELETE FROM counts"}', "BAD_REQUEST"),
        ("/v1/sql", b'{"sql": "ATTACH \'x\' AS y"}', "BAD_REQUEST"),
        ("/v1/sql", b'{"sql": "PRAGMA database_list"}', "BAD_REQUEST"),
        ("/v1/sql", b'{"sql": "SELECT * FROM nowhere"}', "UNKNOWN_STORE"),
    ],
)
def test_a_body_without_an_answer(
    application: ServedApplication, path: str, content: bytes, code: str
) -> None:
    headers = {"Content-Type": "application/json"}

    answer = application.use(lambda client: client.post(path, content=content, headers=headers))

    assert answer.json()["code"] == code, answer.text
    assert answer.status_code == ProblemCode[code].status


def test_a_wrong_method_is_refused_with_the_right_ones(application: ServedApplication) -> None:
    answer = application.use(lambda client: client.delete("/v1/stores"))

    assert (answer.status_code, answer.json()["code"]) == (405, "WRONG_METHOD")
    assert answer.headers["Allow"] == "GET"


def test_a_text_body_of_a_web_page_is_not_taken_for_json(application: ServedApplication) -> None:
    content: Any = b'{"reads": [{"read": "entries", "store": "counts"}]}'
    headers = {"Content-Type": "text/plain", "Origin": "http://evil.example"}

    answer = application.use(
        lambda client: client.post("/v1/query", content=content, headers=headers)
    )

    assert answer.status_code == 422


def test_an_error_in_a_route_is_logged_and_not_shown(
    application: ServedApplication, caplog: pytest.LogCaptureFixture
) -> None:
    app = create_app(application)

    @app.get("/mine")
    async def mine() -> None:
        raise ZeroDivisionError("a detail")

    answer = application.get("/mine", app=app, headers={"Headrace-Request-Id": "r1"})

    assert (answer.status_code, answer.json()["code"]) == (500, "INTERNAL")
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["request_id"] == "r1"
    assert "a detail" not in answer.text
    assert "Request r1 failed" in caplog.text
    assert caplog.text.count("ZeroDivisionError: a detail") == 1


def test_the_page_lists_every_code() -> None:
    page = (ROOT / "docs" / "rest.md").read_text()

    assert [
        code.name
        for code in ProblemCode
        if f"| {code.status} | `{code.name}` | {TITLES[code]} |" not in page
    ] == []


@pytest.mark.parametrize("content_type", [None, "text/plain"])
def test_a_body_that_a_web_page_may_send_anywhere_is_refused(
    application: ServedApplication, content_type: str | None
) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    answer = application.post("/v1/sql", content=b'{"sql": "SELECT 1"}', headers=headers)

    assert (answer.status_code, answer.json()["code"]) == (422, "BAD_REQUEST")
