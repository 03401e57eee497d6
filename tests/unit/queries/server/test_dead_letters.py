"""Dead letters over HTTP: list them, and write each to its topic once."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headrace.brokers.log import TopicPartition
from headrace.brokers.sessions import Broker
from headrace.queries.redrive import ERRORS_PREFIX, REDRIVE_PREFIX
from headrace.records import ConsumerRecord
from tests.unit.queries.server.served_application import ServedApplication


@pytest.fixture
def application(tmp_path: Path) -> Iterator[ServedApplication]:
    started = ServedApplication(tmp_path, is_admin=True)
    started.write("lines", (b"a", b"bad"), (b"b", b"fine"), (b"c", b"bad"), at=1_000)
    started.run()
    yield started
    started.close()


def records(application: ServedApplication, topic: str) -> list[ConsumerRecord]:
    names = [TopicPartition(topic, partition) for partition in range(2)]
    ends = application.log.end_offsets(names)
    return [
        record
        for name in names
        for found in application.log.read(name, 0, ends[name])
        for record in found
    ]


def test_dead_letters_are_listed_with_their_origin(application: ServedApplication) -> None:
    dead_letters = application.get("/v1/dlq").json()["data"]

    assert {(dead_letter["key"], dead_letter["value"]) for dead_letter in dead_letters} == {
        ("a", "bad"),
        ("c", "bad"),
    }
    assert {dead_letter["exception"] for dead_letter in dead_letters} == {"ValueError"}
    assert {dead_letter["message"] for dead_letter in dead_letters} == {"a bad line"}
    assert {dead_letter["origin"]["topic"] for dead_letter in dead_letters} == {"lines"}
    assert not any(dead_letter["is_replayed"] for dead_letter in dead_letters)


def test_a_dry_run_writes_nothing(application: ServedApplication) -> None:
    before = len(records(application, "lines"))

    for body in (None, {}, {"dry_run": True}):
        [found] = application.post("/v1/dlq/replay", body).json()["data"]
        assert found == {
            "is_dry_run": True,
            "replayed": {"lines": 2},
            "skipped": {},
            "has_more": False,
        }

    assert len(records(application, "lines")) == before


def test_each_dead_letter_is_written_once_with_its_origin_in_headers(
    application: ServedApplication,
) -> None:
    before = records(application, "lines")

    first = application.post("/v1/dlq/replay", {"dry_run": False, "limit": 1}).json()["data"][0]
    second = application.post("/v1/dlq/replay", {"dry_run": False}).json()["data"][0]
    third = application.post("/v1/dlq/replay", {"dry_run": False}).json()["data"][0]

    assert [each["replayed"] for each in (first, second, third)] == [{"lines": 1}] * 2 + [{}]
    assert [each["has_more"] for each in (first, second, third)] == [True, False, False]
    assert all(each["is_replayed"] for each in application.get("/v1/dlq").json()["data"])
    new = [record for record in records(application, "lines") if record not in before]
    places = {record.key: record.partition for record in before}
    assert {record.key: record.partition for record in new} == {
        key: places[key] for key in (b"a", b"c")
    }
    assert {record.timestamp for record in new} == {1_000}
    for record in new:
        names = [name for name, _ in record.headers]
        assert [name for name in names if name.startswith(ERRORS_PREFIX)] == []
        assert record.headers.last(f"{REDRIVE_PREFIX}topic") == b"letters"
        assert (record.headers.last(f"{REDRIVE_PREFIX}offset") or b"").isdigit()


def test_dead_letters_that_cannot_go_back_are_skipped(application: ServedApplication) -> None:
    def headers(topic: str, partition: int) -> list[tuple[str, bytes | None]]:
        facts = {"topic": topic, "partition": str(partition), "offset": "0"}
        return [(f"{ERRORS_PREFIX}{name}", text.encode()) for name, text in facts.items()]

    application.log.append(
        [
            ("letters", 0, 0, b"k", b"no origin", None),
            ("letters", 0, 0, b"k", b"elsewhere", headers("secrets", 0)),
            ("letters", 0, 0, None, None, headers("lines", 0)),
            ("letters", 0, 0, b"k", b"gone", headers("lines", 9)),
            ("letters", 1, 0, b"\xff", b"\xff", headers("lines", 0)),
        ]
    )

    [found] = application.post("/v1/dlq/replay", {"dry_run": False}).json()["data"]
    shown = application.get("/v1/dlq", {"limit": 1_000}).json()["data"]

    assert found["replayed"] == {"lines": 3}
    assert sorted(found["skipped"].values()) == [1, 1, 1, 1]
    assert {"$hex": "ff"} in [dead_letter["value"] for dead_letter in shown]


def test_an_instance_that_only_reads_replays_nothing(tmp_path: Path) -> None:
    reader = ServedApplication(tmp_path)

    answer = reader.post("/v1/dlq/replay", {"dry_run": False})

    assert (answer.status_code, answer.json()["code"]) == (403, "ADMIN_DISABLED")
    reader.close()


def test_a_long_dead_letter_is_cut_between_characters(application: ServedApplication) -> None:
    origin = {"topic": b"lines", "partition": b"0", "offset": b"0", "message": b"m" * 10_000}
    headers = [(f"{ERRORS_PREFIX}{name}", value) for name, value in origin.items()]
    long = ("x" + "ü" * 5_000).encode()
    application.log.append([("letters", 0, 9_000, b"k", long, headers)])

    [found] = application.get("/v1/dlq?limit=1").json()["data"]

    assert found["value"] == "x" + "ü" * 2_047
    assert found["message"] == "m" * 4_096


def test_listing_keeps_no_whole_dead_letter(
    application: ServedApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = bytes(1_000_000)
    for number in range(40):
        application.log.append([("letters", 0, number, b"k", long, None)])
    tracemalloc.start()
    try:
        found = application.get("/v1/dlq?limit=100").json()["data"]
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(found) == 42
    assert most_bytes < 20 << 20


def test_requests_that_wait_for_the_broker_stop_no_reads_and_have_a_limit(
    application: ServedApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on, asked = threading.Event(), []
    served = application.app.state.headrace
    open_broker = served.open_broker

    def open_later() -> Broker:
        asked.append(1)
        assert may_go_on.wait(60)
        broker: Broker = open_broker()
        return broker

    monkeypatch.setattr(served, "open_broker", open_later)

    async def ask(client: httpx.AsyncClient) -> tuple[list[int], list[int]]:
        waiting = [asyncio.create_task(client.get("/v1/dlq")) for _ in range(6)]
        while len(asked) < 2:
            await asyncio.sleep(0)
        others = [
            await client.get(path)
            for path in ("/v1/dlq", "/v1/stores/counts/entries", "/v1/stores/people/entries")
        ]
        may_go_on.set()
        done = [await each for each in waiting]
        return [each.status_code for each in others], [each.status_code for each in done]

    assert application.use(ask) == ([429, 200, 200], [200] * 6)
