"""Interactive queries v2: what can be asked, and what an answer holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from headrace.errors import QueryError
from headrace.queries.local.positions import Position, PositionBound
from headrace.records import K, Timestamp, V, ValueAndTimestamp, VersionedRecord
from headrace.windows.window import Windowed

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Query(Generic[R_co]):
    """A question to one partition of a store. Its type is that of the result."""


@dataclass(frozen=True)
class KeyQuery(Query[V], Generic[K, V]):
    """The value of a key of a key-value store; a timestamp is left out."""

    key: K


@dataclass(frozen=True)
class TimestampedKeyQuery(Query[ValueAndTimestamp[V]], Generic[K, V]):
    """The value of a key and its timestamp, of a timestamped key-value store."""

    key: K


@dataclass(frozen=True)
class RangeQuery(Query[Iterator[tuple[K, V]]], Generic[K, V]):
    """The entries of a key-value store from one key to another, both included."""

    start: K | None = None
    end: K | None = None
    descending: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class TimestampedRangeQuery(Query[Iterator[tuple[K, ValueAndTimestamp[V]]]], Generic[K, V]):
    """The entries of a timestamped key-value store from one key to another, both included."""

    start: K | None = None
    end: K | None = None
    descending: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class WindowKeyQuery(Query[Iterator[tuple[int, V]]], Generic[K, V]):
    """The windows of a key that start between two times, both included.

    As in Kafka, values of a timestamped window store are `ValueAndTimestamp`.
    """

    key: K
    start: Timestamp
    end: Timestamp


@dataclass(frozen=True)
class WindowRangeQuery(Query[Iterator[tuple[Windowed[K], V]]], Generic[K, V]):
    """The windows of all keys that start between two times, or the sessions of one key.

    As in Kafka, values of a timestamped window store are `ValueAndTimestamp`.
    """

    start: Timestamp | None = field(default=None, kw_only=True)
    end: Timestamp | None = field(default=None, kw_only=True)
    key: K | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        has_times = self.start is not None and self.end is not None
        has_time = self.start is not None or self.end is not None
        if has_time != has_times or has_times == (self.key is not None):
            msg = (
                "A `WindowRangeQuery` has either `start` and `end`, for the windows of all keys, "
                "or `key`, for the sessions of one. Give one of the two."
            )
            raise QueryError(msg)


@dataclass(frozen=True)
class VersionedKeyQuery(Query[VersionedRecord[V]], Generic[K, V]):
    """The latest version of a key, or the one that was valid at a time."""

    key: K
    as_of: Timestamp | None = None


@dataclass(frozen=True)
class MultiVersionedKeyQuery(Query[Iterator[VersionedRecord[V]]], Generic[K, V]):
    """The versions of a key that were valid between two times, the newest first."""

    key: K
    start: Timestamp | None = None
    end: Timestamp | None = None
    ascending: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class StateQueryRequest(Generic[R]):
    """A query, and where to ask it."""

    store: str
    query: Query[R]
    partitions: frozenset[int] | set[int] | None = field(default=None, kw_only=True)
    """The partitions to ask; None: all that are here."""
    position_bound: PositionBound | None = field(default=None, kw_only=True)
    """The offsets that the answer must reflect at least."""
    require_active: bool = field(default=False, kw_only=True)
    """Whether only partitions answer for which this instance is the first to ask."""


class FailureReason(Enum):
    """The reason why a partition has no answer, as in Kafka."""

    UNKNOWN_QUERY_TYPE = "UNKNOWN_QUERY_TYPE"
    """The store does not answer such a query."""
    NOT_ACTIVE = "NOT_ACTIVE"
    """This instance is a standby for the partition."""
    NOT_UP_TO_BOUND = "NOT_UP_TO_BOUND"
    """The partition does not reflect the position bound yet."""
    NOT_PRESENT = "NOT_PRESENT"
    """This instance does not have the partition, or not yet."""
    DOES_NOT_EXIST = "DOES_NOT_EXIST"
    """The store has no such partition."""
    STORE_EXCEPTION = "STORE_EXCEPTION"
    """The store cannot answer: the message has the error."""


@dataclass(frozen=True)
class QueryResult(Generic[R]):
    """The answer of one partition."""

    found: R | None = None
    failure_reason: FailureReason | None = None
    """Why there is no answer; None: there is one."""
    failure_message: str = ""
    position: Position = field(default_factory=Position)
    """The offsets that the answer reflects."""

    @property
    def is_success(self) -> bool:
        """Return whether there is an answer, if only that there is nothing."""
        return self.failure_reason is None

    @property
    def result(self) -> R | None:
        """The result; None: there is nothing under the key.

        Raises:
            QueryError: There is no answer.
        """
        if self.failure_reason is not None:
            msg = f"There is no result: {self.failure_reason.value}. {self.failure_message}"
            raise QueryError(msg)
        return self.found


@dataclass(frozen=True)
class StateQueryResult(Generic[R]):
    """The answers of the partitions that were asked, all of one snapshot."""

    partition_results: Mapping[int, QueryResult[R]]
    global_result: QueryResult[R] | None = None
    """The answer of a global store, which has no partitions."""

    @property
    def only_partition_result(self) -> QueryResult[R] | None:
        """The one answer with a result; None: no partition has one.

        Raises:
            QueryError: Several have.
        """
        found = [
            each
            for each in self.partition_results.values()
            if each.is_success and each.found is not None
        ]
        if len(found) > 1:
            msg = (
                f"{len(found)} partitions have a result. "
                "Read them all from `partition_results`, or ask for one partition."
            )
            raise QueryError(msg)
        return found[0] if found else None

    @property
    def position(self) -> Position:
        """The offsets that all answers together reflect."""
        results = [*self.partition_results.values()]
        if self.global_result is not None:
            results.append(self.global_result)
        position = Position()
        for each in results:
            position = position.merge(each.position)
        return position
