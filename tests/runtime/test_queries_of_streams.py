"""`KafkaStreams` answers queries of its own copy, while an application runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from headrace import KafkaStreams, LagInfo, Materialized, StreamsBuilder, StreamsError, Topology
from headrace.brokers import open_log
from headrace.queries import (
    HostInfo,
    KeyQuery,
    Position,
    QueryableStoreTypes,
    QueryProblemError,
    StateQueryRequest,
    create_app,
)
from headrace.serdes.partitioner import partition_for_key
from tests.runtime.in_process import InProcessQuery
from tests.unit.fake_run import faked
from tests.waiting import await_that


class Revenue(msgspec.Struct):
    orders: int = 0
    total: int = 0


def add(_store: str, amount: int, revenue: Revenue) -> Revenue:
    return Revenue(revenue.orders + 1, revenue.total + amount)


def program() -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=str, value=int)
    orders.group_by_key().aggregate(Revenue, add, materialized=Materialized("revenue"))
    return builder.build()


class Application:
    """An application batch by batch, and `KafkaStreams` of the same program in another process."""

    def __init__(self, folder: Path) -> None:
        self.streams = KafkaStreams(program(), application_id="application", state_dir=folder)
        self.log = open_log(self.streams.config)
        self.log.create_topic("orders", partitions=2)
        self.query = InProcessQuery(program(), folder)

    def order(self, partition: int, key: bytes, amount: int) -> None:
        value = amount.to_bytes(8, "big")
        self.log.append([("orders", partition, 0, key, value, None)])
        self.query.run()


@pytest.fixture
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Application]:
    with faked(monkeypatch):
        made = Application(tmp_path)
        yield made
        made.streams.close()
        made.query.log.close()
        made.log.close()


def test_an_application_reads_its_stores_with_their_types(application: Application) -> None:
    application.order(0, b"rome", 5)
    application.order(1, b"oslo", 7)
    application.streams.start()

    store = application.streams.store("revenue", QueryableStoreTypes.key_value_store(str, Revenue))

    assert {*dict(store.all())} == {"rome", "oslo"}
    assert application.streams.store("revenue", partition=0).get("rome") == Revenue(1, 5)
    [metadata] = application.streams.all_metadata()
    assert metadata.host_info == HostInfo.unavailable()
    assert application.streams.metadata_for_store("revenue") == [metadata]
    assert application.streams.query_metadata_for_key("revenue", "x").partition in (0, 1)
    assert application.streams.all_local_store_partition_lags() == {
        "revenue": {number: LagInfo(1, 1, 0) for number in range(2)}
    }
    request = StateQueryRequest("revenue", KeyQuery[str, Revenue]("rome"), partitions={0})
    found = application.streams.query(request)
    assert found.partition_results[0].result == Revenue(1, 5)
    assert found.position == Position({"orders": {0: 0, 1: 0}})

    application.order(0, b"rome", 5)
    one = application.streams.store("revenue", partition=0)
    await_that(lambda: one.get("rome") == Revenue(2, 10), "the next snapshot")


def test_a_store_from_outside_can_only_be_read(application: Application) -> None:
    application.order(0, b"rome", 5)
    application.streams.start()

    store = application.streams.store("revenue")

    assert not [name for name in dir(store) if name.startswith(("put", "delete"))]


def test_only_a_running_application_answers(application: Application) -> None:
    streams = application.streams

    with pytest.raises(StreamsError, match=r"was not started\. Call `start\(\)` before `store`"):
        streams.store("revenue")
    application.order(0, b"rome", 5)
    streams.start()
    with pytest.raises(QueryProblemError, match="Did you mean 'revenue'"):
        streams.store("revenues")
    streams.close()
    with pytest.raises(StreamsError, match="has ended: it is NOT_RUNNING"):
        streams.query(StateQueryRequest("revenue", KeyQuery[str, Revenue]("rome")))


def test_your_own_server_hosts_the_routes_without_an_address_of_the_application(
    application: Application,
) -> None:
    app = create_app(application.streams)

    @app.get("/top")
    async def top() -> str:
        return "rome"

    async def ask(path: str) -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get(path)

    before = asyncio.run(ask("/v1/stores/revenue/keys/rome"))
    application.order(partition_for_key(b"rome", 2), b"rome", 5)
    application.streams.start()
    await_that(
        lambda: asyncio.run(ask("/health/ready")).status_code == httpx.codes.OK, "a ready copy"
    )

    assert (before.status_code, before.json()["code"]) == (503, "STORE_NOT_READY")
    found = asyncio.run(ask("/v1/stores/revenue/keys/rome"))
    assert found.json() == {"orders": 1, "total": 5}
    assert asyncio.run(ask("/v1/metadata")).json()["data"][0]["is_ready"]
    assert asyncio.run(ask("/top")).json() == "rome"
    assert application.streams.store("revenue").get("rome") == Revenue(1, 5)
