"""Writes keys and reads rows for a client: by the serdes of a program, or as plain JSON."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Protocol

import msgspec

from headrace.queries.catalog import QueryableStore
from headrace.queries.problems import ProblemCode, QueryProblemError

_PLAIN = str | int | float | bool


class StoreEncoding(Protocol):
    """Keys and values of one store on the wire."""

    params: Mapping[str, str]
    """The parameters that name the encoding."""

    def key_to_text(self, key: Any) -> str:
        """Return a key for a URL."""
        ...

    def key_to_json(self, key: Any) -> Any:
        """Return a key for the body of a request."""
        ...

    def key_from_json(self, value: Any) -> Any:
        """Return the key of a row."""
        ...

    def value_from_json(self, value: Any) -> Any:
        """Return the value of a row."""
        ...

    def value_from_body(self, body: bytes) -> Any:
        """Return the value that is the body of an answer."""
        ...

    def document(self, body: bytes | str) -> Any:
        """Return the rows of an answer, and what stands beside them."""
        ...


class JsonEncoding:
    """Keys and values as plain JSON, for clients without the program.

    Args:
        decimals: Whether a number with a fraction becomes a Decimal with all its digits.
    """

    params: Mapping[str, str] = {}

    def __init__(self, *, decimals: bool = False) -> None:
        self._decoder = msgspec.json.Decoder[Any](float_hook=Decimal if decimals else None)

    def key_to_text(self, key: Any) -> str:
        if isinstance(key, bool):
            return "true" if key else "false"
        if isinstance(key, _PLAIN):
            return str(key)
        msg = (
            f"A key of type {type(key).__name__} has no text for a URL. "
            "Give the client the program, with `program=`: it then knows the type of the keys."
        )
        raise QueryProblemError(ProblemCode.BAD_KEY, msg)

    def key_to_json(self, key: Any) -> Any:
        return key

    def key_from_json(self, value: Any) -> Any:
        return value

    def value_from_json(self, value: Any) -> Any:
        return value

    def value_from_body(self, body: bytes) -> Any:
        return self.document(body)

    def document(self, body: bytes | str) -> Any:
        return self._decoder.decode(body)


class TypedEncoding:
    """Keys and values as serialised bytes, by the serdes of a store."""

    params: Mapping[str, str] = {"encoding": "bytes"}

    def __init__(self, store: QueryableStore) -> None:
        self._key, self._value = store.key, store.value

    def key_to_text(self, key: Any) -> str:
        return urlsafe_b64encode(self._key.serialize(key)).rstrip(b"=").decode()

    def key_to_json(self, key: Any) -> Any:
        return self.key_to_text(key)

    def key_from_json(self, value: Any) -> Any:
        return self._key.deserialize(_bytes(value))

    def value_from_json(self, value: Any) -> Any:
        return None if value is None else self._value.deserialize(_bytes(value))

    def value_from_body(self, body: bytes) -> Any:
        return self._value.deserialize(body)

    def document(self, body: bytes | str) -> Any:
        return msgspec.json.decode(body)


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
