"""State stores of every kind, read and written through one vocabulary.

An entry is a dict of ``key``, ``value`` and what the kind of store adds: ``ts``, ``start``,
``end``, ``valid_to``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from headrace import StoreBuilder, Stores, ValueAndTimestamp, VersionedRecord, Window, Windowed
from headrace_conformance.serdes import serde
from headrace_conformance.values import json_of

Entry: TypeAlias = dict[str, Any]

_WINDOW_KINDS = ("window", "timestamped_window")
_TIMESTAMPED_KINDS = ("timestamped_key_value", "timestamped_window")


@dataclass(frozen=True)
class StoreKind:
    """The definition of a store in a scenario."""

    kind: str
    key: str
    value: str


def kind_of(definition: Mapping[str, Any]) -> StoreKind:
    """Return what the ``stores`` entry of a scenario says."""
    kind = "key_value" if definition["type"] == "lru" else definition["type"]
    return StoreKind(kind, definition.get("key", "string"), definition.get("value", "string"))


def store_builder(definition: Mapping[str, Any], *, logging: bool = True) -> StoreBuilder[Any]:
    """Return the builder of a store as the ``stores`` entry of a scenario describes it."""
    kind = kind_of(definition)
    name, key, value = definition["name"], serde(kind.key), serde(kind.value)
    logging = definition.get("logging", logging)
    if kind.kind == "versioned":
        history = definition["history_retention"]
        return Stores.versioned_key_value(
            name, key, value, history_retention=history, logging=logging
        )
    if definition["type"] == "lru":
        return Stores.lru_map(name, key, value, capacity=definition["capacity"], logging=logging)
    options: dict[str, Any] = {
        "persistent": not definition.get("in_memory", False),
        "caching": definition.get("caching", False),
        "logging": logging,
    }
    if kind.kind == "session":
        return Stores.session(name, key, value, retention=definition["retention"], **options)
    if kind.kind in _WINDOW_KINDS:
        make = Stores.window if kind.kind == "window" else Stores.timestamped_window
        return make(
            name,
            key,
            value,
            retention=definition["retention"],
            size=definition["size"],
            retain_duplicates=definition.get("retain_duplicates", False),
            **options,
        )
    make_map = Stores.key_value if kind.kind == "key_value" else Stores.timestamped_key_value
    return make_map(name, key, value, **options)


def read(store: Any, kind: str, key: Any, where: Mapping[str, Any]) -> Any:
    """Return the plain value of a key (of a window, of a session), or None."""
    if kind in _WINDOW_KINDS:
        return plain(store.fetch(key, where["start"]))
    if kind == "session":
        return store.fetch_session(key, where["start"], where["end"])
    return plain(store.get(key))


def write(store: Any, kind: str, key: Any, value: Any, where: Mapping[str, Any]) -> Any:
    """Put a value; a versioned store answers until when it is valid."""
    if kind in _TIMESTAMPED_KINDS and value is not None:
        value = ValueAndTimestamp(value, where["ts"])
    if kind in _WINDOW_KINDS:
        return store.put(key, value, where["start"])
    if kind == "session":
        return store.put(Windowed(key, Window(where["start"], where["end"])), value)
    if kind == "versioned":
        return store.put(key, value, where["ts"])
    return store.put(key, value)


def write_if_absent(store: Any, kind: str, key: Any, value: Any, where: Mapping[str, Any]) -> Any:
    """Put a value where there is none; answer the value that was there."""
    if kind in _TIMESTAMPED_KINDS and value is not None:
        value = ValueAndTimestamp(value, where["ts"])
    return plain(store.put_if_absent(key, value))


def delete(store: Any, kind: str, key: Any, where: Mapping[str, Any]) -> Any:
    """Delete an entry; answer the value that was there, where the store tells."""
    if kind in _WINDOW_KINDS:
        return store.put(key, None, where["start"])
    if kind == "session":
        return store.remove(Windowed(key, Window(where["start"], where["end"])))
    if kind == "versioned":
        return plain(store.delete(key, where["ts"]))
    return plain(store.delete(key))


def plain(value: Any) -> Any:
    """Return the value without the timestamp that its store keeps with it."""
    return value.value if isinstance(value, (ValueAndTimestamp, VersionedRecord)) else value


def rows(store: Any, kind: str, query: Mapping[str, Any]) -> list[Entry]:
    """Return the entries that a query finds, in the store's order; keys are values, not JSON."""
    method, key = query["method"], query.get("key")
    start, end = query.get("from"), query.get("to")
    if kind in _WINDOW_KINDS:
        return _window_rows(store, method, key, start, end)
    if kind == "session":
        return _session_rows(store, method, key, start, end)
    if kind == "versioned":
        record = store.get(key) if method == "get" else store.get(key, as_of=start)
        return _entries([(key, record)])
    if method == "get":
        return _entries([(key, store.get(key))])
    if method == "prefix":
        return _entries(store.prefix_scan(key))
    if method in ("range", "reverse_range"):
        return _entries(getattr(store, method)(start, end))
    return _entries(getattr(store, method)())


def _window_rows(store: Any, method: str, key: Any, start: Any, end: Any) -> list[Entry]:
    if method == "get":
        found = store.fetch(key, start)
        return [] if found is None else [{"key": key, "start": start, **_parts(found)}]
    if method in ("fetch", "backward_fetch"):
        pairs = getattr(store, method)(key, start, end)
        return [{"key": key, "start": time, **_parts(value)} for time, value in pairs]
    if method in ("fetch_all", "backward_fetch_all"):
        return _windowed_entries(getattr(store, method)(start, end))
    return _windowed_entries(getattr(store, method)())


def _session_rows(store: Any, method: str, key: Any, start: Any, end: Any) -> list[Entry]:
    if method == "get":
        found = store.fetch_session(key, start, end)
        return [] if found is None else [{"key": key, "start": start, "end": end, "value": found}]
    if method == "all":
        return _windowed_entries(store.all())
    if method in ("fetch", "backward_fetch"):
        return _windowed_entries(getattr(store, method)(key))
    return _windowed_entries(getattr(store, method)(key, start, end))


def contents(store: Any, kind: str, keys: Iterable[Any]) -> list[Entry]:
    """Return every entry of a store; of a versioned one the latest of each of ``keys``."""
    if kind == "versioned":
        return _entries((key, store.get(key)) for key in keys)
    if kind == "session" or kind in _WINDOW_KINDS:
        return _windowed_entries(store.all())
    return _entries(store.all())


def shown(entry: Entry) -> Entry:
    """Return an entry as JSON."""
    return {name: json_of(value) for name, value in entry.items()}


def _entries(pairs: Iterable[tuple[Any, Any]]) -> list[Entry]:
    return [{"key": key, **_parts(value)} for key, value in pairs if value is not None]


def _windowed_entries(pairs: Iterable[tuple[Windowed[Any], Any]]) -> list[Entry]:
    return [
        {"key": windowed.key, "start": windowed.window.start, "end": windowed.window.end}
        | _parts(value)
        for windowed, value in pairs
    ]


def _parts(value: Any) -> Entry:
    if isinstance(value, ValueAndTimestamp):
        return {"value": value.value, "ts": value.timestamp}
    if isinstance(value, VersionedRecord):
        return {"value": value.value, "ts": value.timestamp, "valid_to": value.valid_to}
    return {"value": value}
