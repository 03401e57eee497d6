"""Reads of one store over HTTP."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.unit.queries.server.conftest import MINUTE
from tests.unit.queries.server.served_application import ServedApplication


def rows(answer: Any) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


def test_a_point_read_answers_the_bare_value_and_headers_say_the_rest(
    application: ServedApplication,
) -> None:
    answer = application.get("/v1/stores/counts/keys/alice")

    assert (answer.status_code, answer.text) == (200, "2")
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Headrace-Snapshot"] == application.token()
    assert answer.headers["ETag"] == f'"{application.token()}"'
    assert int(answer.headers["Headrace-Age"]) >= 0
    assert answer.headers["Headrace-Timestamp"] == str(MINUTE + 5)
    position = msgspec.json.decode(answer.headers["Headrace-Position"])
    assert sum(position["lines"]) == 6
    assert answer.headers["Headrace-Request-Id"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("counts/keys/alice", 2),
        ("counts/keys/a%2Fb%20c", 1),
        ("counts/keys/a/b c", 1),
        ("people/keys/7", {"name": "Ann", "age": 30}),
        ("blobs/keys/-_8", "AAE="),
        ("countries/keys/AT", "Austria"),
        ("prices/keys/tea", 12),
        ("prices/keys/tea?as_of=1500", 10),
        ("prices/keys/tea?as_of=1970-01-01T00:00:01.500Z", 10),
    ],
)
@pytest.mark.parametrize("is_fast", [True, False])
def test_keys_of_every_type_are_read(
    application: ServedApplication, path: str, value: Any, is_fast: bool
) -> None:
    # A parameter leads around the fast path.
    more = "" if is_fast else ("&" if "?" in path else "?") + "wait_ms=00000"

    answer = application.get(f"/v1/stores/{path}{more}")

    assert answer.status_code == 200, answer.text
    assert answer.json() == value
    assert answer.headers["Headrace-Snapshot"] == application.token()


def test_both_paths_of_a_point_read_answer_the_same_headers(
    application: ServedApplication,
) -> None:
    fast = application.get("/v1/stores/people/keys/7")
    other = application.get("/v1/stores/people/keys/7?wait_ms=00000")

    changing = {"headrace-age", "headrace-request-id"}
    assert {*fast.headers} == {*other.headers}
    assert {each: fast.headers[each] for each in fast.headers if each not in changing} == {
        each: other.headers[each] for each in other.headers if each not in changing
    }


def test_typed_keys_go_by_post(application: ServedApplication) -> None:
    answer = application.post("/v1/stores/pairs/get", {"key": {"right": 1, "left": "l"}})
    versioned = application.post("/v1/stores/prices/get", {"key": "tea", "as_of": 1_000})

    assert (answer.status_code, answer.json()) == (200, "one")
    assert versioned.json() == 10


@pytest.mark.parametrize("is_fast", [True, False])
def test_a_client_that_has_the_answer_gets_304(
    application: ServedApplication, is_fast: bool
) -> None:
    path = "/v1/stores/counts/keys/alice" + ("" if is_fast else "?wait_ms=00000")
    tag = application.get(path).headers["ETag"]

    same = application.get(path, headers={"If-None-Match": f'"other", {tag}'})
    other = application.get(path, headers={"If-None-Match": '"other"'})

    assert (same.status_code, same.content) == (304, b"")
    assert same.headers["ETag"] == tag
    assert other.status_code == 200


def test_the_answer_to_a_post_is_never_304(application: ServedApplication) -> None:
    def read(key: str, **headers: str) -> Any:
        body = {"reads": [{"store": "counts", "read": "key", "key": key}]}
        return application.post("/v1/query", body, headers=headers)

    alice = read("alice")
    bob = read("bob", **{"If-None-Match": alice.headers["ETag"]})
    path = "/v1/stores/counts/get"
    one = application.post(path, {"key": "alice"})
    match = {"If-None-Match": one.headers["ETag"]}
    other = application.post(path, {"key": "bob"}, headers=match)

    assert (bob.status_code, bob.json()["data"][0][0]["key"]) == (200, "bob")
    assert (other.status_code, other.json()) == (200, 1)


@pytest.mark.parametrize(
    "path",
    [
        *("stores", "stores/counts", "metadata", "lag", "errors", "dlq"),
        *("topology", "topology?format=text", "stores/counts/entries", "stores/counts/keys/bob"),
    ],
)
def test_every_answer_names_its_snapshot_and_is_304_while_it_is_the_same(
    application: ServedApplication, path: str
) -> None:
    answer = application.get(f"/v1/{path}")
    match = {"If-None-Match": answer.headers["ETag"]}
    same = application.get(f"/v1/{path}", headers=match)

    assert answer.status_code == 200
    assert answer.headers["Headrace-Snapshot"] == application.token()
    assert msgspec.json.decode(answer.headers["Headrace-Position"])["lines"]
    assert int(answer.headers["Headrace-Age"]) >= 0
    assert (same.status_code, same.content) == (304, b"")


def test_sql_names_its_snapshot(application: ServedApplication) -> None:
    answer = application.post("/v1/sql", {"sql": "SELECT count(*) FROM counts"})

    names = ("Headrace-Snapshot", "Headrace-Position", "Headrace-Age", "ETag")
    assert [name for name in names if name not in answer.headers] == []


def test_a_store_whose_lag_has_changed_is_not_304(
    application: ServedApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = application.get("/v1/stores/counts")
    lags = {
        name: (shown, newest + 5) for name, (shown, newest) in application.instance.lags().items()
    }
    monkeypatch.setattr(application.instance, "lags", lambda: lags)

    match = {"If-None-Match": before.headers["ETag"]}
    after = application.get("/v1/stores/counts", headers=match)

    assert after.status_code == 200
    assert after.json()["data"][0]["lag"] == before.json()["data"][0]["lag"] + 10


@pytest.mark.parametrize("is_fast", [True, False])
def test_a_missing_key_is_a_problem_that_names_the_snapshot(
    application: ServedApplication, is_fast: bool
) -> None:
    answer = application.get(
        "/v1/stores/counts/keys/nobody" + ("" if is_fast else "?wait_ms=00000")
    )

    assert (answer.status_code, answer.json()["code"]) == (404, "KEY_NOT_FOUND")
    assert answer.headers["Headrace-Snapshot"] == application.token()
    assert "ETag" not in answer.headers


def test_entries_come_in_pages_of_one_snapshot(application: ServedApplication) -> None:
    first = application.get("/v1/stores/counts/entries", {"limit": 3})
    cursor = first.json()["next"]
    second = application.get("/v1/stores/counts/entries", {"limit": 3, "cursor": cursor})

    found = rows(first) + rows(second)
    assert [(row["key"], row["value"]) for row in found] == [
        ("a/b c", 1),
        ("alice", 2),
        ("bob", 1),
        ("carol", 1),
    ]
    assert found[1]["timestamp"] == MINUTE + 5
    assert second.json()["next"] is None
    assert first.json()["snapshot"] == second.json()["snapshot"] == application.token()


@pytest.mark.parametrize(
    ("params", "keys"),
    [
        ({"from": "alice", "to": "bob"}, ["alice", "bob"]),
        ({"from": "b"}, ["bob", "carol"]),
        ({"to": "alice"}, ["a/b c", "alice"]),
        ({"prefix": "a"}, ["a/b c", "alice"]),
        ({"order": "desc", "limit": 2}, ["carol", "bob"]),
        ({"prefix": "zz"}, []),
    ],
)
def test_entries_of_a_range(
    application: ServedApplication, params: dict[str, Any], keys: list[str]
) -> None:
    answer = application.get("/v1/stores/counts/entries", params)

    assert [row["key"] for row in rows(answer)] == keys


def test_windows_sessions_and_versions(application: ServedApplication) -> None:
    windows = rows(application.get("/v1/stores/windows/windows/alice"))
    late = rows(application.get("/v1/stores/windows/windows/alice", {"from": 1}))
    everybody = rows(application.get("/v1/stores/windows/windows", {"to": "1970-01-01T00:00:00Z"}))
    some = rows(
        application.get("/v1/stores/windows/windows", {"from_key": "bob", "to_key": "carol"})
    )
    sessions = rows(application.get("/v1/stores/sessions/sessions/alice"))
    all_sessions = rows(application.get("/v1/stores/sessions/sessions"))
    versions = rows(application.get("/v1/stores/prices/versions/tea"))
    oldest = rows(application.get("/v1/stores/prices/versions/tea", {"order": "asc", "limit": 1}))
    as_of = rows(application.get("/v1/stores/prices/versions/tea", {"as_of": 1_999}))

    assert [(row["start"], row["end"], row["value"]) for row in windows] == [
        (0, MINUTE, 1),
        (MINUTE, 2 * MINUTE, 1),
    ]
    assert late == windows[1:]
    assert sorted(row["key"] for row in everybody) == ["a/b c", "alice", "bob"]
    assert sorted(row["key"] for row in some) == ["bob", "carol"]
    assert [(row["start"], row["end"], row["value"]) for row in sessions] == [
        (1_000, MINUTE + 5, 2)
    ]
    assert {row["key"] for row in all_sessions} == {"alice", "bob", "carol", "a/b c"}
    assert [(row["value"], row["valid_from"], row["valid_to"]) for row in versions] == [
        (12, 2_000, None),
        (10, 1_000, 2_000),
    ]
    assert oldest == versions[1:]
    assert [row["value"] for row in as_of] == [10]


def test_all_rows_come_as_lines_or_as_arrow(application: ServedApplication) -> None:
    ndjson = {"Accept": "application/x-ndjson"}
    arrow = {"Accept": "text/html;q=0.1, application/vnd.apache.arrow.stream"}
    lines = application.get("/v1/stores/people/entries", headers=ndjson)
    one = application.get("/v1/stores/people/entries?limit=1", headers=ndjson)
    table = application.get("/v1/stores/people/entries", headers=arrow)
    unchanged = application.get(
        "/v1/stores/people/entries", headers={**ndjson, "If-None-Match": lines.headers["ETag"]}
    )

    assert [msgspec.json.decode(line) for line in lines.text.splitlines()] == [
        {"key": 7, "value": {"name": "Ann", "age": 30}, "timestamp": 5},
        {"key": 8, "value": {"name": "Bob", "age": 40}, "timestamp": 6},
    ]
    assert lines.headers["Headrace-Snapshot"] == application.token()
    assert len(one.text.splitlines()) == 1
    with pa.ipc.open_stream(io.BytesIO(table.content)) as reader:
        assert reader.read_all().select(["key", "name", "age"]).to_pylist() == [
            {"key": 7, "name": "Ann", "age": 30},
            {"key": 8, "name": "Bob", "age": 40},
        ]
    tags = {each.headers["ETag"] for each in (lines, table)}
    assert len({*tags, application.get("/v1/stores/people/entries").headers["ETag"]}) == 3
    assert unchanged.status_code == 304


def test_serialised_bytes_travel_for_clients_with_serdes(application: ServedApplication) -> None:
    value = application.get("/v1/stores/blobs/keys/-_8?encoding=bytes")
    listed = rows(application.get("/v1/stores/people/entries?encoding=bytes"))
    first = listed[0]["key"]
    again = rows(application.get("/v1/stores/people/entries", {"from": first, "encoding": "bytes"}))
    posted = application.post("/v1/stores/people/get?encoding=bytes", {"key": first})
    bad = application.get("/v1/stores/people/keys/a?encoding=bytes")

    assert (value.headers["Content-Type"], value.content) == (
        "application/octet-stream",
        b"\x00\x01",
    )
    assert first == "AAAAAAAAAAc="
    assert again == listed
    assert posted.content == b'{"name":"Ann","age":30}'
    assert (bad.status_code, bad.json()["code"]) == (422, "BAD_KEY")


def test_stores_are_listed_and_described(application: ServedApplication) -> None:
    listed = rows(application.get("/v1/stores"))
    [people] = rows(application.get("/v1/stores/people"))
    [windows] = rows(application.get("/v1/stores/windows"))

    assert {store["name"] for store in listed} == {
        *("counts", "windows", "sessions", "people", "blobs", "pairs", "prices", "countries")
    }
    assert people["kind"] == "timestamped_key_value"
    assert (people["key"], people["value"]) == ("LongSerde", "JsonSerde(Person)")
    assert (people["entries"], people["entries_are_complete"]) == (2, True)
    assert (people["partitions"], people["lag"], people["is_global"]) == (2, 0, False)
    assert windows["entries"] == 5


def test_the_list_of_stores_has_what_each_store_says(application: ServedApplication) -> None:
    listed = {each["name"]: each for each in rows(application.get("/v1/stores"))}
    uncounted = rows(application.get("/v1/stores?counted=false"))

    assert listed["counts"] == rows(application.get("/v1/stores/counts"))[0]
    assert (listed["counts"]["entries"], listed["counts"]["lag"]) == (4, 0)
    assert listed["counts"]["snapshot"] == application.token()
    assert {each["entries"] for each in uncounted} == {None}


def test_the_number_of_entries_follows_the_snapshots(tmp_path: Path) -> None:
    application = ServedApplication(tmp_path)
    try:
        found = []
        for name in (b"ann", b"bob"):
            application.write("lines", (name, b"x"))
            application.run()
            for _ in range(2):
                [counts] = rows(application.get("/v1/stores/counts"))
                found.append(counts["entries"])
    finally:
        application.close()

    assert found == [1, 1, 2, 2]


def test_bounds_choose_the_snapshot(application: ServedApplication) -> None:
    token = application.token()
    history, _, number = token.partition(".")
    before = f"{history}.{int(number) - 1}"

    pinned = application.get("/v1/stores/prices/keys/tea", {"snapshot": before})
    at_least = application.get("/v1/stores/prices/keys/tea", {"min_snapshot": before})
    written = application.get("/v1/stores/prices/keys/tea", {"min_position": "prices:0:0"})

    assert (pinned.json(), pinned.headers["Headrace-Snapshot"]) == (10, before)
    assert at_least.json() == 12
    assert written.status_code == 200


def test_the_fast_path_keeps_bounds_and_request_ids(application: ServedApplication) -> None:
    token = application.token()
    history, _, number = token.partition(".")
    path = "/v1/stores/counts/keys/alice"

    reached = application.get(path, {"min_snapshot": token, "wait_ms": "5"})
    later = application.get(path, {"min_snapshot": f"{history}.{int(number) + 1}"})
    other = application.get(path, {"min_snapshot": "00000000.0"})
    wrong = application.get(path, {"min_snapshot": "x"})
    as_bytes = application.get(path.replace("alice", "YWxpY2U"), {"encoding": "bytes"})
    named = application.get(path, headers={"Headrace-Request-Id": "mine"})

    assert (reached.status_code, reached.text) == (200, "2")
    assert later.json()["code"] == "NOT_UP_TO_BOUND"
    assert other.json()["code"] == "SNAPSHOT_GONE"
    assert wrong.json()["code"] == "BAD_REQUEST"
    assert as_bytes.content == (2).to_bytes(8, "big")
    assert as_bytes.headers["Content-Type"] == "application/octet-stream"
    assert named.headers["Headrace-Request-Id"] == "mine"


def test_the_position_is_that_of_the_application_which_answers(tmp_path: Path) -> None:
    found = []
    for lines in (1, 2):
        application = ServedApplication(tmp_path / str(lines))
        try:
            application.write("lines", *[(b"ann", b"x")] * lines)
            application.run()
            answer = application.get("/v1/stores/counts/keys/ann")
            position = msgspec.json.decode(answer.headers["Headrace-Position"])
            found.append((answer.headers["Headrace-Snapshot"], sum(position["lines"])))
        finally:
            application.close()

    (first, one), (second, two) = found
    assert first == second, "the snapshots of both have one name"
    assert (one, two) == (1, 2)
