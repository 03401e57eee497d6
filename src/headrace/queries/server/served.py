"""The parts of an instance that the routes use."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, cast

from fastapi import Request

from headrace.brokers.sessions import Broker
from headrace.config import StreamsConfig
from headrace.queries.catalog import Catalog, QueryableStore
from headrace.queries.coordination.coordinator import Coordinator
from headrace.queries.coordination.local_reads import PeerTransport
from headrace.queries.coordination.queried_instance import QueriedInstance
from headrace.queries.instance import Instance
from headrace.queries.problems import QueryProblemError
from headrace.queries.server.broker_work import BrokerWork
from headrace.queries.server.metrics import ServerMetrics
from headrace.queries.server.statements import Statements
from headrace.queries.server.store_encodings import Encoding, StoreEncoding, StoreEncodings
from headrace.queries.sql.engine import SqlEngine
from headrace.runtime.snapshots import SnapshotRecord
from headrace.topology.topology import Topology


class QueriedApplication(Protocol):
    """The argument of `create_app`: a service of queries, or an application that has one."""

    @property
    def topology(self) -> Topology:
        """The program."""
        ...

    @property
    def config(self) -> StreamsConfig:
        """The settings of the application."""
        ...

    @property
    def instance(self) -> Instance:
        """The instance of this process."""
        ...


class Served:
    """The state that the routes of one application share.

    Args:
        application: The application.
        open_broker: Opens its log.
        transport: Asks other instances, in the event loop of this server.
        is_admin: Whether routes that write are allowed.
    """

    def __init__(
        self,
        application: QueriedApplication,
        open_broker: Callable[[], Broker],
        transport: PeerTransport,
        *,
        is_admin: bool,
    ) -> None:
        self.application = application
        self.open_broker = open_broker
        self.is_admin = is_admin
        self._transport = transport
        self._coordinator: tuple[Instance, Coordinator] | None = None
        self.encodings = StoreEncodings()
        self.metrics = ServerMetrics()
        self.statements = Statements()
        self.broker_work = BrokerWork()
        self._sql: SqlEngine | None = None
        self.counts: dict[str, tuple[SnapshotRecord, int]] = {}
        """By store the snapshot of which a route counted the entries last, and their number."""

    @property
    def coordinator(self) -> Coordinator:
        """Answers for the whole application. Each server has its own, for its event loop."""
        instance = self.instance
        kept = self._coordinator
        if kept is None or kept[0] is not instance:
            made = Coordinator(self.queried, self._transport)
            kept = self._coordinator = instance, made
        return kept[1]

    @property
    def instance(self) -> Instance:
        """The instance of this process."""
        return self.application.instance

    @property
    def queried(self) -> QueriedInstance:
        """The instance, with its catalog."""
        return cast("QueriedInstance", self.instance)

    @property
    def catalog(self) -> Catalog:
        """The stores."""
        catalog = self.instance.catalog
        assert isinstance(catalog, Catalog), "an instance that is served has a whole catalog"
        return catalog

    def store(self, name: str) -> QueryableStore:
        """Return a store, or raise `QueryProblemError`."""
        return self.catalog.store(name)

    def has_store(self, name: str) -> bool:
        """Return whether there is a store of this name; False if nothing is known yet."""
        try:
            return name in self.catalog.stores
        except QueryProblemError:
            return False

    def encoding(self, name: str, encoding: Encoding) -> StoreEncoding:
        """Return how keys and values of a store travel."""
        return self.encodings.of(self.store(name), encoding)

    def is_own_name(self, host: str) -> bool:
        """Return whether the instance has this name, without its port."""
        name = self.instance.name
        return name is not None and name.rpartition(":")[0] == host

    def sql(self) -> SqlEngine:
        """Return what answers SQL."""
        if self._sql is None:
            self._sql = SqlEngine(self.catalog.stores.values())
        return self._sql

    def age_ms(self, record: SnapshotRecord) -> int:
        """Return for how long a snapshot may be out of date."""
        at = record.at
        newest = self.instance.newest_record()
        if newest is not None and newest.snapshot == record.snapshot:
            at = max(at, newest.at)
        return max(0, now_ms() - at)


async def served_of(request: Request) -> Served:
    """Return the parts that the routes of an application share.

    FastAPI calls a plain function in another thread, which takes longer than the function.
    """
    served: Served = request.app.state.headrace
    return served


def now_ms() -> int:
    """Return the time in milliseconds."""
    return time.time_ns() // 1_000_000
