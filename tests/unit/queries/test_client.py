"""The clients of an application, against scripted instances."""

from __future__ import annotations

import asyncio
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from msgspec import Struct

from headrace import StreamsBuilder
from headrace.errors import StateStoreError
from headrace.queries.client import AsyncQueryClient, QueryClient, StoreChange, StoreReset
from headrace.queries.local.positions import Position
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.tokens import Token
from headrace.records import RecordMetadata, VersionedRecord
from headrace.windows.window import Window, Windowed

TOKEN = Token("3f9a1c07", 8)
STORES = {
    "counts": "key_value",
    "clicks": "timestamped_window",
    "visits": "session",
    "prices": "versioned_key_value",
    "rings": "ring_of_a_later_version",
}

Answer = Callable[[httpx.Request], httpx.Response]


class Instance:
    """Answers by a script, and remembers the requests."""

    def __init__(self, *answers: Answer | httpx.Response | Exception) -> None:
        self.answers = [*answers]
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/stores":
            items = [{"name": name, "kind": kind} for name, kind in STORES.items()]
            return httpx.Response(200, json={"data": items, "next": None})
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer

    @property
    def last(self) -> httpx.Request:
        return self.requests[-1]


def _client(instance: Instance, server: Any = "one:1", **options: Any) -> QueryClient:
    http = httpx.Client(transport=httpx.MockTransport(instance))
    return QueryClient(server, http=http, **options)


def _value(value: Any, snapshot: int = 8, **headers: Any) -> httpx.Response:
    named = {"Headrace-Snapshot": f"3f9a1c07.{snapshot}", **headers}
    return httpx.Response(200, content=json.dumps(value), headers=named)


def _rows(*rows: Any, next_: str | None = None, snapshot: int = 8) -> httpx.Response:
    token = f"3f9a1c07.{snapshot}"
    document = {"data": rows, "next": next_, "snapshot": token}
    return httpx.Response(200, json=document, headers={"Headrace-Snapshot": token})


def _problem(code: ProblemCode, retry_after_ms: int | None = None) -> httpx.Response:
    document = {"code": code.name, "detail": "Because.", "retry_after_ms": retry_after_ms}
    return httpx.Response(code.status, json=document)


def _params(request: httpx.Request) -> dict[str, str]:
    return dict(request.url.params)


def test_a_point_read_gives_the_value_or_none() -> None:
    instance = Instance(_value({"n": 1}), _problem(ProblemCode.KEY_NOT_FOUND))
    store = _client(instance).store("counts")

    assert store.get("a/ö?") == {"n": 1}
    assert instance.last.url.raw_path.startswith(b"/v1/stores/counts/keys/a%2F%C3%B6%3F")
    assert store.get("b") is None


@pytest.mark.parametrize("key", ["", ".", "..", ["a", 1], {"x": 1}, None])
def test_a_key_without_a_path_is_sent_in_the_body(key: Any) -> None:
    instance = Instance(_value(1))

    assert _client(instance).store("counts").get(key) == 1
    assert instance.last.url.path == "/v1/stores/counts/get"
    assert json.loads(instance.last.content) == {"key": key}


def test_keys_in_urls_are_text() -> None:
    instance = Instance(*[_value(1) for _ in range(3)])
    store = _client(instance).store("counts")

    for key, text in ((5, "5"), (True, "true"), (1.5, "1.5")):
        store.get(key)
        assert instance.last.url.path == f"/v1/stores/counts/keys/{text}"
    with pytest.raises(QueryProblemError, match="Give the client the program") as caught:
        store.range(("a", 1))
    assert caught.value.code is ProblemCode.BAD_KEY


def test_rows_come_page_by_page_while_they_are_read() -> None:
    instance = Instance(
        _rows({"key": "a", "value": 1}, next_="more"), _rows({"key": "b", "value": 2})
    )
    rows = _client(instance).store("counts").range("a", "z")

    assert instance.requests == []
    assert next(rows) == ("a", 1)
    assert _params(instance.last) == {"order": "asc", "from": "a", "to": "z", "limit": "100"}
    assert [*rows] == [("b", 2)]
    params = _params(instance.last)
    assert params["cursor"] == "more"
    assert "min_snapshot" not in params


@pytest.mark.parametrize(
    ("read", "path", "params"),
    [
        (lambda s: s.reverse_range(), "entries", {"order": "desc"}),
        (lambda s: s.prefix_scan("a"), "entries", {"order": "asc", "prefix": "a"}),
        (lambda s: s.all(), "entries", {"order": "asc"}),
        (lambda s: s.reverse_all(), "entries", {"order": "desc"}),
    ],
)
def test_reads_of_key_value_stores(read: Any, path: str, params: dict[str, str]) -> None:
    instance = Instance(_rows({"key": "a", "value": 1}))

    assert [*read(_client(instance).store("counts"))] == [("a", 1)]
    assert instance.last.url.path == f"/v1/stores/counts/{path}"
    assert _params(instance.last) == {**params, "limit": "100"}


WINDOW = {"key": "k", "value": 3, "start": 10, "end": 20}
WINDOWED = (Windowed("k", Window(10, 20)), 3)
LAST = str(2**63 - 1)


@pytest.mark.parametrize(
    ("read", "path", "params", "item"),
    [
        (lambda s: s.fetch("k", 5, 15), "windows/k", {"from": "5", "to": "15"}, (10, 3)),
        (lambda s: s.backward_fetch("k", 5, 15), "windows/k", {"order": "desc"}, (10, 3)),
        (lambda s: s.fetch("", 5, 15), "windows", {"from_key": "", "to_key": ""}, (10, 3)),
        (lambda s: s.fetch_all(5, 15), "windows", {"from": "5", "to": "15"}, WINDOWED),
        (lambda s: s.backward_fetch_all(5, 15), "windows", {"order": "desc"}, WINDOWED),
        (
            lambda s: s.fetch_range("a", "z", 5, 15),
            "windows",
            {"from_key": "a", "to_key": "z", "from": "5", "to": "15"},
            WINDOWED,
        ),
        (
            lambda s: s.backward_fetch_range("a", "z"),
            "windows",
            {"from_key": "a", "to_key": "z", "from": "0", "to": LAST, "order": "desc"},
            WINDOWED,
        ),
        (lambda s: s.all(), "windows", {"order": "asc"}, WINDOWED),
        (lambda s: s.backward_all(), "windows", {"order": "desc"}, WINDOWED),
    ],
)
def test_reads_of_window_stores(read: Any, path: str, params: dict[str, str], item: Any) -> None:
    instance = Instance(_rows(WINDOW))

    assert [*read(_client(instance).store("clicks"))] == [item]
    assert instance.last.url.path == f"/v1/stores/clicks/{path}"
    assert params.items() <= _params(instance.last).items()


@pytest.mark.parametrize(
    ("read", "path", "params"),
    [
        (lambda s: s.fetch("k"), "sessions/k", {"order": "asc"}),
        (lambda s: s.backward_fetch("k"), "sessions/k", {"order": "desc"}),
        (lambda s: s.fetch_range("a", "z"), "sessions", {"from_key": "a", "to_key": "z"}),
        (
            lambda s: s.find_sessions("k", 5, 15),
            "sessions/k",
            {"order": "asc", "earliest_end": "5", "latest_start": "15"},
        ),
        (
            lambda s: s.backward_find_sessions("k", 5, 15),
            "sessions/k",
            {"order": "desc", "earliest_end": "5", "latest_start": "15"},
        ),
        (lambda s: s.all(), "sessions", {"order": "asc"}),
    ],
)
def test_reads_of_session_stores(read: Any, path: str, params: dict[str, str]) -> None:
    instance = Instance(_rows(WINDOW))

    assert [*read(_client(instance).store("visits"))] == [WINDOWED]
    assert instance.last.url.path == f"/v1/stores/visits/{path}"
    assert params.items() <= _params(instance.last).items()


def test_one_window_and_one_session_are_values() -> None:
    other = {**WINDOW, "start": 5, "value": 9}
    instance = Instance(_rows(WINDOW), _rows(), _rows(other, WINDOW), _rows(other))
    client = _client(instance)

    assert client.store("clicks").fetch("k", 10) == 3
    assert client.store("clicks").fetch("k", 11) is None
    assert client.store("visits").fetch_session("k", 10, 20) == 3
    assert client.store("visits").fetch_session("k", 10, 20) is None


def test_versions_are_versioned_records() -> None:
    row = {"key": "k", "value": 3, "valid_from": 10, "valid_to": 20}
    latest = _value(4, 8, **{"Headrace-Timestamp": "20"})
    instance = Instance(latest, _rows(row), _rows(), _rows(row))
    store = _client(instance).store("prices")

    assert store.get("k") == VersionedRecord(4, 20)
    assert store.get("k", as_of=15) == VersionedRecord(3, 10, 20)
    assert instance.last.url.path == "/v1/stores/prices/versions/k"
    assert _params(instance.last)["as_of"] == "15"
    assert store.get("k", as_of=5) is None
    assert [*store.versions("k", 1, 30)] == [VersionedRecord(3, 10, 20)]


class Revenue(Struct):
    amount: int


def _program() -> Any:
    builder = StreamsBuilder()
    builder.table("sales", key=int, value=Revenue, materialized="revenue")
    return builder.build()


def test_with_the_program_keys_and_values_are_typed() -> None:
    key, value = (5).to_bytes(8, "big"), b'{"amount":7}'
    row = {"key": urlsafe_b64encode(key).decode(), "value": urlsafe_b64encode(value).decode()}
    instance = Instance(httpx.Response(200, content=value), _rows(row), _rows(row))
    store = _client(instance, program=_program()).store("revenue")

    assert store.get(5) == Revenue(7)
    text = instance.last.url.path.removeprefix("/v1/stores/revenue/keys/")
    assert urlsafe_b64decode(text + "=") == key
    assert _params(instance.last) == {"encoding": "bytes"}
    assert [*store.all()] == [(5, Revenue(7))]
    assert [*store.range(5)] == [(5, Revenue(7))]
    assert _params(instance.last)["from"] == text

    with pytest.raises(QueryProblemError, match="no queryable store 'other'"):
        _client(instance, program=_program()).store("other").get(1)


def test_no_answer_is_older_than_the_one_before() -> None:
    instance = Instance(_value(1, 8), _value(1, 9), _value(1, 9))
    client = _client(instance, timeout="7s")

    client.store("counts").get("a")
    assert _params(instance.last) == {}
    client.store("counts").get("a")
    assert _params(instance.last)["min_snapshot"] == "3f9a1c07.8"
    assert 6_000 < int(_params(instance.last)["wait_ms"]) <= 7_000
    assert client.last_token == Token("3f9a1c07", 9)


def test_a_client_survives_the_reset_of_an_application() -> None:
    after_reset = _value(2)
    after_reset.headers["Headrace-Snapshot"] = "00000000.1"
    instance = Instance(_value(1), _problem(ProblemCode.SNAPSHOT_GONE), after_reset)
    client = _client(instance)

    assert client.store("counts").get("a") == 1
    assert client.store("counts").get("a") == 2
    assert client.last_token == Token("00000000", 1)


def test_reads_of_one_snapshot_are_pinned_by_the_first() -> None:
    instance = Instance(_value(1, 8), _value(1, 8), _problem(ProblemCode.SNAPSHOT_GONE))

    with _client(instance).snapshot() as view:
        assert view.token is None
        view.store("counts").get("a")
        assert view.token == TOKEN
        view.store("counts").get("b")
        assert _params(instance.last) == {"snapshot": "3f9a1c07.8"}
        with pytest.raises(QueryProblemError, match="Because") as caught:
            view.store("counts").get("c")
    assert caught.value.code is ProblemCode.SNAPSHOT_GONE


@pytest.mark.parametrize("at", [TOKEN, "3f9a1c07.8"])
def test_a_snapshot_can_be_named(at: Any) -> None:
    instance = Instance(_value(1))

    _client(instance).snapshot(at).store("counts").get("a")

    assert _params(instance.last) == {"snapshot": "3f9a1c07.8"}


@pytest.mark.parametrize(
    ("after", "text"),
    [
        (RecordMetadata("t", 1, 5), "t:1:5"),
        ([RecordMetadata("t", 1, 5), RecordMetadata("t", 1, 4)], "t:1:5"),
        (Position({"t": {0: 3}, "s": {1: 2}}), "s:1:2,t:0:3"),
    ],
)
def test_own_writes_are_waited_for(after: Any, text: str) -> None:
    instance = Instance(_value(1), _value(1))

    view = _client(instance).snapshot(after=after)
    view.store("counts").get("a")
    assert _params(instance.last)["min_position"] == text
    assert int(_params(instance.last)["wait_ms"]) > 0
    view.store("counts").get("a")
    assert _params(instance.last) == {"snapshot": "3f9a1c07.8"}


def test_a_call_waits_for_instances_that_are_not_ready() -> None:
    instance = Instance(_problem(ProblemCode.STORE_NOT_READY, 10), _value(1))

    assert _client(instance).store("counts").get("a") == 1


def test_a_call_ends_after_its_timeout() -> None:
    instance = Instance(*[_problem(ProblemCode.STORE_NOT_READY, 60_000) for _ in range(2)])

    with pytest.raises(QueryProblemError) as caught:
        _client(instance).store("counts").get("a")
    assert caught.value.code is ProblemCode.STORE_NOT_READY
    assert len(instance.requests) == 1


def test_the_next_instance_is_asked_if_one_does_not_answer() -> None:
    instance = Instance(httpx.ConnectError("refused"), _value(1), _value(2))
    client = _client(instance, ["one:1", "https://two:2/"])

    assert client.store("counts").get("a") == 1
    assert [request.url.host for request in instance.requests] == ["one", "two"]
    assert client.store("counts").get("a") == 2
    assert str(instance.last.url).startswith("https://two:2/v1/")


def test_an_instance_that_accepts_a_request_and_stands_still_leaves_time_for_the_others() -> None:
    waits: list[float] = []

    def hang(request: httpx.Request) -> httpx.Response:
        waits.append(request.extensions["timeout"]["read"])
        raise httpx.ReadTimeout("nothing came", request=request)

    instance = Instance(_value(1), hang, _value(2))
    client = _client(instance, ["one:1", "two:2", "three:3"], timeout="30s")
    assert client.store("counts").get("a") == 1

    assert client.store("counts").get("a") == 2
    assert [request.url.host for request in instance.requests] == ["one", "one", "two"]
    assert waits[0] < 30
    assert int(_params(instance.requests[1])["wait_ms"]) < 1_000 * waits[0]


def test_an_address_without_an_instance_is_a_problem() -> None:
    instance = Instance(httpx.ConnectError("refused"))

    with pytest.raises(QueryProblemError, match="No instance answers at http://one:1: refused"):
        _client(instance, timeout="50ms").store("counts").get("a")
    with pytest.raises(ValueError, match="address of an instance"):
        QueryClient([])


def test_an_answer_of_something_else_is_a_problem() -> None:
    instance = Instance(httpx.Response(502, content=b"<html>"))

    with pytest.raises(QueryProblemError, match="status 502 and is not one of Headrace's"):
        _client(instance).store("counts").get("a")


def test_an_unknown_store_is_named() -> None:
    with pytest.raises(QueryProblemError, match="no queryable store 'nope'") as caught:
        [*_client(Instance()).store("nope").all()]
    assert caught.value.code is ProblemCode.UNKNOWN_STORE


def test_the_token_of_the_door_is_sent() -> None:
    instance = Instance(_value(1))

    _client(instance, token="secret-of-the-door").store("counts").get("a")

    assert instance.last.headers["Authorization"] == "Bearer secret-of-the-door"


def test_sql_gives_columns_and_rows() -> None:
    document = {"columns": ["key", "n"], "data": [["a", 1]], "next": None, "snapshot": str(TOKEN)}
    instance = Instance(httpx.Response(200, json=document))

    found = _client(instance).sql("SELECT key, n FROM counts WHERE key = ?", ["a"])

    assert found == (("key", "n"), [("a", 1)])
    assert json.loads(instance.last.content)["params"] == ["a"]


def test_metadata_names_shards_and_instances() -> None:
    instance = Instance(_rows({"shard": "0/1"}), _rows(), _rows())
    client = _client(instance)

    assert client.metadata("counts", "a") == [{"shard": "0/1"}]
    assert _params(instance.last) == {"store": "counts", "key": "a"}
    client.metadata("counts")
    client.metadata()
    assert _params(instance.last) == {}
    assert [each["name"] for each in client.stores()] == [*STORES]


def _event(name: str, event_id: str, **data: Any) -> bytes:
    return f"event: {name}\nid: {event_id}\ndata: {json.dumps(data)}\n\n".encode()


class Broken(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A stream that breaks behind some parts."""

    def __init__(self, *parts: bytes) -> None:
        self.parts = parts

    def __iter__(self) -> Iterator[bytes]:
        yield from self.parts
        raise httpx.ReadError("cut")

    async def __aiter__(self) -> Any:
        for part in self:
            yield part


CHANGES = [
    Broken(
        _event("heartbeat", "3f9a1c07.7", snapshot="3f9a1c07.7"),
        b": ping\n\n",
        _event("change", "3f9a1c07.8:0:YQ", key="a", value=1, snapshot="3f9a1c07.8")[:30],
        _event("change", "3f9a1c07.8:0:YQ", key="a", value=1, snapshot="3f9a1c07.8")[30:],
        _event("change", "3f9a1c07.8:0:Yg", key="half", value=0)[:-1],
    ),
    Broken(
        _event("reset", "3f9a1c07.9", snapshot="3f9a1c07.9"),
        _event(
            "change",
            "3f9a1c07.9:0:Yg",
            key="b\u2028",
            value=None,
            snapshot="3f9a1c07.9",
            start=1,
            end=2,
        ),
    ),
]
EXPECTED = [
    StoreChange("a", 1, TOKEN, None, None, None, "3f9a1c07.8:0:YQ"),
    StoreReset(Token("3f9a1c07", 9), "3f9a1c07.9"),
    StoreChange("b\u2028", None, Token("3f9a1c07", 9), None, 1, 2, "3f9a1c07.9:0:Yg"),
]


def _watched() -> Instance:
    return Instance(
        httpx.Response(200, stream=CHANGES[0]),
        httpx.ConnectError("gone"),
        _problem(ProblemCode.STORE_NOT_READY, 1),
        httpx.Response(200, stream=CHANGES[1]),
        _problem(ProblemCode.UNKNOWN_STORE),
    )


def _check_watch(instance: Instance) -> None:
    ids = [request.headers.get("Last-Event-ID") for request in instance.requests]
    assert ids == ["3f9a1c07.6"] + ["3f9a1c07.8:0:YQ"] * 3 + ["3f9a1c07.9:0:Yg"]
    assert _params(instance.last) == {"prefix": "p"}


def test_a_watch_resumes_behind_the_last_change() -> None:
    instance = _watched()
    changes = _client(instance).watch("counts", prefix="p", since=Token("3f9a1c07", 6))

    assert [next(changes) for _ in EXPECTED] == EXPECTED
    with pytest.raises(QueryProblemError) as caught:
        next(changes)
    assert caught.value.code is ProblemCode.UNKNOWN_STORE
    _check_watch(instance)


def test_a_watch_of_unknown_events_is_a_problem() -> None:
    stream = Broken(_event("other", "3f9a1c07.8", snapshot="3f9a1c07.8"))
    instance = Instance(httpx.Response(200, stream=stream))

    with pytest.raises(QueryProblemError, match="unknown kind, 'other'"):
        next(_client(instance).watch("counts", key="a"))
    assert _params(instance.last) == {"key": "a"}


def test_a_kind_of_store_of_a_later_version_is_named() -> None:
    store = _client(Instance()).store("rings")

    with pytest.raises(StateStoreError, match="has no 'ring_of_a_later_version' stores"):
        [*store.all()]


def test_a_watch_continues_on_the_next_instance_if_one_stands_still() -> None:
    instance = Instance(
        httpx.Response(200, stream=CHANGES[0]),
        httpx.ReadTimeout("nothing came"),
        httpx.Response(200, stream=CHANGES[1]),
    )
    # The instance that stands still takes longer than the timeout.
    client = _client(instance, ["one:1", "two:2", "three:3"], timeout="1ms")

    changes = client.watch("counts", prefix="p", since=Token("3f9a1c07", 6))

    assert [next(changes) for _ in EXPECTED] == EXPECTED
    assert [request.url.host for request in instance.requests] == ["one", "two", "three"]


def test_a_watch_ends_if_no_instance_answers() -> None:
    instance = Instance(httpx.ConnectError("gone"))

    with pytest.raises(QueryProblemError, match="No instance answers"):
        next(_client(instance, timeout="20ms").watch("counts"))


def test_the_asynchronous_client_has_the_same_methods() -> None:
    ours = {name for name in dir(QueryClient) if not name.startswith("_")}
    assert {name for name in dir(AsyncQueryClient) if not name.startswith("_")} == ours


def test_the_asynchronous_client_gives_the_same_answers() -> None:
    document = {"columns": ["n"], "data": [[1]], "next": None}
    instance = Instance(
        _problem(ProblemCode.STORE_NOT_READY, 1),
        _value(1),
        httpx.ConnectError("refused"),
        _rows({"key": "a", "value": 1}, next_="more"),
        _rows({"key": "b", "value": 2}),
        httpx.Response(200, json=document),
        _rows({"shard": "0/1"}),
    )

    async def talk() -> None:
        http = httpx.AsyncClient(transport=httpx.MockTransport(instance))
        async with AsyncQueryClient("one:1", http=http) as client:
            assert await client.store("counts").get("a") == 1
            rows = client.store("counts").all()
            assert [row async for row in rows] == [("a", 1), ("b", 2)]
            assert client.last_token == TOKEN
            async with client.snapshot("3f9a1c07.8") as view:
                assert await view.sql("SELECT 1 AS n") == (("n",), [(1,)])
                assert view.token == TOKEN
            assert await client.metadata() == [{"shard": "0/1"}]
            assert len(await client.stores()) == len(STORES)

    asyncio.run(talk())


def test_an_asynchronous_watch_resumes_behind_the_last_change() -> None:
    instance = _watched()

    async def follow() -> list[Any]:
        http = httpx.AsyncClient(transport=httpx.MockTransport(instance))
        client = AsyncQueryClient("one:1", http=http)
        changes = client.watch("counts", prefix="p", since="3f9a1c07.6")
        found = [await anext(changes) for _ in EXPECTED]
        with pytest.raises(QueryProblemError):
            await anext(changes)
        return found

    assert asyncio.run(follow()) == EXPECTED
    _check_watch(instance)


def test_clients_close_the_connections_that_they_opened() -> None:
    nothing = pytest.raises(QueryProblemError, match="No instance answers")
    with QueryClient("127.0.0.1:1", timeout="20ms") as client, nothing:
        client.stores()

    async def close() -> None:
        async with AsyncQueryClient("127.0.0.1:1", timeout="20ms") as client:
            with pytest.raises(QueryProblemError, match="No instance answers"):
                await client.stores()

    asyncio.run(close())
