"""The options of the DSL: Materialized, Suppressed, EmitStrategy, and keywords of overloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypedDict

from headrace.durations import Duration, duration_ms
from headrace.errors import TopologyError
from headrace.records import V
from headrace.serdes.base import SerdeLike
from headrace.state.names import checked_name
from headrace.topology.nodes import Partitioner

StoreType: TypeAlias = Literal["rocksdb", "in_memory"]


@dataclass(frozen=True, init=False)
class Materialized:
    """The store of a table. Only a store with a name is queryable.

    Example:
        >>> from headrace import Materialized, StreamsBuilder
        >>> from headrace.testing import TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> orders = builder.stream("orders", key=str, value=int).group_by_key()
        >>> totals = Materialized("totals", value=int, store_type="in_memory")
        >>> table = orders.aggregate(lambda: 0, lambda _, n, total: total + n, materialized=totals)
        >>> driver = TopologyTestDriver(builder.build())
        >>> driver.create_input_topic("orders").pipe_key_value_list([("Graz", 27), ("Graz", 3)])
        >>> driver.get_key_value_store("totals").get("Graz")
        30
    """

    name: str | None
    key: SerdeLike[Any] | None
    value: SerdeLike[Any] | None
    store_type: StoreType | None
    """Where the store is; None: as `default.dsl.store` specifies."""
    caching: bool
    """Whether a record cache holds repeated updates of a key back until the commit."""
    logging: bool | Mapping[str, str]
    """Whether changes go to a changelog topic; a mapping overrides that topic's settings."""
    retention_ms: int | None
    """How long windows and sessions stay readable; None: as long as they accept records."""
    history_retention_ms: int | None
    """How long a versioned table keeps old values; None: the table is not versioned."""

    def __init__(
        self,
        name: str | None = None,
        *,
        key: SerdeLike[Any] | None = None,
        value: SerdeLike[Any] | None = None,
        store_type: StoreType | None = None,
        caching: bool = True,
        logging: bool | Mapping[str, str] = True,
        retention: Duration | None = None,
        history_retention: Duration | None = None,
    ) -> None:
        if store_type not in (None, "rocksdb", "in_memory"):
            msg = f'`store_type` is {store_type!r}. Use "rocksdb" or "in_memory".'
            raise TopologyError(msg)
        if history_retention is not None and store_type == "in_memory":
            msg = "A versioned table cannot be in memory only. Leave out `store_type`."
            raise TopologyError(msg)
        set_field = object.__setattr__
        set_field(self, "name", None if name is None else checked_name(name, what="store"))
        set_field(self, "key", key)
        set_field(self, "value", value)
        set_field(self, "store_type", store_type)
        set_field(self, "caching", caching)
        set_field(self, "logging", logging)
        set_field(self, "retention_ms", _length(retention, "retention"))
        set_field(self, "history_retention_ms", _length(history_retention, "history_retention"))


Stored: TypeAlias = str | Materialized | None
"""The value of `materialized=`: the name of the store, or all of its options."""


def materialized_of(stored: Stored) -> Materialized:
    """Return the options in ``stored``, which may be only a name, or None."""
    if isinstance(stored, Materialized):
        return stored
    if stored is None or isinstance(stored, str):
        return Materialized(stored)
    msg = f"`materialized` is {stored!r}. Use the name of the store, or a Materialized."
    raise TopologyError(msg)


# Overloads that differ in their functions share these keywords; the method itself spells them out,
# with their defaults.


class ValueKeywords(TypedDict, Generic[V], total=False):
    """The keywords of a step of a stream that makes new values."""

    value: SerdeLike[V] | None
    name: str | None


class StreamJoinKeywords(ValueKeywords[V], total=False):
    """The keywords of a join of two streams."""

    store_name: str | None
    store_type: StoreType | None
    logging: bool | Mapping[str, str]


class StreamTableJoinKeywords(ValueKeywords[V], total=False):
    """The keywords of a join of a stream and a table."""

    grace: Duration | None


class TableKeywords(ValueKeywords[V], total=False):
    """The keywords of an aggregation, and of a step of a table that makes new values."""

    materialized: Stored


class ForeignKeyJoinKeywords(TableKeywords[V], total=False):
    """The keywords of a join of two tables by a foreign key."""

    partitioner: Partitioner | None
    other_partitioner: Partitioner | None


@dataclass(frozen=True)
class EmitStrategy:
    """The time at which a windowed aggregation emits: on window update or on window close."""

    on_close: bool

    @classmethod
    def on_window_update(cls) -> EmitStrategy:
        """Emit each update of a window. The default.

        Example:
            >>> from headrace import EmitStrategy, StreamsBuilder, TimeWindows
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> windows = orders.group_by_key().windowed_by(TimeWindows("10s"))
            >>> updates = windows.emit_strategy(EmitStrategy.on_window_update())
            >>> updates.count().to_stream().foreach(print)
            >>> topic = TopologyTestDriver(builder.build()).create_input_topic("orders")
            >>> topic.pipe_key_value_list([("Graz", 27), ("Graz", 3)], start=0, advance="5s")
            [Graz@0/10000] 1
            [Graz@0/10000] 2
        """
        return cls(on_close=False)

    @classmethod
    def on_window_close(cls) -> EmitStrategy:
        """Emit the result of a window once, when it accepts no more records.

        Example:
            >>> from headrace import EmitStrategy, StreamsBuilder, TimeWindows
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> windows = orders.group_by_key().windowed_by(TimeWindows("10s"))
            >>> results = windows.emit_strategy(EmitStrategy.on_window_close())
            >>> results.count().to_stream().foreach(print)
            >>> topic = TopologyTestDriver(builder.build()).create_input_topic("orders")
            >>> topic.pipe_key_value_list([("Graz", 27), ("Graz", 3)], start=0, advance="5s")
            >>> topic.pipe_input("Linz", 9, timestamp=10_000)
            [Graz@0/10000] 2
        """
        return cls(on_close=True)


@dataclass(frozen=True, kw_only=True)
class Suppressed:
    """The time at which a table emits: `until_window_closes` or `until_time_limit`."""

    until_close: bool
    limit_ms: int = 0
    max_records: int | None = None
    max_bytes: int | None = None
    emits_early: bool = False
    """Whether a full buffer emits its oldest entries; otherwise it stops the application."""
    logging: bool | Mapping[str, str] = True
    name: str | None = None

    def __post_init__(self) -> None:
        for what in ("max_records", "max_bytes"):
            limit = getattr(self, what)
            if limit is not None and limit < 0:
                msg = f"`{what}` is {limit}. Use zero or more, or leave it out for no limit."
                raise TopologyError(msg)
        if self.name is not None:
            checked_name(self.name, what="step")

    @classmethod
    def until_window_closes(
        cls,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        logging: bool | Mapping[str, str] = True,
        name: str | None = None,
    ) -> Suppressed:
        """Emit the result of a window once, when it accepts no more records.

        Args:
            max_records: Stop the application if the buffer has more entries than this.
            max_bytes: Stop the application if the buffer has more bytes than this.
            logging: Whether the buffer has a changelog topic; a mapping sets its options.
            name: Name of the step.

        Example:
            >>> from headrace import StreamsBuilder, Suppressed, TimeWindows
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> windows = orders.group_by_key().windowed_by(TimeWindows("10s"))
            >>> results = windows.count().suppress(Suppressed.until_window_closes())
            >>> results.to_stream().foreach(print)
            >>> topic = TopologyTestDriver(builder.build()).create_input_topic("orders")
            >>> topic.pipe_key_value_list([("Graz", 27), ("Graz", 3)], start=0, advance="5s")
            >>> topic.pipe_input("Linz", 9, timestamp=10_000)
            [Graz@0/10000] 2
        """
        return cls(
            until_close=True,
            max_records=max_records,
            max_bytes=max_bytes,
            logging=logging,
            name=name,
        )

    @classmethod
    def until_time_limit(
        cls,
        limit: Duration,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        when_full: Literal["emit_early", "shut_down"] = "emit_early",
        logging: bool | Mapping[str, str] = True,
        name: str | None = None,
    ) -> Suppressed:
        """Emit the last update of a key at most once per ``limit`` of stream time.

        Args:
            limit: How long the first update of a key waits for later ones.
            max_records: How many entries the buffer may have.
            max_bytes: How many bytes the buffer may have.
            when_full: Emit the oldest entries early, or stop the application.
            logging: Whether the buffer has a changelog topic; a mapping sets its options.
            name: Name of the step.

        Example:
            >>> from headrace import StreamsBuilder, Suppressed
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> counts = builder.stream("orders", key=str, value=int).group_by_key().count()
            >>> counts.suppress(Suppressed.until_time_limit("10s")).to_stream().foreach(print)
            >>> topic = TopologyTestDriver(builder.build()).create_input_topic("orders")
            >>> topic.pipe_key_value_list([("Graz", 27), ("Graz", 3)], start=0, advance="5s")
            >>> topic.pipe_input("Linz", 9, timestamp=10_000)
            Graz 2
        """
        if when_full not in ("emit_early", "shut_down"):
            msg = f'`when_full` is {when_full!r}. Use "emit_early" or "shut_down".'
            raise TopologyError(msg)
        return cls(
            until_close=False,
            limit_ms=_length(limit, "limit") or 0,
            max_records=max_records,
            max_bytes=max_bytes,
            emits_early=when_full == "emit_early",
            logging=logging,
            name=name,
        )


def _length(value: Duration | None, what: str) -> int | None:
    if value is None:
        return None
    length = duration_ms(value, what=what)
    if length < 0:
        msg = f"`{what}` is negative ({length} ms). Use zero or more."
        raise TopologyError(msg)
    return length
