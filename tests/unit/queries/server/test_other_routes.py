"""Several reads, changes, SQL, operations and probes over HTTP."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import anyio.to_thread
import msgspec
import pytest

from headrace.errors import ConfigError
from headrace.queries.instance import Instance
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.server import create_app
from headrace.queries.server.routes.sql import SnapshotRows
from tests.meta.repository import ROOT
from tests.unit.queries.server.served_application import ServedApplication


def test_several_reads_are_of_one_snapshot(application: ServedApplication) -> None:
    answer = application.post(
        "/v1/query",
        {
            "reads": [
                {"store": "counts", "read": "key", "key": "alice"},
                {"store": "counts", "read": "key", "key": "nobody"},
                {"store": "people", "read": "entries", "from": 8},
                {"store": "counts", "read": "entries", "prefix": "b", "order": "desc"},
                {"store": "windows", "read": "windows", "key": "alice", "to": 0},
                {"store": "windows", "read": "windows", "key": "bob", "to_key": "carol"},
                {"store": "sessions", "read": "sessions", "key": "bob"},
                {"store": "prices", "read": "versions", "key": "tea", "order": "asc"},
                {"store": "prices", "read": "key", "key": "tea", "as_of": 1_000},
            ]
        },
    )

    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["snapshot"] == answer.headers["Headrace-Snapshot"] == application.token()
    assert [[row["value"] for row in rows] for rows in found["data"]] == [
        *([2], [], [{"name": "Bob", "age": 40}], [1], [1], [1, 1], [1], [10, 12], [10])
    ]


def test_a_route_needs_no_thread_for_its_parameters(
    application: ServedApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = []
    run_sync = anyio.to_thread.run_sync

    async def noted(function: Any, *arguments: Any, **named: Any) -> Any:
        called.append(function)
        return await run_sync(function, *arguments, **named)

    monkeypatch.setattr(anyio.to_thread, "run_sync", noted)
    answer = application.post("/v1/sql", {"sql": "SELECT 1"})

    assert (answer.status_code, called) == (200, [])


def test_sql_reads_the_stores_at_one_snapshot(application: ServedApplication) -> None:
    by_key = application.post(
        "/v1/sql", {"sql": "SELECT name, age FROM people WHERE key = ?", "params": [7]}
    )
    joined = application.post(
        "/v1/sql",
        {
            "sql": "SELECT sum(value) AS total, (SELECT count(*) FROM people) AS people "
            "FROM counts WHERE key <> :key",
            "params": {"key": "bob"},
        },
    )
    nothing = application.post("/v1/sql", {"sql": "SELECT 1 + 1"})

    assert by_key.json() == {
        "columns": ["name", "age"],
        "data": [["Ann", 30]],
        "next": None,
        "snapshot": application.token(),
    }
    assert joined.json()["data"] == [[4, 2]]
    assert joined.headers["Headrace-Snapshot"] == application.token()
    assert nothing.json()["data"] == [[2]]


def test_sql_writes_bytes_as_an_object(application: ServedApplication) -> None:
    text = "SELECT value FROM blobs WHERE key = ?"

    found = application.post("/v1/sql", {"sql": text, "params": [{"$bytes": "-_8="}]})
    wrong = application.post("/v1/sql", {"sql": text, "params": [{"$bytes": "!"}]})
    other = application.post("/v1/sql", {"sql": text, "params": [{"bytes": "AA"}]})

    assert found.json()["data"] == [[{"$bytes": "AAE"}]]
    assert [(each.status_code, each.json()["code"]) for each in (wrong, other)] == [
        (422, "BAD_REQUEST"),
        (422, "BAD_REQUEST"),
    ]


def test_sql_asks_other_instances_for_what_this_one_does_not_have(
    application: ServedApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = [
        "SELECT key, name FROM people ORDER BY key",
        "SELECT value FROM counts WHERE key = 'alice'",
        "SELECT count(*), min(window_start) FROM windows WHERE window_start > 5",
    ]
    local = [application.post("/v1/sql", {"sql": text}).json() for text in statements]
    monkeypatch.setattr(SnapshotRows, "_shown", lambda _: None)

    assert [application.post("/v1/sql", {"sql": text}).json() for text in statements] == local
    assert local[0]["data"] == [[7, "Ann"], [8, "Bob"]]


def test_changes_resume_behind_an_event(application: ServedApplication) -> None:
    history, _, number = application.token().partition(".")
    before = f"{history}.{int(number) - 1}"

    [begun] = application.events("/v1/stores/prices/changes", 1)
    [resumed, change] = application.events(
        "/v1/stores/prices/changes", 2, headers=[("Last-Event-ID", before)]
    )
    [_, other] = application.events(f"/v1/stores/counts/changes?prefix=c&since={before}", 2)
    [_, of_key] = application.events(f"/v1/stores/people/changes?key=8&since={before}", 2)
    [_, reset] = application.events("/v1/stores/prices/changes?since=00000000.0", 2)

    assert begun.splitlines()[:2] == ["event: heartbeat", f"id: {application.token()}"]
    assert f"id: {before}" in resumed
    fields = dict(line.split(": ", 1) for line in change.splitlines())
    assert fields["event"] == "change"
    assert fields["id"].startswith(f"{application.token()}:")
    data = msgspec.json.decode(fields["data"])
    assert (data["key"], data["value"], data["snapshot"]) == ("tea", 12, application.token())
    assert '"carol"' in other
    assert '"key":8' in of_key
    assert reset.splitlines()[0] == "event: reset"


def test_operations(application: ServedApplication) -> None:
    metadata = application.get("/v1/metadata").json()["data"]
    of_key = application.get("/v1/metadata?store=counts&key=alice").json()["data"]
    snapshots = application.get("/v1/snapshots").json()
    lag = application.get("/v1/lag").json()["data"]
    [error] = application.get("/v1/errors").json()["data"]

    assert all(shard["is_ready"] for shard in metadata)
    assert len(of_key) == 1
    assert "counts" in of_key[0]["stores"]
    assert snapshots["snapshot"] == application.token()
    assert snapshots["data"][0]["snapshot"] == application.token()
    assert {each["topic"]: each["lag"] for each in lag if each["kind"] == "input"}["lines"] == 0
    assert {each["store"] for each in lag if each["kind"] == "store"} >= {"counts", "prices"}
    assert (error["reason"], error["count"]) == ("processing", 1)
    assert "a bad line" in error["first"]


@pytest.mark.parametrize(
    ("format_", "begins"),
    [("json", "{"), ("text", "Topologies:"), ("mermaid", "flowchart TD"), ("dot", "digraph")],
)
def test_the_topology_in_all_formats(
    application: ServedApplication, format_: str, begins: str
) -> None:
    answer = application.get("/v1/topology", {"format": format_})

    assert answer.text.startswith(begins)
    assert "lines" in answer.text


def test_probes(application: ServedApplication) -> None:
    assert application.get("/health/live").text == "live\n"
    assert application.get("/health/ready").text == "ready\n"


def test_figures_have_prometheus_form(application: ServedApplication) -> None:
    application.get("/v1/stores/counts/keys/alice")
    application.get("/v1/stores/counts/keys/nobody")
    application.get("/v1/stores/wrong/keys/a")

    answer = application.get("/metrics")

    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    form = re.compile(r'[a-z0-9_]+\{([a-z_]+="[^"]*",?)*\} [0-9.e+-]+')
    lines = answer.text.splitlines()
    assert [each for each in lines if not each.startswith("# ") and not form.fullmatch(each)] == []
    text = answer.text
    assert re.search(r'headrace_query_total\{.*store="counts",kind="keys",code="OK"\} [1-9]', text)
    assert re.search(r'store="counts",kind="keys",code="KEY_NOT_FOUND"\} [1-9]', text)
    assert re.search(r'store="",kind="keys",code="UNKNOWN_STORE"\} [1-9]', text)
    assert re.search(r"headrace_ready\{[^}]*\} 1\n", text)
    assert re.search(r'headrace_lag_records\{.*topic="lines",partition="0"\} 0\n', text)
    assert re.search(r'headrace_records_dropped_total\{.*reason="processing"\} 1\n', text)
    assert re.search(r"headrace_records_processed_total\{[^}]*\} 1[0-9]\n", text)
    consumed = r'headrace_records_consumed_total\{.*topic="prices",partition="(\d)"\} (\d+)\n'
    assert sum(int(count) for _, count in re.findall(consumed, text)) == 2
    assert re.search(r'headrace_errors_total\{.*reason="processing"\} 1\n', text)
    assert re.search(r'headrace_dlq_records_total\{.*topic="letters"\} 1\n', text)
    assert re.search(r"headrace_leader_epoch\{[^}]*\} [0-9]+\n", text)
    assert "Kafka: restore-remaining-records" in text
    states = re.findall(r'headrace_state\{.*state="([A-Z]+)"\} ([01])\n', text)
    assert states == [("REBALANCING", "0"), ("RUNNING", "1"), ("ERROR", "0")]
    nodes = re.findall(r'headrace_node_records_total\{.*node="([^"]+)",subt.*"\} (\d+)\n', text)
    assert ("KSTREAM-SOURCE-0000000000", "6") in nodes
    assert re.search(r'headrace_bytes_consumed_total\{.*topic="prices",partition="\d"\} 22\n', text)
    assert re.search(r'headrace_bytes_produced_total\{.*topic="letters"\} [1-9]\d+\n', text)
    assert re.search(r'headrace_node_seconds_count\{.*node="KSTREAM-SOURCE-0+",.*\} 6\n', text)
    assert re.search(r'headrace_record_lateness_seconds_count\{.*subtopology="0"\} [1-9]', text)
    assert re.search(r'headrace_record_e2e_latency_seconds_count\{.*topic="letters"\} 1\n', text)
    assert re.search(r'headrace_txn_total\{.*result="commit"\} [2-9]\n', text)
    assert re.search(r'headrace_store_rows\{.*store="people",partition="\d"\} [12]\n', text)
    assert re.search(r'headrace_store_changes_total\{.*store="counts"\} 4\n', text)
    phases = re.findall(r'headrace_batch_seconds_count\{.*phase="(\w+)"\} ([12])\n', text)
    assert dict(phases) == dict.fromkeys(("plan", "prepare", "run", "txn_commit"), "2") | {
        "finish": "1"
    }


def test_the_reference_lists_the_figures_that_exist_with_their_types(
    application: ServedApplication,
) -> None:
    page = (ROOT / "docs" / "rest.md").read_text()
    rows = re.findall(r"^\| `(headrace_\w+)` \| (\w+) \| ([a-z, ]*) \|", page, re.MULTILINE)

    assert {name: kind for name, kind, _ in rows} == _known(application)
    labels = {name: {*filter(None, named.split(", "))} for name, _, named in rows}
    for name, found in _labels(application).items():
        assert found - {"app_id", "topology", "le"} == labels[name], name


def _known(application: ServedApplication) -> dict[str, str]:
    """Return the type of each metric."""
    lines = application.get("/metrics").text.splitlines()
    return {line.split()[2]: line.split()[3] for line in lines if line.startswith("# TYPE")}


def _labels(application: ServedApplication) -> dict[str, set[str]]:
    """Return the labels of each metric that has a series."""
    labels: dict[str, set[str]] = {}
    for name, named in re.findall(
        r"^(\w+)\{(.*)\} ", application.get("/metrics").text, re.MULTILINE
    ):
        known = re.sub(r"_(bucket|sum|count)$", "", name)
        found = re.findall(r'(\w+)="', named)
        labels.setdefault(known if "le" in found or known != name else name, set()).update(found)
    return labels


def test_a_watch_is_counted_without_its_time(application: ServedApplication) -> None:
    application.events("/v1/stores/counts/changes", 1)

    text = application.get("/metrics").text

    assert re.search(r'headrace_query_total\{.*store="counts",kind="changes"', text)
    assert not re.search(r'headrace_query_seconds_count\{.*kind="changes"', text)


def test_the_board_has_a_row_for_each_question() -> None:
    board = msgspec.json.decode((ROOT / "grafana" / "headrace.json").read_bytes())

    rows = [panel["title"] for panel in board["panels"] if panel["type"] == "row"]
    assert rows == ["Health", "Throughput", "Lag", "State", "Batches", "Queries", "Errors"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_the_board_and_the_alerts_use_figures_and_labels_that_exist(
    application: ServedApplication,
) -> None:
    known, labels = _known(application), _labels(application)
    named = 0
    for expression in _expressions():
        for name, selector in re.findall(r"(headrace_\w+)(?:\{([^}]*)\})?", expression):
            named += 1
            metric = re.sub(r"_bucket$", "", name)
            assert metric in known, expression
            assert (known[metric] == "histogram") == (name != metric), expression
            if metric in labels:
                used = {*re.findall(r"(\w+)=", selector.replace("!=", "="))}
                assert used <= labels[metric], expression
    assert named > 40


def _expressions() -> list[str]:
    """Return the expressions of the board and of the alerts."""
    board = msgspec.json.decode((ROOT / "grafana" / "headrace.json").read_bytes())
    alerts = msgspec.yaml.decode((ROOT / "grafana" / "alerts.yml").read_bytes())
    rules = [rule for group in alerts["groups"] for rule in group["rules"]]
    assert [rule["alert"] for rule in rules if "summary" not in rule["annotations"]] == []
    return [
        *(each["expr"] for panel in board["panels"] for each in panel.get("targets", ())),
        *(rule["expr"] for rule in rules),
    ]


def test_the_page_of_the_routes_loads_nothing_from_elsewhere(
    application: ServedApplication,
) -> None:
    page = application.get("/docs")
    schema = application.get("/openapi.json").json()

    assert page.headers["Content-Type"].startswith("text/html")
    assert not re.search(r"(src|href)=\"(https?:)?//", page.text)
    assert schema["openapi"].startswith("3.1")
    assert {"200", "304", "401", "404", "409", "410", "422", "429", "500", "503", "504"} <= {
        *schema["paths"]["/v1/stores/{store}/keys/{key}"]["get"]["responses"]
    }


def test_the_reference_lists_every_route(application: ServedApplication) -> None:
    page = (ROOT / "docs" / "rest.md").read_text()
    schema: dict[str, Any] = application.get("/openapi.json").json()

    assert [path for path in schema["paths"] if f"`{path}`" not in page] == []


def test_an_application_that_does_not_answer_yet_says_so(application: ServedApplication) -> None:
    class NotStarted:
        topology, config = application.topology, application.config

        @property
        def instance(self) -> Instance:
            raise QueryProblemError(ProblemCode.STORE_NOT_READY, "Not started.")

    early = create_app(NotStarted())
    answers = [
        application.get(path, app=early)
        for path in ("/v1/stores", "/v1/stores/counts/keys/a", "/health/ready", "/metrics")
    ]

    assert {(each.status_code, each.json()["code"]) for each in answers} == {
        (503, "STORE_NOT_READY")
    }
    assert application.get("/health/live", app=early).status_code == 200


def test_a_certificate_that_cannot_be_read_is_refused(application: ServedApplication) -> None:
    config = application.config.with_settings(
        server_tls_certificate="nowhere.pem", server_tls_key="nowhere.pem"
    )
    broken = SimpleNamespace(
        topology=application.topology, config=config, instance=application.instance
    )

    with pytest.raises(ConfigError, match=r"server\.tls\.certificate"):
        create_app(broken)


def test_users_add_routes_behind_the_doors(application: ServedApplication) -> None:
    @application.app.get("/mine")
    async def mine() -> dict[str, int]:
        return {"answer": 42}

    answer = application.get("/mine")
    outside = application.get("http://evil.example/mine")

    assert answer.json() == {"answer": 42}
    assert answer.headers["Headrace-Request-Id"]
    assert outside.status_code == 403
