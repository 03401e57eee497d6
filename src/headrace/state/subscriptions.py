"""The left rows of a foreign-key join that point at each right key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from headrace.records import K
from headrace.serdes.base import Serde
from headrace.state.maps import OrderedMap

KO = TypeVar("KO")


class Subscriptions(Generic[KO, K]):
    """Primary keys by foreign key, in the order of their bytes.

    ::

        (bytes of the foreign key, bytes of the primary key) -> (digest, partition)
    """

    caching = False

    def __init__(
        self,
        name: str,
        foreign_key: Serde[KO],
        primary_key: Serde[K],
        data: OrderedMap[tuple[bytes, bytes], tuple[bytes, int]],
        *,
        persistent: bool = False,
    ) -> None:
        self.name = name
        self.persistent = persistent
        self._foreign_key = foreign_key.serialize
        self._primary_key = primary_key
        self._data = data

    def put(self, foreign_key: KO, primary_key: K, digest: bytes, partition: int) -> None:
        """Add a left row with the digest of its value and its partition."""
        self._data.put(self._key(foreign_key, primary_key), (digest, partition))

    def remove(self, foreign_key: KO, primary_key: K) -> None:
        """Forget that a left row pointed at a foreign key."""
        self._data.pop(self._key(foreign_key, primary_key))

    def subscribers(self, foreign_key: KO) -> Iterator[tuple[K, bytes, int]]:
        """Yield primary key, digest and partition of the rows that point at a foreign key."""
        prefix, decode = self._foreign_key(foreign_key), self._primary_key.deserialize
        # The least bytes greater than a key are the key and a zero byte.
        entries = self._data.scan((prefix, b""), (prefix + b"\0", b""))
        return ((decode(key), digest, partition) for (_, key), (digest, partition) in entries)

    def _key(self, foreign_key: KO, primary_key: K) -> tuple[bytes, bytes]:
        return self._foreign_key(foreign_key), self._primary_key.serialize(primary_key)
