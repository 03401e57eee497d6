"""Instances that answer queries of an example while it runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
from fastapi import FastAPI

from headrace.app import KafkaStreams
from headrace.queries import AsyncQueryClient
from headrace.queries.server import QueryApp
from headrace.queries.server.doors import read_token
from headrace.queries.server.server import FIRST_PORT, LAST_PORT
from headrace.queries.service import QueryService


@contextmanager
def answering(
    app: KafkaStreams,
    count: int,
    add_routes: Callable[[QueryApp], None] | None = None,
    *,
    first_port: int = FIRST_PORT,
) -> Iterator[list[QueryService]]:
    """Start instances of an application that answer queries, for the time of a block.

    Args:
        app: The application, which this process or another one runs.
        count: How many instances; they share the partitions of the stores.
        add_routes: Adds the routes of the example to those of an instance.
        first_port: Each takes the next free port from here on; 0: any.
    """
    with ExitStack() as closing:
        services = []
        for _ in range(count):
            service = QueryService(
                app.topology,
                app.config,
                server=f"127.0.0.1:{first_port}",
                last_port=LAST_PORT if first_port else None,
                add_routes=add_routes,
            )
            service.start()
            closing.callback(service.close)
            services.append(service)
        yield services


async def instances_of(client: AsyncQueryClient, store: str | None = None) -> list[dict[str, Any]]:
    """Return the address of each instance and the names of its stores, as the demos list them."""
    names: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
    for shard in await client.metadata(store):
        for host in (shard["active"], *shard["standby"]):
            if host is not None:
                names[host["host"], host["port"]].update(shard["stores"])
    return [
        {"host": host, "port": port, "storeNames": sorted(stores)}
        for (host, port), stores in sorted(names.items())
    ]


def client_inside(web: FastAPI, program: KafkaStreams) -> AsyncQueryClient:
    """Return a client of an instance for routes of its own, which need no socket.

    It sends the token of ``server.token.file`` if the instance asks for one.
    """
    path = web.state.headrace.application.config.server_token_file
    return AsyncQueryClient(
        "http://127.0.0.1",
        program=program,
        token=None if path is None else read_token(path),
        http=httpx.AsyncClient(transport=httpx.ASGITransport(app=web)),
    )
