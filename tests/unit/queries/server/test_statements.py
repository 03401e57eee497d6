"""The number of SQL statements that run, wait and are refused."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.server.routes import sql
from headrace.queries.server.routes.sql import SnapshotRows
from headrace.queries.server.statements import MOST_STATEMENTS, MOST_WAITING, Statements
from tests.unit.queries.server.served_application import ServedApplication


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Busy:
    """Statements of which all threads are busy."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.statements = Statements(5.0, self.clock)
        self._may_end = threading.Event()
        self.running: list[asyncio.Task[bool]] = []

    def start(self, count: int) -> None:
        """Start statements that run until `end`."""
        for _ in range(count):
            task = asyncio.ensure_future(self.statements.run(lambda _: self._may_end.wait(60)))
            self.running.append(task)

    async def end(self) -> None:
        """End them."""
        self._may_end.set()
        await asyncio.gather(*self.running, return_exceptions=True)


def test_a_statement_gets_the_time_when_it_must_end() -> None:
    clock = Clock()
    clock.now = 3.0

    assert asyncio.run(Statements(5.0, clock).run(lambda deadline: deadline)) == 8.0


def test_too_many_waiting_statements_are_refused() -> None:
    async def ask() -> tuple[QueryProblemError, int]:
        busy = Busy()
        busy.start(MOST_STATEMENTS + MOST_WAITING)
        await asyncio.sleep(0)
        with pytest.raises(QueryProblemError) as caught:
            await busy.statements.run(lambda _: 1)
        await busy.end()
        return caught.value, await busy.statements.run(lambda _: 2)

    problem, later = asyncio.run(ask())

    assert (problem.code, problem.retry_after_ms) == (ProblemCode.TOO_MANY_QUERIES, 1_000)
    assert later == 2


def test_the_time_in_which_a_statement_waits_counts() -> None:
    async def ask() -> QueryProblemError:
        busy = Busy()
        busy.start(MOST_STATEMENTS)
        waiting = asyncio.ensure_future(busy.statements.run(lambda _: 1))
        await asyncio.sleep(0)
        busy.clock.now = 5.0
        await busy.end()
        with pytest.raises(QueryProblemError) as caught:
            await waiting
        return caught.value

    assert asyncio.run(ask()).code is ProblemCode.TIMEOUT


def test_a_statement_whose_caller_has_gone_does_not_begin() -> None:
    begun: list[float] = []

    async def ask() -> None:
        busy = Busy()
        busy.start(MOST_STATEMENTS)
        waiting = asyncio.ensure_future(busy.statements.run(begun.append))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await busy.end()
        await busy.statements.run(lambda _: None)

    asyncio.run(ask())

    assert begun == []


def _silence_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep other instances from sending their rows."""

    async def never(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(SnapshotRows, "_shown", lambda _: None)
    monkeypatch.setattr(sql, "_next", never)


def test_rows_that_do_not_come_in_time_are_a_problem(
    application: ServedApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = application.app.state.headrace
    monkeypatch.setattr(served, "statements", Statements(0.05))

    _silence_instances(monkeypatch)
    answer = application.post("/v1/sql", {"sql": "SELECT count(*) FROM people"})

    assert (answer.status_code, answer.json()["code"]) == (504, "TIMEOUT")


def test_a_statement_waits_for_its_snapshot_outside_of_the_threads(
    application: ServedApplication,
) -> None:
    history, _, number = application.token().partition(".")
    params = {"min_snapshot": f"{history}.{int(number) + 1}", "wait_ms": 50}

    answer = application.post("/v1/sql", {"sql": "SELECT max(age) FROM people"}, params=params)

    assert (answer.status_code, answer.json()["code"]) == (409, "NOT_UP_TO_BOUND")
