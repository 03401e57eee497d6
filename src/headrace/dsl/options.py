"""The options of the DSL that are values: Materialized, Suppressed, EmitStrategy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from headrace.durations import Duration, duration_ms
from headrace.errors import TopologyError
from headrace.serdes.base import SerdeLike
from headrace.state.names import checked_name

StoreType: TypeAlias = Literal["rocksdb", "in_memory"]


@dataclass(frozen=True, init=False)
class Materialized:
    """How a table is stored. Only a name makes it queryable."""

    name: str | None
    key: SerdeLike[Any] | None
    value: SerdeLike[Any] | None
    store_type: StoreType | None
    """Where the store lives; None: as `default.dsl.store` says."""
    caching: bool
    """Whether repeated updates of a key are held back until commit."""
    logging: bool | Mapping[str, str]
    """Whether changes go to a changelog topic; a mapping overrides that topic's settings."""
    retention_ms: int | None
    """How long windows and sessions stay readable; None: as long as they take records."""
    history_retention_ms: int | None
    """How far back a versioned table remembers; None: it is not versioned."""

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
            msg = "A versioned table cannot be kept in memory only. Leave out `store_type`."
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
"""What `materialized=` takes: the name of the store, or all of its options."""


def materialized_of(stored: Stored) -> Materialized:
    """Return the options that ``stored`` stands for."""
    if isinstance(stored, Materialized):
        return stored
    if stored is None or isinstance(stored, str):
        return Materialized(stored)
    msg = f"`materialized` is {stored!r}. Use the name of the store, or a Materialized."
    raise TopologyError(msg)


@dataclass(frozen=True)
class EmitStrategy:
    """When a windowed aggregation emits. Made by `on_window_update` or `on_window_close`."""

    on_close: bool

    @classmethod
    def on_window_update(cls) -> EmitStrategy:
        """Emit each update of a window. The default."""
        return cls(on_close=False)

    @classmethod
    def on_window_close(cls) -> EmitStrategy:
        """Emit the result of a window once, when it takes no more records."""
        return cls(on_close=True)


@dataclass(frozen=True, kw_only=True)
class Suppressed:
    """When a table may emit. Made by `until_window_closes` or `until_time_limit`."""

    until_close: bool
    limit_ms: int = 0
    max_records: int | None = None
    max_bytes: int | None = None
    emits_early: bool = False
    """Whether a full buffer emits its oldest entries; else it stops the application."""
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
        """Emit the result of a window once, when it takes no more records.

        Args:
            max_records: Stop the application when more entries than this wait.
            max_bytes: Stop the application when they take more bytes than this.
            logging: Whether the buffer has a changelog topic; a mapping sets its options.
            name: Name of the step.
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
            max_records: How many entries may wait.
            max_bytes: How many bytes they may take.
            when_full: Emit the oldest entries early, or stop the application.
            logging: Whether the buffer has a changelog topic; a mapping sets its options.
            name: Name of the step.
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
