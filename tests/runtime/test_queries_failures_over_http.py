"""Readers over HTTP see failures as `docs/queries-protocol.md` says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headrace.clients.reset import forget_application
from headrace.home import ApplicationHome
from headrace.queries.copy.reader import CopyReader
from headrace.queries.http_names import AGE_HEADER, SNAPSHOT_HEADER
from headrace.queries.service import QueryService
from tests.runtime.copied_application import CopiedApplication
from tests.waiting import PATIENCE, await_that

KEY = "/v1/stores/counts/keys/a"


@pytest.fixture
def application(tmp_path: Path) -> Iterator[CopiedApplication]:
    started = CopiedApplication(tmp_path)
    yield started
    started.close()


@pytest.fixture
def service(
    application: CopiedApplication, monkeypatch: pytest.MonkeyPatch
) -> Iterator[QueryService]:
    """An instance with files that shows the first batch of the application."""
    monkeypatch.setattr("headrace.queries.copy.applier.TOPIC_IDS_MS", 500)
    application.run("a")
    started = QueryService(application.topology, application.query.config, server="127.0.0.1:0")
    started.start()
    await_that(started.is_ready, "the service to be ready")
    yield started
    started.close()


def ask(service: QueryService, path: str = KEY, **params: str) -> httpx.Response:
    """Return an answer of the instance."""
    return httpx.get(f"{service.url}{path}", params=params, timeout=PATIENCE, trust_env=False)


def age_of(answer: httpx.Response) -> int:
    assert answer.status_code == 200, answer.text
    return int(answer.headers[AGE_HEADER])


def test_the_age_grows_while_the_application_is_down(service: QueryService) -> None:
    before = ask(service)

    await_that(lambda: age_of(ask(service)) > age_of(before) + 100, "an older answer")

    after = ask(service)
    assert after.json() == before.json() == 1
    assert after.headers[SNAPSHOT_HEADER] == before.headers[SNAPSHOT_HEADER]
    assert ask(service, "/health/ready").status_code == 200


def test_after_a_reset_old_tokens_are_gone(
    application: CopiedApplication,
    service: QueryService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = ask(service).headers[SNAPSHOT_HEADER]
    cursor = ask(service, "/v1/stores/counts/entries", limit="1").json()["next"]
    assert ask(service, snapshot=old).status_code == 200

    home = ApplicationHome.of(application.query.config, application.log.cluster_id())
    # An instance that is cut off is no member while the application is reset.
    monkeypatch.setattr("headrace.clients.reset._check_stopped", lambda *_: None)
    forget_application(application.log, home)
    again = CopiedApplication(tmp_path, history="22222222")
    again.run("a", "a", "a")
    await_that(lambda: ask(service).text == "4", "the count after the reset")

    gone = [
        ask(service, snapshot=old),
        ask(service, min_snapshot=old, wait_ms="100"),
        ask(service, "/v1/stores/counts/entries", cursor=cursor),
    ]
    codes = [answer.json()["code"] for answer in gone]
    assert codes == ["SNAPSHOT_GONE", "SNAPSHOT_GONE", "CURSOR_EXPIRED"]
    assert {answer.status_code for answer in gone} == {410}
    assert ask(service).headers[SNAPSHOT_HEADER].startswith("22222222.")
    again.close()


def test_an_instance_whose_applier_stands_still_answers_old_tokens_and_then_503(
    application: CopiedApplication, service: QueryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = ask(service)
    step, goes_on = CopyReader.step, threading.Event()

    def wait_and_step(reader: CopyReader, now: int, seconds: float = 0.0) -> None:
        assert goes_on.wait(PATIENCE)
        step(reader, now, seconds)

    monkeypatch.setattr(CopyReader, "step", wait_and_step)
    monkeypatch.setattr("headrace.queries.copy_thread._STALLED_SECONDS", 3.0)
    for _ in range(8):
        application.run("a")

    seen = ask(service)
    if seen.status_code == 200:  # a busy machine may take longer
        assert seen.headers[SNAPSHOT_HEADER] == old.headers[SNAPSHOT_HEADER]
        assert age_of(seen) >= age_of(old)
    await_that(lambda: ask(service).status_code == 503, "a refusal")
    refused = ask(service)
    assert refused.json()["code"] == "STORE_NOT_READY"
    assert ask(service, "/health/ready").status_code == 503
    assert ask(service, "/health/live").status_code == 200

    goes_on.set()
    await_that(lambda: ask(service).text == "9", "the newest count")
    assert ask(service, "/health/ready").status_code == 200
