"""The client asks the server over a socket: both speak the same protocol."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from headrace.queries.client import QueryClient, StoreChange
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.server import QueryServer
from headrace.records import RecordMetadata, VersionedRecord
from headrace.windows.window import Window, Windowed
from tests.unit.queries.server.conftest import MINUTE
from tests.unit.queries.server.served_application import Pair, Person, ServedApplication

pytestmark = pytest.mark.tier("test")


@pytest.fixture(scope="module")
def server(application: ServedApplication) -> Iterator[QueryServer]:
    started = QueryServer(application.config, "127.0.0.1", 0)
    started.bind()
    started.start(application.app, application.app.point_reads)
    yield started
    started.close()


@pytest.fixture
def client(application: ServedApplication, server: QueryServer) -> Iterator[QueryClient]:
    with QueryClient(server.url, program=application.instance.catalog) as made:
        yield made


def test_typed_reads_of_all_kinds_of_stores(client: QueryClient) -> None:
    assert client.store("people").get(7) == Person("Ann", 30)
    assert client.store("people").get(99) is None
    assert client.store("pairs").get(Pair("l", 1)) == "one"
    assert client.store("blobs").get(b"\xfb\xff") == b"\x00\x01"
    assert client.store("countries").get("AT") == "Austria"
    assert [*client.store("people").range(7, 8)] == [(7, Person("Ann", 30)), (8, Person("Bob", 40))]
    assert [key for key, _ in client.store("counts").prefix_scan("a")] == ["a/b c", "alice"]
    assert [*client.store("windows").fetch("alice", 0, 5 * MINUTE)] == [(0, 1), (MINUTE, 1)]
    session = Windowed("alice", Window(1_000, MINUTE + 5))
    assert [*client.store("sessions").fetch("alice")] == [(session, 2)]
    assert client.store("prices").get("tea") == VersionedRecord(12, 2_000)
    assert client.store("prices").get("tea", 1_500) == VersionedRecord(10, 1_000, 2_000)
    with pytest.raises(QueryProblemError) as caught:
        [*client.store("counts").fetch("alice", 0, 5)]
    assert caught.value.code is ProblemCode.WRONG_STORE_KIND


def test_several_reads_at_one_snapshot(client: QueryClient, application: ServedApplication) -> None:
    with client.snapshot(after=RecordMetadata("prices", 0, 0)) as view:
        assert view.store("prices").get("tea") == VersionedRecord(12, 2_000)
        rows = view.sql("SELECT name FROM people WHERE key = ?", [8]).rows
        table = view.to_arrow("people")
        assert str(view.token) == application.token()

    assert rows == [("Bob",)]
    assert table.column("age").to_pylist() == [30, 40]


def test_a_watch_resumes_behind_a_snapshot(
    client: QueryClient, application: ServedApplication
) -> None:
    history, _, number = application.token().partition(".")

    [change] = islice(client.watch("people", since=f"{history}.{int(number) - 1}"), 1)

    assert isinstance(change, StoreChange)
    assert (change.key, change.value) == (8, Person("Bob", 40))


def test_a_client_without_the_program_gets_json(server: QueryServer) -> None:
    with QueryClient(server.url) as plain:
        assert plain.store("people").get(7) == {"name": "Ann", "age": 30}
        assert {each["name"] for each in plain.stores()} >= {"people", "counts"}
        assert plain.metadata("counts", "alice")[0]["is_ready"]
