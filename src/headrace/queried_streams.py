"""The queries of `KafkaStreams`: what this instance answers in Python."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

from headrace.errors import StreamsError
from headrace.served_streams import ServedStreams, extra_needed

if TYPE_CHECKING:
    from headrace.queries.instance import Instance
    from headrace.queries.local.instance_queries import InstanceQueries
    from headrace.queries.local.metadata import KeyQueryMetadata, StreamsMetadata
    from headrace.queries.local.state_queries import StateQueryRequest, StateQueryResult
    from headrace.queries.local.store_types import QueryableStoreType
    from headrace.queries.own_copy import OwnCopy
    from headrace.spark.dataframes import DataFrame

R = TypeVar("R")
S = TypeVar("S")

_READY_SECONDS = 30.0
"""How long the first query waits for a copy that it has started."""


class LagInfo(NamedTuple):
    """The lag of one partition of a store."""

    current_offset_position: int
    end_offset_position: int
    offset_lag: int


class QueriedStreams(ServedStreams, ABC):
    """The queries of an application. Answers are of the newest snapshot that this instance has.

    The first query starts a copy of all stores in this process, if none is kept for others.
    """

    def __init__(self) -> None:
        super().__init__()
        self._copy: OwnCopy | None = None
        self._opening = threading.Lock()

    @abstractmethod
    def _check_running(self, what: str) -> None:
        """Raise a `StreamsError` if the application was not started, or has ended."""

    @overload
    def store(
        self,
        name: str,
        store_type: None = None,
        *,
        partition: int | None = None,
        stale: bool = False,
    ) -> Any: ...
    @overload
    def store(
        self,
        name: str,
        store_type: QueryableStoreType[S],
        *,
        partition: int | None = None,
        stale: bool = False,
    ) -> S: ...
    def store(
        self,
        name: str,
        store_type: QueryableStoreType[Any] | None = None,
        *,
        partition: int | None = None,
        stale: bool = False,
    ) -> Any:
        """Return a store of what this instance holds, to read.

        Each read is of the newest snapshot. Scans return one partition after the other.

        Args:
            name: The store.
            store_type: Its type, from `QueryableStoreTypes`; by default its own, with plain values.
            partition: Read this partition only.
            stale: Read standbys too, and copies that are behind.

        Raises:
            QueryProblemError: There is no such store, it is of another kind, or the instance is
                not ready. Reads of the store raise it too.
            StreamsError: The application is not running.
        """
        return self._local_queries("`store`").store(
            name, store_type, partition=partition, stale=stale
        )

    def query(self, request: StateQueryRequest[R]) -> StateQueryResult[R]:
        """Return the answers of the partitions of a store that this instance holds.

        Args:
            request: The query, the store and its partitions, and what the answer must reflect.

        Raises:
            QueryProblemError: There is no such store, or the instance is not ready.
            StreamsError: The application is not running.
        """
        return self._local_queries("`query`").query(request)

    def all_metadata(self) -> list[StreamsMetadata]:
        """Return all known instances of the application, and which stores they have.

        Raises:
            StreamsError: The application is not running.
        """
        return self._local_queries("`all_metadata`").all_metadata()

    def metadata_for_store(self, name: str) -> list[StreamsMetadata]:
        """Return the instances that have partitions of a store.

        Raises:
            QueryProblemError: There is no such store.
            StreamsError: The application is not running.
        """
        return self._local_queries("`metadata_for_store`").metadata_for_store(name)

    def query_metadata_for_key(
        self,
        store: str,
        key: Any,
        partitioner: Callable[[str, Any, None, int], int | None] | None = None,
    ) -> KeyQueryMetadata:
        """Return the instances that have a key.

        Args:
            store: The store.
            key: The key.
            partitioner: Chooses the partition, where the hash of the key does not:
                ``f(store, key, None, partitions)``.

        Raises:
            QueryProblemError: There is no such store.
            StreamsError: The application is not running.
        """
        queries = self._local_queries("`query_metadata_for_key`")
        return queries.query_metadata_for_key(store, key, partitioner)

    def all_local_store_partition_lags(self) -> dict[str, dict[int, LagInfo]]:
        """Return how far the copies of this instance are behind, by store and partition.

        Raises:
            StreamsError: The application is not running.
        """
        ends = self._local_queries("`all_local_store_partition_lags`").store_partition_ends()
        return {
            store: {
                number: LagInfo(current, end, max(0, end - current))
                for number, (current, end) in partitions.items()
            }
            for store, partitions in ends.items()
        }

    def to_dataframe(self, store: str) -> DataFrame:
        """Return all rows of a store as a Spark DataFrame, as of one snapshot.

        The rows are those of the whole application: other instances are asked for the partitions
        that this one does not have. The columns are the key, a column for each field of the values
        (else ``value``), and the times that the kind of store has.

        Raises:
            QueryProblemError: There is no such store, or no snapshot that all its partitions have.
            StreamsError: The application is not running.
        """
        instance = self._instance_for("`to_dataframe`")
        from headrace.queries.coordination.coordinator import read_whole_store
        from headrace.queries.service import transport_of

        found, rows = read_whole_store(instance, transport_of(self.config), store)
        # The extra "spark" has what they need.
        from headrace.queries.tables.arrow_tables import arrow_table
        from headrace.spark.dataframes import dataframe_of

        return dataframe_of(arrow_table(found, rows))

    def _local_queries(self, what: str) -> InstanceQueries:
        """Return the queries of this instance, which starts if it has not yet."""
        instance = self._instance_for(what)
        from headrace.queries.local.instance_queries import InstanceQueries

        return InstanceQueries(instance.catalog, instance)

    def _instance_for(self, what: str) -> Instance:
        """Return the instance of this process, which starts if it has not yet."""
        self._check_running(what)
        if self._service is not None:
            return self._service.wait_once(_READY_SECONDS)
        copy = self._opened_copy()
        copy.wait_once(_READY_SECONDS)
        return copy.instance

    def _private_instance(self) -> Instance:
        from headrace.queries.problems import ProblemCode, QueryProblemError

        try:
            self._check_running("the first query")
        except StreamsError as error:
            raise QueryProblemError(
                ProblemCode.STORE_NOT_READY, str(error), retry_after_ms=1_000
            ) from error
        return self._opened_copy().instance

    def _opened_copy(self) -> OwnCopy:
        """Return the copy of this process, which starts if it has not yet."""
        with extra_needed("server", "A query"):
            from headrace.queries.catalog import catalog_of
            from headrace.queries.own_copy import OwnCopy
            from headrace.runtime.plan import plan_topology

        with self._opening:
            if self._copy is None:
                catalog = catalog_of(plan_topology(self.topology, self.config))
                self._copy = OwnCopy(catalog, self.config)
            return self._copy

    def _close_copy(self) -> None:
        """Close the copy of this process, if there is one."""
        with self._opening:
            copy, self._copy = self._copy, None
        if copy is not None:
            copy.close()
