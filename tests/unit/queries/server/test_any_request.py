"""Random requests by the description of the routes: none fails, each answer is documented."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.result import Ok

from tests.unit.queries.server.served_application import ServedApplication

STORES = ("counts", "windows", "sessions", "people", "blobs", "pairs", "prices", "countries")
KEYS = ("alice", "7", "-_8", "AT", "tea", "..", "a/b", "")

load_all_checks()
CHOSEN = [
    check
    for check in CHECKS.get_all()
    if getattr(check, "__name__", "")
    in {
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
    }
]


def leaving(app: Any) -> Any:
    """Return the app for readers who leave a watch, which has no end, after its first event."""

    async def call(scope: Any, receive: Any, send: Any) -> None:
        if not scope["path"].endswith("/changes"):
            await app(scope, receive, send)
            return
        begun, asked = asyncio.Event(), False

        async def send_some(message: Any) -> None:
            await send(message)
            if message.get("body"):
                begun.set()

        async def receive_and_leave() -> Any:
            nonlocal asked
            if not asked:
                asked = True
                return await receive()
            await begun.wait()
            return {"type": "http.disconnect"}

        await app(scope, receive_and_leave, send_some)

    return call


def call_all(application: ServedApplication, calls: int) -> int:
    """Call every route with random requests; return how many calls there were."""
    schema = schemathesis.openapi.from_asgi(
        "/openapi.json", leaving(application.app), headers={"Host": "localhost"}
    )
    operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    assert any(operation.path.endswith("/changes") for operation in operations)
    made = 0

    for operation in operations:
        modes = [operation.as_strategy(mode) for mode in schemathesis.GenerationMode]

        @settings(
            max_examples=-(-calls // len(operations)),
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=[*HealthCheck],
        )
        @given(st.one_of(*modes), st.sampled_from(STORES), st.sampled_from(KEYS), st.integers(0, 3))
        def call(case: Any, store: str, key: str, choice: int) -> None:
            nonlocal made
            made += 1
            # Most random names are no stores, and most random keys are none.
            if choice and "store" in case.path_parameters:
                case.path_parameters["store"] = store
            if choice > 1 and "key" in case.path_parameters:
                case.path_parameters["key"] = key
            answer = case.call(headers={"Host": "localhost"})
            case.validate_response(answer, checks=CHOSEN)

        call()
    return made


def test_there_are_checks() -> None:
    assert len(CHOSEN) == 4


@pytest.mark.tier("test")
def test_random_requests_have_documented_answers(application: ServedApplication) -> None:
    assert call_all(application, 300) >= 300


@pytest.mark.nightly("faults")
@pytest.mark.timeout(3_600)  # schemathesis takes most of it, and more on a busy machine
def test_many_random_requests_have_documented_answers(application: ServedApplication) -> None:
    # Some routes have fewer different requests than their share.
    assert call_all(application, 12_500) >= 10_000
