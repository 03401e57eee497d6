"""A store as a Spark DataFrame, while the application runs on the same Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import Struct

from headrace import StreamsBuilder, Topology
from tests.spark.hosts import Given, OnSpark, host_on
from tests.waiting import await_that


class Sale(Struct):
    city: str
    amount: int


def selling() -> Topology:
    builder = StreamsBuilder()
    builder.table("framed-sales", key=str, value=Sale, materialized="sales")
    return builder.build()


def test_a_store_is_a_dataframe(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    host = host_on("embedded", request, tmp_path)
    assert isinstance(host, OnSpark)
    request.addfinalizer(host.close)
    host.create_topics("framed-sales")
    host.start(selling())
    host.pipe(
        Given("framed-sales", b"a", b'{"city":"Oslo","amount":5}', 1_000),
        Given("framed-sales", b"b", b'{"city":"Rome","amount":7}', 2_000),
    )
    store = host.streams.store("sales")
    await_that(lambda: store.get("b") is not None, "the snapshot of both sales")

    frame = host.streams.to_dataframe("sales")

    rows = [(each.key, each.city, each.amount) for each in frame.orderBy("key").collect()]
    assert rows == [("a", "Oslo", 5), ("b", "Rome", 7)]
    assert dict(frame.dtypes) == {
        "key": "string",
        "city": "string",
        "amount": "bigint",
        "timestamp": "timestamp",
    }
    assert frame.where("amount > 5").count() == 1
