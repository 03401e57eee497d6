"""An application with stores of every kind, whose copy is served without a process or a port."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx

from headrace import (
    Materialized,
    SessionWindows,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    Topology,
)
from headrace.brokers.opening import open_log
from headrace.queries.catalog import catalog_of
from headrace.queries.copy.memory_database import MemoryDatabase
from headrace.queries.instance import Instance
from headrace.queries.server import QueryApp, create_app
from headrace.queries.tokens import token_of
from headrace.runtime.snapshots import SnapshotRecord
from headrace.serdes.partitioner import partition_for_key
from tests.runtime.in_process import InProcessQuery
from tests.waiting import await_that

T = TypeVar("T")

TOPICS = ("lines", "people", "prices", "blobs", "countries", "letters", "pairs")


@dataclass(frozen=True)
class Person:
    name: str
    age: int


@dataclass(frozen=True)
class Pair:
    left: str
    right: int


def topology() -> Topology:
    """Return a program with a store of each kind."""
    builder = StreamsBuilder()
    lines = builder.stream("lines", key=str, value=str)
    good = lines.map_values(_checked, value=str)
    by_key = good.group_by_key()
    by_key.count(materialized=Materialized("counts"))
    by_key.windowed_by(TimeWindows("1m")).count(
        materialized=Materialized("windows", retention="1h")
    )
    by_key.windowed_by(SessionWindows("1m")).count(
        materialized=Materialized("sessions", retention="1h")
    )
    builder.table("people", key=int, value=Person, materialized=Materialized("people"))
    builder.table("blobs", key=bytes, value=bytes, materialized=Materialized("blobs"))
    builder.table("pairs", key=Pair, value=str, materialized=Materialized("pairs"))
    builder.table(
        "prices",
        key=str,
        value=int,
        materialized=Materialized("prices", history_retention="1h"),
    )
    builder.global_table("countries", key=str, value=str, materialized=Materialized("countries"))
    return builder.build()


def _checked(value: str) -> str:
    if value == "bad":
        raise ValueError("a bad line")
    return value


class ServedApplication:
    """An application in this process, and the app that answers for it."""

    def __init__(self, folder: Path, *, is_admin: bool = False, is_on_disk: bool = False) -> None:
        settings: dict[str, Any] = {
            "application_id": "application",
            "processing_exception_handler": "continue",
            "errors_dead_letter_queue_topic_name": "letters",
        }
        self.topology = topology()
        self.log = open_log(StreamsConfig(**settings).with_settings(state_dir=folder))
        for topic in TOPICS:
            self.log.create_topic(topic, partitions=2)
        self.query = InProcessQuery(self.topology, folder, **settings)
        self.config = self.query.config
        self.instance = Instance(
            catalog_of(self.query.plan),
            self.config,
            name=None,
            database=None if is_on_disk else MemoryDatabase(),
            restarts=True,
        )
        self.app: QueryApp = create_app(self, enable_admin=is_admin)
        self.instance.start()

    def write(self, topic: str, *records: tuple[bytes | None, bytes | None], at: int = 0) -> None:
        """Write records to both partitions of a topic, by the hash of the key as producers do."""
        self.log.append(
            [
                (topic, partition_for_key(key or b"", 2), at, key, value, None)
                for key, value in records
            ]
        )

    def run(self) -> SnapshotRecord:
        """Run batches over what was written; return when the copy shows the last one."""
        self.query.run()
        assert self.query.planner.snapshots is not None
        record = self.query.planner.snapshots.last
        assert record is not None
        await_that(
            lambda: (
                self.instance.is_ready()
                and set(self.instance.status().shards.values()) == {record.snapshot}
            ),
            f"snapshot {record.snapshot}",
            found=self.instance.status,
        )
        return record

    def token(self) -> str:
        """Return the token of the newest snapshot."""
        record = self.instance.newest_record()
        assert record is not None
        return str(token_of(record))

    def use(
        self, ask: Callable[[httpx.AsyncClient], Awaitable[T]], app: QueryApp | None = None
    ) -> T:
        """Return what a function of a client returns."""

        async def run() -> T:
            transport = httpx.ASGITransport(app or self.app)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost"
            ) as client:
                return await ask(client)

        return asyncio.run(run())

    def get(
        self, path: str, params: Any = None, *, app: QueryApp | None = None, **request: Any
    ) -> httpx.Response:
        """Return the answer to a GET request."""
        return self.use(lambda client: client.get(path, params=params, **request), app)

    def post(self, path: str, body: Any = None, **request: Any) -> httpx.Response:
        """Return the answer to a POST request."""
        content = {} if "content" in request else {"json": body}
        return self.use(lambda client: client.post(path, **content, **request))

    def events(self, path: str, count: int, headers: Iterable[tuple[str, str]] = ()) -> list[str]:
        """Return the first events of a stream."""
        return asyncio.run(self._events(path, count, headers))

    async def _events(self, path: str, count: int, headers: Iterable[tuple[str, str]]) -> list[str]:
        found: list[str] = []
        enough = asyncio.Event()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                assert message["status"] == 200
            text = message.get("body", b"").decode()
            found.extend(part for part in text.split("\n\n") if part)
            if len(found) >= count:
                enough.set()

        async def receive() -> Any:
            await asyncio.Event().wait()

        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [
                (name.lower().encode(), value.encode())
                for name, value in (("host", "localhost"), *headers)
            ],
        }
        answering = asyncio.ensure_future(self.app(scope, receive, send))
        waiting = asyncio.ensure_future(enough.wait())
        await asyncio.wait({answering, waiting}, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        answering.cancel()
        await asyncio.gather(answering, waiting, return_exceptions=True)
        return found[:count]

    def close(self) -> None:
        """Stop the instance."""
        self.instance.close()
        self.query.log.close()
        self.log.close()
