"""Describes stores: StoreBuilder, and the Stores factory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from headrace.durations import Duration, duration_ms
from headrace.errors import TopologyError
from headrace.records import K, V, ValueAndTimestamp
from headrace.serdes.base import SerdeLike
from headrace.serdes.deduce import serde_for
from headrace.serdes.slots import Fill, SerdeSlot
from headrace.state.names import checked_name
from headrace.state.store_types.base import StoreKind
from headrace.state.store_types.lookup import type_of
from headrace.state.stores import KeyValueStore, SessionStore, VersionedKeyValueStore, WindowStore

S = TypeVar("S")


@dataclass(frozen=True, kw_only=True)
class StoreBuilder(Generic[S]):
    """Describes a store; each task gets its own. Made by `Stores`, or by the DSL."""

    name: str
    kind: StoreKind
    key: SerdeSlot
    value: SerdeSlot
    other_value: SerdeSlot | None = None
    """The values of the right side, in a store that both sides of a join share."""
    persistent: bool | None = True
    """None: whatever `default.dsl.store` says."""
    caching: bool = False
    logging: bool | Mapping[str, str] = True
    """Whether changes may go to a changelog topic; a mapping overrides that topic's settings."""
    ttl_ms: int | None = None
    retention_ms: int = 0
    """How long a window, a session or a version stays readable."""
    size_ms: int = 0
    """The size of the windows."""
    retain_duplicates: bool = False
    time_first: bool = False
    """Whether entries are ordered by time, then key; emit-on-close reads them so."""
    capacity: int = 0
    changelog: str | None = None
    """The topic that serves as changelog, where it is not the store's own."""
    logged_for_queries: bool = field(default=False, compare=False)
    """Whether changes go to a changelog of its own for queries, although Kafka needs none."""
    generated_name: bool = field(default=False, compare=False)
    """Whether the name came from the counter of the DSL."""
    joins: bool = field(default=False, compare=False)
    """Whether it holds one side of a join of streams, which no query may see."""

    @property
    def queryable(self) -> bool:
        """Return whether its changes go to a changelog topic, for queries."""
        is_logged = self.logging is not False or self.logged_for_queries
        is_named = not (self.generated_name or self.joins)
        return is_named and is_logged and type_of(self).has_changelog

    def resolved(self, fill: Fill, *, persistent: bool) -> StoreBuilder[S]:
        """Return this store with the application's defaults filled in."""
        return replace(
            self,
            key=fill(self.key),
            value=fill(self.value),
            persistent=persistent if self.persistent is None else self.persistent,
        )


def _builder(
    kind: StoreKind, name: str, key: SerdeLike[Any], value: SerdeLike[Any], **facts: Any
) -> StoreBuilder[Any]:
    return StoreBuilder(
        name=checked_name(name, what="store"),
        kind=kind,
        key=SerdeSlot("key", serde_for(key)),
        value=SerdeSlot("value", serde_for(value)),
        **facts,
    )


def _positive(value: Duration, *, what: str, name: str) -> int:
    length = duration_ms(value, what=what)
    if length < 0:
        msg = f"`{what}` of store {name!r} is negative ({length} ms). Use zero or more."
        raise TopologyError(msg)
    return length


class Stores:
    """Makes the stores that processors use.

    Keys and values are given as a type or a serde. ``persistent`` stores live on disk where the
    runtime has one; ``caching`` holds back repeated writes until commit; ``logging=False`` keeps
    the store out of the changelog, and a mapping sets options of the changelog topic.

    With ``ttl`` an entry is gone that long after it was last put, by the task's stream time: no
    read finds it any more, and the next write removes it. Such a store is not cached.
    """

    @staticmethod
    def key_value(
        name: str,
        key: SerdeLike[K],
        value: SerdeLike[V],
        *,
        persistent: bool = True,
        caching: bool = False,
        logging: bool | Mapping[str, str] = True,
        ttl: Duration | None = None,
    ) -> StoreBuilder[KeyValueStore[K, V]]:
        """Return a store of one value per key."""
        facts = {"persistent": persistent, "caching": caching, "ttl_ms": _ttl(ttl, name)}
        return _builder("key_value", name, key, value, logging=logging, **facts)

    @staticmethod
    def timestamped_key_value(
        name: str,
        key: SerdeLike[K],
        value: SerdeLike[V],
        *,
        persistent: bool = True,
        caching: bool = False,
        logging: bool | Mapping[str, str] = True,
        ttl: Duration | None = None,
    ) -> StoreBuilder[KeyValueStore[K, ValueAndTimestamp[V]]]:
        """Return a store of one value and its timestamp per key."""
        facts = {"persistent": persistent, "caching": caching, "ttl_ms": _ttl(ttl, name)}
        return _builder("timestamped_key_value", name, key, value, logging=logging, **facts)

    @staticmethod
    def window(
        name: str,
        key: SerdeLike[K],
        value: SerdeLike[V],
        *,
        retention: Duration,
        size: Duration,
        retain_duplicates: bool = False,
        persistent: bool = True,
        caching: bool = False,
        logging: bool | Mapping[str, str] = True,
    ) -> StoreBuilder[WindowStore[K, V]]:
        """Return a store of one value per key and window start.

        Args:
            name: Name of the store.
            key: Type or serde of the keys.
            value: Type or serde of the values.
            retention: How long a window stays readable, counted from the newest window start.
            size: Length of the windows.
            retain_duplicates: Keep every value put for a key and start, not only the last.
            persistent: On disk where the runtime has one.
            caching: Hold back repeated writes until commit.
            logging: Write changes to a changelog topic.
        """
        facts = {"persistent": persistent, "caching": caching, **_lengths(name, retention, size)}
        facts["retain_duplicates"] = retain_duplicates
        return _builder("window", name, key, value, logging=logging, **facts)

    @staticmethod
    def timestamped_window(
        name: str,
        key: SerdeLike[K],
        value: SerdeLike[V],
        *,
        retention: Duration,
        size: Duration,
        retain_duplicates: bool = False,
        persistent: bool = True,
        caching: bool = False,
        logging: bool | Mapping[str, str] = True,
    ) -> StoreBuilder[WindowStore[K, ValueAndTimestamp[V]]]:
        """Return a store of one value and its timestamp per key and window start."""
        facts = {"persistent": persistent, "caching": caching, **_lengths(name, retention, size)}
        facts["retain_duplicates"] = retain_duplicates
        return _builder("timestamped_window", name, key, value, logging=logging, **facts)

    @staticmethod
    def session(
        name: str,
        key: SerdeLike[K],
        value: SerdeLike[V],
        *,
        retention: Duration,
        persistent: bool = True,
        caching: bool = False,
        logging: bool | Mapping[str, str] = True,
    ) -> StoreBuilder[SessionStore[K, V]]:
        """Return a store of one value per key and session."""
        retention_ms = _positive(retention, what="retention", name=name)
        facts = {"persistent": persistent, "caching": caching, "retention_ms": retention_ms}
        return _builder("session", name, key, value, logging=logging, **facts)

    @staticmethod
    def versioned_key_value(
        name: str,
        key: SerdeLike[K],
        value: SerdeLike[V],
        *,
        history_retention: Duration,
        logging: bool | Mapping[str, str] = True,
    ) -> StoreBuilder[VersionedKeyValueStore[K, V]]:
        """Return a store that remembers what the value of a key was at an earlier time."""
        retention_ms = _positive(history_retention, what="history_retention", name=name)
        return _builder(
            "versioned_key_value", name, key, value, logging=logging, retention_ms=retention_ms
        )

    @staticmethod
    def lru_map(
        name: str,
        key: SerdeLike[K],
        value: SerdeLike[V],
        *,
        capacity: int,
        logging: bool | Mapping[str, str] = True,
    ) -> StoreBuilder[KeyValueStore[K, V]]:
        """Return a store that keeps the ``capacity`` keys used last and forgets the others."""
        if capacity < 0:
            msg = f"`capacity` of store {name!r} is {capacity}. Use zero or more."
            raise TopologyError(msg)
        return _builder(
            "lru_map", name, key, value, logging=logging, persistent=False, capacity=capacity
        )


def _lengths(name: str, retention: Duration, size: Duration) -> dict[str, int]:
    retention_ms = _positive(retention, what="retention", name=name)
    size_ms = _positive(size, what="size", name=name)
    if retention_ms < size_ms:
        msg = (
            f"`retention` of store {name!r} ({retention_ms} ms) is shorter than its windows "
            f"({size_ms} ms). Make it at least as long."
        )
        raise TopologyError(msg)
    return {"retention_ms": retention_ms, "size_ms": size_ms}


def _ttl(ttl: Duration | None, name: str) -> int | None:
    if ttl is None:
        return None
    length = duration_ms(ttl, what="ttl")
    if length < 1:
        msg = f"`ttl` of store {name!r} is {length} ms. Use one millisecond or more."
        raise TopologyError(msg)
    return length
