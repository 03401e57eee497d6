"""The REST paths of the demo, beside the routes that every instance has."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from headrace.examples.music.app import TOP_FIVE_KEY, app
from headrace.examples.music.model import Song
from headrace.examples.serving import client_inside, instances_of


def add_routes(web: FastAPI) -> None:
    """Add the routes to an instance. It answers for all: it asks those that have the partitions."""
    client = client_inside(web, app)

    @web.get("/kafka-music/instances", tags=["music"])
    async def instances() -> JSONResponse:
        return JSONResponse(await instances_of(client))

    @web.get("/kafka-music/instances/{store}", tags=["music"])
    async def instances_with(store: str) -> JSONResponse:
        return JSONResponse(await instances_of(client, store))

    @web.get("/kafka-music/charts/genre/{genre}", tags=["music"])
    async def genre_chart(genre: str) -> JSONResponse:
        return await chart("top-five-songs-by-genre", genre.lower())

    @web.get("/kafka-music/charts/top-five", tags=["music"])
    async def top_five() -> JSONResponse:
        return await chart("top-five-songs", TOP_FIVE_KEY)

    @web.get("/kafka-music/song/{song_id}", tags=["music"])
    async def song(song_id: int) -> JSONResponse:
        found = await client.store("all-songs").get(song_id)
        return missing(f"song {song_id}") if found is None else JSONResponse(about(found))

    async def chart(store: str, key: str) -> JSONResponse:
        async with client.snapshot() as view:  # the chart and its songs are of one snapshot
            top = await view.store(store).get(key)
            if top is None:
                return missing(f"chart {key!r}")
            songs = view.store("all-songs")
            rows = [(await songs.get(each.song_id), each.plays) for each in top.songs]
        return JSONResponse([about(found) | {"plays": plays} for found, plays in rows if found])


def about(song: Song) -> dict[str, Any]:
    return {"artist": song.artist, "album": song.album, "name": song.name}


def missing(what: str) -> JSONResponse:
    return JSONResponse({"detail": f"There is no {what}."}, 404)
