"""Keys and values on the wire: as JSON by the serdes of a store, or as serialised bytes."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from headrace.queries.catalog import QueryableStore
from headrace.queries.coordination.answers import Change
from headrace.queries.json_values import (
    ToJson,
    json_writer,
    key_from_json,
    key_from_text,
    prefix_from_text,
)
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.reads import Row

Encoding: TypeAlias = Literal["json", "bytes"]
"""The parameter ``encoding``."""


@dataclass(frozen=True)
class StoreEncoding:
    """The keys and values of one store, in one encoding."""

    store: QueryableStore
    key_from_text: Callable[[str], bytes]
    """Returns the serialised key of the text of a URL."""
    prefix_from_text: Callable[[str], bytes]
    key_from_json: Callable[[Any], bytes]
    key_to_json: ToJson
    value_to_json: ToJson
    is_bytes: bool

    def row_to_json(self, row: Row) -> bytes:
        """Return the JSON of a row."""
        times = row.timestamp, row.start, row.end
        return self._entry_json(row.key, self.value_to_json(row.value), *times)

    def change_to_json(self, change: Change) -> bytes:
        """Return the JSON of a change; the value of a deleted entry is null."""
        value = b"null" if change.value is None else self.value_to_json(change.value)
        times = change.timestamp, change.start, change.end
        # Line breaks between the tokens of JSON would end the data of an event.
        text = self._entry_json(change.key, value, *times)
        return text.replace(b"\r", b" ").replace(b"\n", b" ")

    def _entry_json(
        self, key: bytes, value: bytes, timestamp: int | None, start: int | None, end: int | None
    ) -> bytes:
        parts = [b'{"key":%b,"value":%b' % (self.key_to_json(key), value)]
        if self.store.type.is_versioned:
            parts.append(b',"valid_from":%b,"valid_to":%b' % (_number(start), _number(end)))
        else:
            if start is not None:
                parts.append(b',"start":%d,"end":%b' % (start, _number(end)))
            if timestamp is not None:
                parts.append(b',"timestamp":%d' % timestamp)
        parts.append(b"}")
        return b"".join(parts)


class StoreEncodings:
    """The encodings of all stores, each made once."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, Encoding], StoreEncoding] = {}

    def of(self, store: QueryableStore, encoding: Encoding = "json") -> StoreEncoding:
        """Return the encoding of a store."""
        made = self._made.get((store.name, encoding))
        if made is None or made.store is not store:
            make = _json_encoding if encoding == "json" else _bytes_encoding
            made = self._made[store.name, encoding] = make(store)
        return made


def _json_encoding(store: QueryableStore) -> StoreEncoding:
    key = store.key
    return StoreEncoding(
        store,
        lambda text: key_from_text(key, text),
        lambda text: prefix_from_text(key, text),
        lambda value: key_from_json(key, value),
        json_writer(key),
        json_writer(store.value),
        is_bytes=False,
    )


def _bytes_encoding(store: QueryableStore) -> StoreEncoding:
    return StoreEncoding(
        store,
        _key_from_base64,
        _key_from_base64,
        _key_from_base64,
        _to_base64,
        _to_base64,
        is_bytes=True,
    )


def _to_base64(data: bytes) -> bytes:
    return b'"%b"' % urlsafe_b64encode(data)


def _key_from_base64(text: Any) -> bytes:
    if isinstance(text, str) and text.isascii():
        plain = text.rstrip("=").replace("+", "-").replace("/", "_").encode()
        data = urlsafe_b64decode(plain + b"=" * (-len(plain) % 4)) if len(plain) % 4 != 1 else b""
        # The decoder ignores what is no base64.
        if urlsafe_b64encode(data).rstrip(b"=") == plain:
            return data
    msg = "The key is not base64url, as `encoding=bytes` needs it."
    raise QueryProblemError(ProblemCode.BAD_KEY, msg)


def _number(value: int | None) -> bytes:
    return b"null" if value is None else b"%d" % value
