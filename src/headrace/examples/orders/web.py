"""The REST of the document, beside the routes that every instance has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from decimal import Decimal
from typing import Any, Literal

import msgspec
from fastapi import FastAPI, Response

from headrace import KafkaStreams
from headrace.brokers import open_log
from headrace.examples.orders.app import app
from headrace.examples.orders.feed import TOPICS
from headrace.examples.running import create_topics, topics_of
from headrace.examples.serving import client_inside
from headrace.queries import create_app

Orders = Literal["general_orders", "restaurant_orders"]
JSON = msgspec.json.Encoder(decimal_format="number")  # all digits of an amount


def add_routes(web: FastAPI) -> None:
    """Add the routes to an instance. It answers for all: it asks those that have the partitions."""
    client = client_inside(web, app)

    @web.get("/v1/orders/count/{orders}", tags=["orders"])
    async def count(orders: Orders, location_id: str | None = None) -> Response:
        store = client.store(f"{orders}_count")
        if location_id is None:
            return answer([counted(*each) async for each in store.all()])
        found = await store.get(location_id)
        return answer(None if found is None else counted(location_id, found))

    @web.get("/v1/orders/revenue/{orders}", tags=["orders"])
    async def revenue(orders: Orders, location_id: str | None = None) -> Response:
        store = client.store(f"{orders}_revenue")
        if location_id is None:
            return answer([total async for _, total in store.all()])
        return answer(await store.get(location_id))

    @web.get("/v1/orders/windows/count/{orders}", tags=["orders"])
    async def windows(orders: Orders) -> Response:
        store = client.store(f"{orders}_count_windows")
        rows = [(key.key, key.window, found) async for key, found in store.all()]
        return answer(
            [
                {**counted(location, found), "startWindow": each.start, "endWindow": each.end}
                for location, each, found in rows
            ]
        )

    @web.get("/v1/orders/windows/revenue/{orders}", tags=["orders"])
    async def revenue_windows(orders: Orders) -> Response:
        store = client.store(f"{orders}_revenue_windows")
        rows = [
            (key.window, msgspec.to_builtins(found, builtin_types=[Decimal]))
            async for key, found in store.all()
        ]
        return answer(
            [{**found, "startWindow": each.start, "endWindow": each.end} for each, found in rows]
        )


def counted(location_id: str, count: int) -> dict[str, Any]:
    return {"locationId": location_id, "orderCount": count}


def answer(found: Any) -> Response:
    """Return an answer in JSON; there is none for a store that has no orders."""
    if found is None:
        return Response(b'{"detail":"no orders"}', 404, media_type="application/json")
    return Response(JSON.encode(found), media_type="application/json")


def web_of(streams: KafkaStreams) -> FastAPI:
    """Return a web application that starts and stops the application with itself."""
    web = create_app(streams)
    add_routes(web)
    own_lifespan = web.router.lifespan_context

    @asynccontextmanager
    async def lifespan(served: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(streams.start)
        try:
            async with own_lifespan(served):
                yield
        finally:
            await asyncio.to_thread(streams.close)

    web.router.lifespan_context = lifespan
    return web


def web() -> FastAPI:
    """Return the web application, and create its topics: ``uvicorn --factory``."""
    with closing(open_log(app.config)) as log:
        create_topics(log, topics_of(app, TOPICS))
    return web_of(app)
