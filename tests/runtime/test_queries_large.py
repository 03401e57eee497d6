"""Reads of a large store over HTTP, from files, while its application changes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace import Materialized, StreamsBuilder, StreamsConfig
from headrace.brokers import open_log
from headrace.queries.service import QueryService
from headrace.serdes.partitioner import partition_for_key
from tests.runtime.in_process import InProcessQuery
from tests.waiting import PATIENCE, await_that

PARTITIONS = 2
PAGE = 1_000
FEW = 20
"""How many batches change the store while one cursor reads it."""
AT_ONCE = 100_000

sizes = pytest.mark.parametrize(
    "numbers",
    [
        pytest.param(50_000, marks=pytest.mark.tier("test")),
        pytest.param(1_000_000, marks=pytest.mark.nightly("faults")),
    ],
    indirect=True,
)


class Numbers:
    """An application with one large table, and its server."""

    def __init__(self, folder: Path, count: int) -> None:
        self.count = count
        config = StreamsConfig(application_id="application", state_dir=folder)
        self.log = open_log(config)
        self.log.create_topic("numbers", partitions=PARTITIONS)
        builder = StreamsBuilder()
        builder.table("numbers", key=str, value=int, materialized=Materialized("numbers"))
        topology = builder.build()
        self.query = InProcessQuery(topology, folder)
        for start in range(0, count, AT_ONCE):
            self.write({number: number for number in range(start, min(start + AT_ONCE, count))})
        self.service = QueryService(topology, config, server="127.0.0.1:0")
        self.service.start()
        await_that(self.service.is_ready, "the service to be ready")
        self.http = httpx.Client(base_url=self.service.url, timeout=PATIENCE, trust_env=False)

    def write(self, values: dict[int, int | None]) -> None:
        """Run a batch that sets values, or deletes them."""
        records = []
        for number, value in values.items():
            key = name(number).encode()
            data = None if value is None else value.to_bytes(8, signed=True)
            records.append(("numbers", partition_for_key(key, PARTITIONS), 1, key, data, None))
        self.log.append(records)
        self.query.run()

    def page(self, **params: Any) -> dict[str, Any]:
        """Return a page of entries."""
        answer = self.http.get("/v1/stores/numbers/entries", params=params)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def close(self) -> None:
        self.http.close()
        self.service.close()
        self.query.log.close()
        self.log.close()


def name(number: int) -> str:
    return f"n{number:08}"


@pytest.fixture
def numbers(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Numbers]:
    started = Numbers(tmp_path, request.param)
    yield started
    started.close()


@sizes
def test_a_cursor_over_a_large_store_reads_one_snapshot_while_it_changes(numbers: Numbers) -> None:
    every = numbers.count // PAGE // FEW or 1
    page = numbers.page(limit=PAGE)
    first, found, pages = page["snapshot"], page["data"], 1
    while page["next"] is not None:
        if pages % every == 0:
            # A key that was read, one that comes next, one of the last page, and a new one.
            last = numbers.count - 1 - pages
            changed = {0: -pages, pages * PAGE + 7: -1, pages * PAGE + 8: None, last: None}
            numbers.write({**changed, numbers.count + pages: 1})
        page = numbers.page(limit=PAGE, cursor=page["next"])
        assert page["snapshot"] == first
        found += page["data"]
        pages += 1

    assert pages == numbers.count // PAGE
    assert [(row["key"], row["value"]) for row in found] == [
        (name(number), number) for number in range(numbers.count)
    ]
    await_that(
        lambda: numbers.page(limit=1)["data"][0]["value"] < 0, "the changes of the last batches"
    )
    assert numbers.page(limit=1)["snapshot"] != first


@pytest.mark.tier("test")
@pytest.mark.parametrize("numbers", [20_000], indirect=True)
def test_a_read_of_ten_million_rows_is_refused_or_answered_in_part(numbers: Numbers) -> None:
    everything = {"from": name(0), "to": name(10_000_000)}
    refused = numbers.http.get("/v1/stores/numbers/entries", params={"limit": 10_000_000})
    page = numbers.page(**everything)
    reads = {"reads": [{"store": "numbers", "read": "entries"}]}
    several = numbers.http.post("/v1/query", json=reads)
    sql = numbers.http.post("/v1/sql", json={"sql": "SELECT * FROM numbers a, numbers b"})
    lines = numbers.http.get(
        "/v1/stores/numbers/entries", params=everything, headers={"Accept": "application/x-ndjson"}
    )

    assert refused.status_code == 422, refused.text
    assert len(page["data"]) == 100
    assert page["next"] is not None
    assert several.status_code == 422, several.text
    assert several.json()["code"] == "LIMIT_TOO_LARGE"
    assert sql.json()["code"] == "LIMIT_TOO_LARGE", sql.text
    assert len(lines.text.splitlines()) == numbers.count
