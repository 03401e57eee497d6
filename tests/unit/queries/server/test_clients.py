"""The clients of an application, against a real server with stores of every kind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace import StreamsConfig, ValueAndTimestamp, VersionedRecord, Window, Windowed
from headrace.brokers.log import TopicPartition
from headrace.queries import (
    AsyncQueryClient,
    ProblemCode,
    QueryClient,
    QueryProblemError,
    StoreChange,
    StoreReset,
)
from headrace.queries.server import QueryServer
from headrace.records import RecordMetadata
from headrace.serdes.partitioner import partition_for_key
from tests.unit.queries.server.conftest import MINUTE, fill
from tests.unit.queries.server.served_application import Pair, Person, ServedApplication


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[ServedApplication, QueryServer]]:
    """An application that the tests of this module only read, and its server."""
    with serving(tmp_path_factory.mktemp("clients")) as both:
        yield both


@pytest.fixture
def changing(tmp_path: Path) -> Iterator[tuple[ServedApplication, QueryServer]]:
    """An application that one test writes to, and its server."""
    with serving(tmp_path) as both:
        yield both


@contextmanager
def serving(folder: Path) -> Iterator[tuple[ServedApplication, QueryServer]]:
    application = ServedApplication(folder)
    fill(application)
    server = QueryServer(StreamsConfig(), "127.0.0.1", 0)
    server.bind()
    server.start(application.app)
    yield application, server
    server.close()
    application.close()


@pytest.fixture
def client(served: tuple[ServedApplication, QueryServer]) -> Iterator[QueryClient]:
    with QueryClient(served[1].url) as plain:
        yield plain


@pytest.fixture
def typed(served: tuple[ServedApplication, QueryServer]) -> Iterator[QueryClient]:
    with QueryClient(served[1].url, program=served[0]) as client:
        yield client


@pytest.fixture
def reader(changing: tuple[ServedApplication, QueryServer]) -> Iterator[QueryClient]:
    with QueryClient(changing[1].url) as plain:
        yield plain


@pytest.fixture
def watching(changing: tuple[ServedApplication, QueryServer]) -> Iterator[QueryClient]:
    with QueryClient(changing[1].url, program=changing[0]) as client:
        yield client


def test_key_value_stores(client: QueryClient, typed: QueryClient) -> None:
    for each in (client, typed):
        counts = each.store("counts")
        assert counts.get("alice") == 2
        assert counts.get("a/b c") == 1
        assert counts.get("nobody") is None
        assert [*counts.all()] == [("a/b c", 1), ("alice", 2), ("bob", 1), ("carol", 1)]
        assert [*counts.reverse_range("alice", "bob")] == [("bob", 1), ("alice", 2)]
        assert [*counts.prefix_scan("a")] == [("a/b c", 1), ("alice", 2)]
        assert [*each.store("countries").all()] == [("AT", "Austria")]
    assert client.store("people").get(7) == {"name": "Ann", "age": 30}
    assert typed.store("people").get(7) == Person("Ann", 30)
    assert [*typed.store("people").range(8)] == [(8, Person("Bob", 40))]


def test_keys_that_have_no_text(client: QueryClient, typed: QueryClient) -> None:
    assert client.store("pairs").get({"left": "l", "right": 1}) == "one"
    assert typed.store("pairs").get(Pair("l", 1)) == "one"
    assert [*typed.store("pairs").all()] == [(Pair("l", 1), "one")]
    assert typed.store("blobs").get(b"\xfb\xff") == b"\x00\x01"
    assert typed.store("counts").get("") is None


def test_window_stores(client: QueryClient, typed: QueryClient) -> None:
    first = Windowed("alice", Window(0, MINUTE))
    for each in (client, typed):
        windows = each.store("windows")
        assert windows.fetch("alice", 0) == 1
        assert windows.fetch("alice", 1) is None
        assert [*windows.fetch("alice", 0, 2 * MINUTE)] == [(0, 1), (MINUTE, 1)]
        assert [*windows.backward_fetch("alice", 0, 2 * MINUTE)] == [(MINUTE, 1), (0, 1)]
        assert (first, 1) in [*windows.all()]
        assert (first, 1) in [*windows.fetch_all(0, 1)]
        assert (first, 1) in [*windows.fetch_range("alice", "alice", 0, 1)]
        assert sorted(map(str, windows.backward_all())) == sorted(map(str, windows.all()))


def test_session_stores(client: QueryClient, typed: QueryClient) -> None:
    for each in (client, typed):
        sessions = each.store("sessions")
        [(session, count)] = sessions.fetch("carol")
        assert (session.key, count) == ("carol", 1)
        window = session.window
        assert sessions.fetch_session("carol", window.start, window.end) == 1
        assert sessions.fetch_session("carol", window.start, window.end + 1) is None
        assert [*sessions.find_sessions("carol", 0, window.start)] == [(session, 1)]
        assert (session, 1) in [*sessions.all()]


def test_ranges_of_keys_are_open_at_an_end_that_is_not_given(
    client: QueryClient, typed: QueryClient
) -> None:
    for each in (client, typed):
        windows, sessions = each.store("windows"), each.store("sessions")

        def keys(found: Any) -> list[str]:
            return sorted({windowed.key for windowed, _ in found})

        assert keys(windows.fetch_range(None, "alice", 0, 9 * MINUTE)) == ["a/b c", "alice"]
        assert keys(windows.fetch_range("bob", None, 0, 9 * MINUTE)) == ["bob", "carol"]
        assert keys(windows.backward_fetch_range("bob", None, 0, 1)) == ["bob"]
        assert keys(windows.fetch_range(None, None, 0, 1)) == ["a/b c", "alice", "bob"]
        assert keys(sessions.fetch_range(None, "alice")) == ["a/b c", "alice"]
        assert keys(sessions.fetch_range("bob", None)) == ["bob", "carol"]
        assert len([*sessions.backward_fetch_range(None, None)]) == 4


def test_values_come_with_their_timestamps(client: QueryClient, typed: QueryClient) -> None:
    for each in (client, typed):
        counts = each.store("counts", timestamped=True)
        assert counts.get("carol") == ValueAndTimestamp(1, MINUTE + 10)
        assert counts.get("nobody") is None
        assert [*counts.range("c")] == [("carol", ValueAndTimestamp(1, MINUTE + 10))]
        windows = each.store("windows", timestamped=True)
        assert windows.fetch("alice", 0) == ValueAndTimestamp(1, 1_000)
        assert [*windows.fetch("alice", 0, 1)] == [(0, ValueAndTimestamp(1, 1_000))]
        window = Windowed("alice", Window(0, MINUTE))
        assert (window, ValueAndTimestamp(1, 1_000)) in [*windows.all()]
        for name in ("sessions", "prices"):
            with pytest.raises(QueryProblemError) as caught:
                [*each.store(name, timestamped=True).all()]
            assert caught.value.code is ProblemCode.WRONG_STORE_KIND


def test_entries_are_counted(client: QueryClient, typed: QueryClient) -> None:
    for each in (client, typed):
        assert each.store("counts").approximate_num_entries() == 4
        with pytest.raises(QueryProblemError) as caught:
            each.store("windows").approximate_num_entries()
        assert caught.value.code is ProblemCode.WRONG_STORE_KIND


def test_versioned_stores(client: QueryClient, typed: QueryClient) -> None:
    for each in (client, typed):
        prices = each.store("prices")
        assert prices.get("tea") == VersionedRecord(12, 2_000)
        assert prices.get("tea", as_of=1_500) == VersionedRecord(10, 1_000, 2_000)
        assert prices.get("tea", as_of=500) is None
        assert [version.value for version in prices.versions("tea")] == [12, 10]


def test_a_read_that_the_kind_does_not_have_is_a_problem(client: QueryClient) -> None:
    with pytest.raises(QueryProblemError) as caught:
        client.store("counts").fetch("a", 0)
    assert caught.value.code is ProblemCode.WRONG_STORE_KIND
    with pytest.raises(QueryProblemError) as caught:
        client.store("nowhere").get("a")
    assert caught.value.code is ProblemCode.UNKNOWN_STORE


def test_sql_arrow_and_metadata(client: QueryClient, typed: QueryClient) -> None:
    text = "SELECT key, name FROM people WHERE age > :age ORDER BY key DESC"
    assert client.sql(text, params={"age": 20}) == (("key", "name"), [(8, "Bob"), (7, "Ann")])
    total = client.sql("SELECT sum(value), max(key) FROM counts WHERE key IN ('alice', 'bob')")
    assert total.rows == [(3, "bob")]

    table = typed.to_arrow("people")
    assert table.to_pylist()[0] == {
        "key": 7,
        "name": "Ann",
        "age": 30,
        "timestamp": table["timestamp"][0].as_py(),
    }
    assert client.to_arrow("windows").column_names[:2] == ["key", "value"]
    assert client.to_arrow("sessions").num_rows == 4

    assert {each["name"] for each in client.stores()} >= {"counts", "people"}
    [shard] = typed.metadata("people", 7)
    assert "people" in shard["stores"]


def test_sql_takes_and_gives_bytes(client: QueryClient) -> None:
    by_key = "SELECT key, value FROM blobs WHERE key = ?"
    named = "SELECT length(value), :none, :text FROM blobs WHERE key = :key"

    assert client.sql(by_key, [b"\xfb\xff"]).rows == [(b"\xfb\xff", b"\x00\x01")]
    assert client.sql(by_key, [b"\xfb"]).rows == []
    params: dict[str, bytes | str] = {"key": b"\xfb\xff", "none": b"", "text": "-_8"}
    assert client.sql(named, {**params}).rows == [(2, b"", "-_8")]


def test_several_reads_at_one_snapshot_and_own_writes(
    changing: tuple[ServedApplication, QueryServer], reader: QueryClient
) -> None:
    application, _ = changing
    with reader.snapshot() as before:
        assert before.store("counts").get("alice") == 2
        application.write("people", (_long(9), b'{"name":"Cid","age":50}'), at=7)
        application.run()
        assert before.store("people").get(9) is None
        assert before.sql("SELECT count(*) FROM people").rows == [(2,)]

    assert reader.snapshot(before.token).store("people").get(9) is None
    assert reader.store("people").get(9) == {"name": "Cid", "age": 50}
    record = _last_of(application, "people", 9)
    with reader.snapshot(after=record) as after:
        assert after.store("people").get(9) == {"name": "Cid", "age": 50}
    assert reader.last_token == after.token
    with pytest.raises(QueryProblemError) as caught:
        reader.snapshot(after=RecordMetadata("elsewhere", 0, 1)).store("people").get(9)
    assert caught.value.code is ProblemCode.NOT_AN_INPUT


def _long(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


def _last_of(application: ServedApplication, topic: str, key: int) -> RecordMetadata:
    name = TopicPartition(topic, partition_for_key(_long(key), 2))
    return RecordMetadata(*name, application.log.end_offsets([name])[name] - 1)


def test_a_watch_has_each_change_and_resumes(
    changing: tuple[ServedApplication, QueryServer], watching: QueryClient
) -> None:
    application, _ = changing
    watching.store("people").get(7)
    since = watching.last_token
    application.write("people", (_long(20), b'{"name":"Dan","age":1}'), at=8)
    application.run()

    changes = watching.watch("people", since=since)
    first = next(changes)
    assert isinstance(first, StoreChange)
    assert (first.key, first.value) == (20, Person("Dan", 1))
    application.write("people", (_long(20), None), at=9)
    application.run()
    second = next(changes)
    assert isinstance(second, StoreChange)
    assert (second.key, second.value) == (20, None)

    again = watching.watch("people", since=first.event_id)
    assert next(again) == second
    assert isinstance(next(watching.watch("people", since="00000000.1")), StoreReset)


def test_a_change_of_a_versioned_store_says_from_when_it_is_valid(
    changing: tuple[ServedApplication, QueryServer], watching: QueryClient
) -> None:
    application, _ = changing
    watching.store("prices").get("tea")
    since = watching.last_token
    application.write("prices", (b"coffee", _long(30)), at=9_000)
    application.run()

    change = next(watching.watch("prices", since=since))

    assert isinstance(change, StoreChange)
    assert (change.key, change.value, change.start, change.end) == ("coffee", 30, 9_000, None)


def test_the_asynchronous_client(served: tuple[ServedApplication, QueryServer]) -> None:
    application, server = served

    async def talk() -> Any:
        async with AsyncQueryClient(server.url, program=application) as client:
            counts = client.store("counts")
            assert await counts.get("alice") == 2
            assert [row async for row in counts.range("b")] == [("bob", 1), ("carol", 1)]
            assert (await client.sql("SELECT max(age) FROM people")).rows[0][0] >= 40
            assert (await client.to_arrow("counts")).num_rows == 4
            return await anext(client.watch("people", since="00000000.1"))

    assert isinstance(asyncio.run(talk()), StoreReset)


def test_a_topology_is_program_enough(served: tuple[ServedApplication, QueryServer]) -> None:
    with QueryClient(served[1].url, program=served[0].topology) as client:
        assert client.store("people").get(7) == Person("Ann", 30)


def test_a_certificate_authority_is_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        QueryClient("https://127.0.0.1:1", ca=tmp_path / "none.pem")
