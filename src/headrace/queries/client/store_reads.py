"""The read methods of a store of the whole application: those of all kinds of stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from headrace.queries.client.bounds import Bound
from headrace.queries.client.conversations import NO_PATHS, Conversations, ReadRow, store_path
from headrace.queries.client.steps import Conversation
from headrace.queries.client.store_encodings import StoreEncoding
from headrace.queries.http_names import TIMESTAMP_HEADER
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.records import Timestamp, ValueAndTimestamp, VersionedRecord, timestamp_ms
from headrace.windows.window import Window, Windowed

One = TypeVar("One")
Many = TypeVar("Many")

_LAST = 2**63 - 1


class StoreReads(Generic[One, Many]):
    """The reads of one store, over all shards, each at one snapshot.

    The methods are those of the stores that processors see, and answer the same. A method that the
    kind of store does not have raises a `QueryProblemError`. Rows come page by page, while they
    are read. With the program the client gives typed keys and values; else plain JSON.

    Args:
        one: Runs a conversation and returns its result.
        many: Runs a conversation and yields what it emits.
        conversations: How to ask the instances.
        bound: Which snapshots may answer.
        name: The name of the store.
        timestamped: Whether values are `ValueAndTimestamp`.
    """

    def __init__(
        self,
        one: Callable[[Conversation[Any]], One],
        many: Callable[[Conversation[None]], Many],
        conversations: Conversations,
        bound: Bound,
        name: str,
        *,
        timestamped: bool = False,
    ) -> None:
        self.name = name
        """The name of the store."""
        self._one = one
        self._many = many
        self._client = conversations
        self._bound = bound
        self._is_timestamped = timestamped

    # Key-value and versioned stores.

    def get(self, key: Any, as_of: Timestamp | None = None) -> One:
        """Return the value of a key, or None.

        Of a versioned store: a `VersionedRecord`, the latest or the one valid at ``as_of``.
        """
        return self._one(self._get(key, None if as_of is None else timestamp_ms(as_of)))

    def _get(self, key: Any, as_of: int | None) -> Conversation[Any]:
        if as_of is not None:
            route, params = self._of_key("versions", key)
            return (yield from self._first(route, {**params, "as_of": str(as_of)}, _version))
        found = yield from self._client.value(self._bound, self.name, key)
        yield from self._check_timestamps()
        if found is None:
            return None
        value, reply = found
        store_type = yield from self._client.store_type(self.name)
        if not (store_type.is_versioned or self._is_timestamped):
            return value
        made = ValueAndTimestamp if self._is_timestamped else VersionedRecord
        return made(value, int(reply.headers[TIMESTAMP_HEADER.lower()]))

    def range(self, start: Any = None, end: Any = None) -> Many:
        """Yield entries from ``start`` to ``end``, both included; None leaves that end open."""
        return self._many(self._entries("asc", start, end))

    def reverse_range(self, start: Any = None, end: Any = None) -> Many:
        """Yield what `range` yields, last key first."""
        return self._many(self._entries("desc", start, end))

    def prefix_scan(self, prefix: Any) -> Many:
        """Yield entries whose serialised key starts with the serialised ``prefix``."""
        params = {"prefix": self._text(prefix), "order": "asc"}
        return self._many(self._rows("entries", params, _entry))

    def _entries(self, order: str, start: Any, end: Any) -> Conversation[None]:
        params = {"order": order}
        if start is not None:
            params["from"] = self._text(start)
        if end is not None:
            params["to"] = self._text(end)
        return self._rows("entries", params, _entry)

    def all(self) -> Many:
        """Yield every entry."""
        return self._many(self._all("asc"))

    def reverse_all(self) -> Many:
        """Yield every entry, in the opposite order."""
        return self._many(self._all("desc"))

    def backward_all(self) -> Many:
        """Yield every window or session, in the opposite order."""
        return self._many(self._all("desc"))

    def _all(self, order: str) -> Conversation[None]:
        route = yield from self._client.rows_route(self.name)
        read = _entry if route == "entries" else _windowed
        yield from self._rows(route, {"order": order}, read)

    def approximate_num_entries(self) -> One:
        """Return how many entries a key-value store has, in all partitions."""
        return self._one(self._entry_count())

    def _entry_count(self) -> Conversation[int]:
        store_type = yield from self._client.store_type(self.name)
        if store_type.has_windows:
            kind = store_type.kind
            msg = f"Store {self.name!r} is of kind {kind}, which does not count its entries."
            raise QueryProblemError(ProblemCode.WRONG_STORE_KIND, msg)
        table = self.name.replace('"', '""')
        text = f'SELECT count(*) FROM "{table}"'  # noqa: S608  # a name in quotes
        counted = yield from self._client.sql(self._bound, text, None)
        return int(counted.rows[0][0])

    def versions(
        self, key: Any, start: Timestamp | None = None, end: Timestamp | None = None
    ) -> Many:
        """Yield the versions of a key that were valid between two times, the newest first."""
        route, params = self._of_key("versions", key)
        return self._many(self._rows(route, {**params, **_times(start, end)}, _version))

    # Window and session stores.

    def fetch(
        self, key: Any, start: Timestamp | None = None, end: Timestamp | None = None
    ) -> One | Many:
        """Return the windows or sessions of a key.

        Of a window store: the value in the window that starts at ``start``; with ``end``, yield
        (start, value). Of a session store: yield (session, value).
        """
        if start is not None and end is None:
            route, params = self._of_key("windows", key)
            return self._one(self._first(route, {**params, **_times(start, start)}, _value))
        return self._many(self._of_one_key("asc", key, start, end))

    def backward_fetch(
        self, key: Any, start: Timestamp | None = None, end: Timestamp | None = None
    ) -> Many:
        """Yield what `fetch` yields, latest first."""
        return self._many(self._of_one_key("desc", key, start, end))

    def _of_one_key(
        self, order: str, key: Any, start: Timestamp | None, end: Timestamp | None
    ) -> Conversation[None]:
        if start is None:
            route, params = self._of_key("sessions", key)
            return self._rows(route, {**params, "order": order}, _windowed)
        route, params = self._of_key("windows", key)
        params |= {"order": order, **_times(start, end)}
        return self._rows(route, params, _start_and_value)

    def fetch_range(
        self,
        first: Any,
        last: Any,
        start: Timestamp | None = None,
        end: Timestamp | None = None,
    ) -> Many:
        """Yield the windows or sessions of the keys from ``first`` to ``last``.

        Both are included; None leaves that end open.
        """
        return self._many(self._of_keys("asc", first, last, start, end))

    def backward_fetch_range(
        self,
        first: Any,
        last: Any,
        start: Timestamp | None = None,
        end: Timestamp | None = None,
    ) -> Many:
        """Yield what `fetch_range` yields, in the opposite order."""
        return self._many(self._of_keys("desc", first, last, start, end))

    def fetch_all(self, start: Timestamp, end: Timestamp) -> Many:
        """Yield the windows of every key that start between two times."""
        params = {"order": "asc", **_times(start, end)}
        return self._many(self._rows("windows", params, _windowed))

    def backward_fetch_all(self, start: Timestamp, end: Timestamp) -> Many:
        """Yield what `fetch_all` yields, in the opposite order."""
        params = {"order": "desc", **_times(start, end)}
        return self._many(self._rows("windows", params, _windowed))

    def _of_keys(
        self, order: str, first: Any, last: Any, start: Timestamp | None, end: Timestamp | None
    ) -> Conversation[None]:
        params = {"order": order}
        if first is not None:
            params["from_key"] = self._text(first)
        if last is not None:
            params["to_key"] = self._text(last)
        route = yield from self._client.rows_route(self.name)
        if route != "sessions":
            params |= _times(start, end)
        yield from self._rows(route, params, _windowed)

    def find_sessions(self, key: Any, earliest_end: Timestamp, latest_start: Timestamp) -> Many:
        """Yield sessions that end at ``earliest_end`` or later and start by ``latest_start``."""
        return self._many(self._sessions("asc", key, earliest_end, latest_start))

    def backward_find_sessions(
        self, key: Any, earliest_end: Timestamp, latest_start: Timestamp
    ) -> Many:
        """Yield what `find_sessions` yields, latest first."""
        return self._many(self._sessions("desc", key, earliest_end, latest_start))

    def _sessions(
        self, order: str, key: Any, earliest_end: Timestamp, latest_start: Timestamp
    ) -> Conversation[None]:
        route, params = self._of_key("sessions", key)
        params |= {
            "order": order,
            "earliest_end": str(timestamp_ms(earliest_end)),
            "latest_start": str(timestamp_ms(latest_start)),
        }
        return self._rows(route, params, _windowed)

    def fetch_session(self, key: Any, start: Timestamp, end: Timestamp) -> One:
        """Return the value of exactly that session, or None."""
        window = Window(timestamp_ms(start), timestamp_ms(end))
        return self._one(self._session(key, window))

    def _session(self, key: Any, window: Window) -> Conversation[Any]:
        route, params = self._of_key("sessions", key)
        params |= {"earliest_end": str(window.end), "latest_start": str(window.start)}
        rows, encoding = yield from self._list(route, params)
        found = (
            each for each in rows if (each["start"], each["end"]) == (window.start, window.end)
        )
        return next((self._shown(_value)(each, encoding) for each in found), None)

    def _first(self, route: str, params: Mapping[str, str], read: ReadRow) -> Conversation[Any]:
        """Return the one row that a read has, or None."""
        rows, encoding = yield from self._list(route, params)
        return self._shown(read)(rows[0], encoding) if rows else None

    def _list(
        self, route: str, params: Mapping[str, str]
    ) -> Conversation[tuple[list[Any], StoreEncoding]]:
        yield from self._check_timestamps()
        encoding = self._client.encoding(self.name)
        path = f"{store_path(self.name)}/{route}"
        reply = yield from self._client.call(self._bound, path, {**params, **encoding.params})
        return encoding.document(reply.body)["data"], encoding

    def _rows(self, route: str, params: Mapping[str, str], read: ReadRow) -> Conversation[None]:
        yield from self._check_timestamps()
        shown = self._shown(read)
        yield from self._client.rows(self._bound, self.name, route, params, shown)

    def _shown(self, read: ReadRow) -> ReadRow:
        """Return how to read a row: with the timestamp of its value if that is wanted."""
        return _Timestamped(read) if self._is_timestamped else read

    def _check_timestamps(self) -> Conversation[None]:
        if not self._is_timestamped:
            return
        store_type = yield from self._client.store_type(self.name)
        if not store_type.has_timestamps:
            msg = (
                f"Store {self.name!r} is of kind {store_type.kind}, which keeps no timestamps. "
                "Leave `timestamped` out."
            )
            raise QueryProblemError(ProblemCode.WRONG_STORE_KIND, msg)

    def _of_key(self, route: str, key: Any) -> tuple[str, dict[str, str]]:
        """Return the route and the parameters of the rows of one key."""
        text = self._text(key)
        if text in NO_PATHS and route != "versions":
            return route, {"from_key": text, "to_key": text}
        return f"{route}/{quote(text, safe='')}", {}

    def _text(self, key: Any) -> str:
        return self._client.encoding(self.name).key_to_text(key)


def _times(start: Timestamp | None, end: Timestamp | None) -> dict[str, str]:
    return {
        "from": str(0 if start is None else timestamp_ms(start)),
        "to": str(_LAST if end is None else timestamp_ms(end)),
    }


class _Timestamped:
    """Reads rows with the timestamps of their values.

    Args:
        read: Reads a row without.
    """

    def __init__(self, read: ReadRow) -> None:
        self._read = read

    def __call__(self, row: Mapping[str, Any], encoding: StoreEncoding) -> Any:
        found, timestamp = self._read(row, encoding), row["timestamp"]
        if self._read is _value:
            return ValueAndTimestamp(found, timestamp)
        key, value = found
        return key, ValueAndTimestamp(value, timestamp)


def _value(row: Mapping[str, Any], encoding: StoreEncoding) -> Any:
    return encoding.value_from_json(row["value"])


def _entry(row: Mapping[str, Any], encoding: StoreEncoding) -> Any:
    return encoding.key_from_json(row["key"]), encoding.value_from_json(row["value"])


def _start_and_value(row: Mapping[str, Any], encoding: StoreEncoding) -> Any:
    return row["start"], encoding.value_from_json(row["value"])


def _windowed(row: Mapping[str, Any], encoding: StoreEncoding) -> Any:
    window = Window(row["start"], row["end"])
    key = encoding.key_from_json(row["key"])
    return Windowed(key, window), encoding.value_from_json(row["value"])


def _version(row: Mapping[str, Any], encoding: StoreEncoding) -> Any:
    value = encoding.value_from_json(row["value"])
    return VersionedRecord(value, row["valid_from"], row["valid_to"])
