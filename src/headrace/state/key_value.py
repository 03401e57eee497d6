"""Key-value stores over an ordered map: plain, and with a timestamp beside each value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic

from headrace.errors import StateStoreError
from headrace.records import NO_HEADERS, Headers, K, V, ValueAndTimestamp
from headrace.serdes.base import Serde
from headrace.state.maps import OrderedMap

IS_LATEST = -1
"""The result of `write` if the value is now the current one of its key."""


class KeyCodec(Generic[K]):
    """Turns the keys of one store into bytes; a null key is refused."""

    __slots__ = ("_serialize", "decode", "store")

    def __init__(self, store: str, serde: Serde[K]) -> None:
        self.store = store
        self._serialize = serde.serialize
        self.decode = serde.deserialize

    def encode(self, key: K) -> bytes:
        """Return the bytes of a key.

        Raises:
            StateStoreError: The key is None.
        """
        if key is None:
            msg = f"Store {self.store!r} was asked for the key None. Use another key."
            raise StateStoreError(msg, is_of_record=True)
        return self._serialize(key)


def end_of_prefix(prefix: bytes) -> bytes | None:
    """Return the first bytes after all that start with ``prefix``; None if there are none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


class BaseKeyValue(Generic[K, V]):
    """The base of key-value stores: everything but how a value is stored."""

    caching = False

    def __init__(
        self, name: str, key: Serde[K], data: OrderedMap[bytes, Any], *, persistent: bool = False
    ) -> None:
        self.name = name
        self.persistent = persistent
        self.key_serde = key
        self._keys = KeyCodec(name, key)
        self._data = data
        self.encoded_key = self._keys.encode
        """Returns the bytes of a key, which decide its partition."""
        self.serialize_key = key.serialize
        """Does the same for a key that is known not to be None."""

    def _decode(self, stored: Any) -> V:
        raise NotImplementedError  # each kind says how

    def _encode(self, value: V) -> Any:
        raise NotImplementedError  # each kind says how

    def get(self, key: K) -> V | None:
        stored = self._data.get(self._keys.encode(key))
        return None if stored is None else self._decode(stored)

    def put(self, key: K, value: V | None) -> None:
        encoded = self._keys.encode(key)
        if value is None:
            self._data.pop(encoded)
        else:
            self._data.put(encoded, self._encode(value))

    def put_if_absent(self, key: K, value: V) -> V | None:
        found = self.get(key)
        if found is None:
            self.put(key, value)
        return found

    def put_all(self, pairs: Iterable[tuple[K, V | None]]) -> None:
        for key, value in pairs:
            self.put(key, value)

    def delete(self, key: K) -> V | None:
        found = self.get(key)
        self.put(key, None)
        return found

    def range(self, start: K | None = None, end: K | None = None) -> Iterator[tuple[K, V]]:
        return self._scan(self._bound(start), self._after(end))

    def reverse_range(self, start: K | None = None, end: K | None = None) -> Iterator[tuple[K, V]]:
        return self._scan(self._bound(start), self._after(end), reverse=True)

    def all(self) -> Iterator[tuple[K, V]]:
        return self._scan(None, None)

    def reverse_all(self) -> Iterator[tuple[K, V]]:
        return self._scan(None, None, reverse=True)

    def prefix_scan(self, prefix: K) -> Iterator[tuple[K, V]]:
        encoded = self._keys.encode(prefix)
        return self._scan(encoded, end_of_prefix(encoded))

    def approximate_num_entries(self) -> int:
        return len(self._data)

    def _bound(self, key: K | None) -> bytes | None:
        return None if key is None else self._keys.encode(key)

    def _after(self, key: K | None) -> bytes | None:
        # The least bytes greater than a key are the key and a zero byte.
        return None if key is None else self._keys.encode(key) + b"\0"

    def _scan(
        self, start: bytes | None, end: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[K, V]]:
        decode_key, decode = self._keys.decode, self._decode
        if start is not None and end is not None and start >= end:
            return iter(())
        entries = self._data.scan(start, end, reverse=reverse)
        return ((decode_key(key), decode(stored)) for key, stored in entries)


class KeyValue(BaseKeyValue[K, V]):
    """A `KeyValueStore` of plain values."""

    def __init__(
        self,
        name: str,
        key: Serde[K],
        value: Serde[V],
        data: OrderedMap[bytes, bytes],
        *,
        persistent: bool = False,
    ) -> None:
        super().__init__(name, key, data, persistent=persistent)
        self._decode = value.deserialize  # type: ignore[method-assign,assignment]  # saves a call per read
        self._encode = value.serialize  # type: ignore[method-assign,assignment]  # saves a call per write


class TimestampedKeyValue(BaseKeyValue[K, ValueAndTimestamp[V]]):
    """A `KeyValueStore` of values with timestamps; tables and aggregations `read` and `write`."""

    def __init__(
        self,
        name: str,
        key: Serde[K],
        value: Serde[V],
        data: OrderedMap[bytes, tuple[bytes, int]],
        *,
        persistent: bool = False,
    ) -> None:
        super().__init__(name, key, data, persistent=persistent)
        self._value = value

    def _decode(self, stored: tuple[bytes, int]) -> ValueAndTimestamp[V]:
        return ValueAndTimestamp(self._value.deserialize(stored[0]), stored[1])

    def _encode(self, value: ValueAndTimestamp[V]) -> tuple[bytes, int]:
        return self._value.serialize(value[0]), value[1]

    def put(self, key: K, value: ValueAndTimestamp[V] | None) -> None:
        if value is None or value[0] is None:
            self.write(key, None, -1)
        else:
            self.write(key, value[0], value[1])

    def read(self, key: K) -> tuple[V, int] | None:
        """Return the value of a key and its timestamp, or None."""
        return self.read_at(self._keys.encode(key), key)

    def read_at(self, encoded: bytes, _key: K) -> tuple[V, int] | None:
        """Return what `read` returns, for a key whose bytes are at hand."""
        stored = self._data.get(encoded)
        return None if stored is None else (self._value.deserialize(stored[0]), stored[1])

    def write(self, key: K, value: V | None, timestamp: int, headers: Headers = NO_HEADERS) -> int:
        """Set the value of a key and its timestamp; None deletes. Return `IS_LATEST`.

        The headers are those of the record that made the change; a cache sends them on with it.
        """
        return self.write_at(self._keys.encode(key), key, value, timestamp, headers)

    def write_at(
        self, encoded: bytes, _key: K, value: V | None, timestamp: int, _headers: Headers
    ) -> int:
        """Do what `write` does, for a key whose bytes are at hand."""
        if value is None:
            self._data.pop(encoded)
        else:
            self._data.put(encoded, (self._value.serialize(value), timestamp))
        return IS_LATEST


class PlainValues(BaseKeyValue[K, V]):
    """A timestamped store as one of plain values: what `get_key_value_store` shows in a test."""

    def __init__(self, store: TimestampedKeyValue[K, V]) -> None:
        super().__init__(store.name, store.key_serde, store._data, persistent=store.persistent)  # noqa: SLF001  # a view of it
        self._store = store

    def get(self, key: K) -> V | None:
        found = self._store.get(key)
        return None if found is None else found.value

    def put(self, key: K, value: V | None) -> None:
        self._store.put(key, None if value is None else ValueAndTimestamp(value, -1))

    def _scan(
        self, start: bytes | None, end: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[K, V]]:
        entries = self._store._scan(start, end, reverse=reverse)  # noqa: SLF001  # a view of it
        return ((key, found.value) for key, found in entries)
