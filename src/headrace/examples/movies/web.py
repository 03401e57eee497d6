"""The REST paths of the demo, beside the routes that every instance has."""

from __future__ import annotations

from typing import Literal

import msgspec
from fastapi import FastAPI
from fastapi.responses import JSONResponse

from headrace.examples.movies.app import app
from headrace.examples.serving import client_inside, instances_of

Store = Literal["movies-store", "rated-movies-store"]


def add_routes(web: FastAPI) -> None:
    """Add the routes to an instance. It answers for all: it asks the one that has the key."""
    client = client_inside(web, app)

    @web.get("/iq/instances", tags=["movies"])
    async def instances() -> JSONResponse:
        return JSONResponse(await instances_of(client))

    @web.get("/iq/instances/{store}", tags=["movies"])
    async def instances_with(store: str) -> JSONResponse:
        return JSONResponse(await instances_of(client, store))

    @web.get("/iq/keyvalue/{store}/{key}", tags=["movies"])
    async def by_key(store: Store, key: int) -> JSONResponse:
        found = await client.store(store).get(key)
        if found is None:
            return JSONResponse({"detail": f"There is no movie {key}."}, 404)
        return JSONResponse({"key": key, "value": msgspec.to_builtins(found)})
