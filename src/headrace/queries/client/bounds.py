"""Bounds of the snapshots that may answer a client: none is older than the last it has seen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from headrace.brokers.log import TopicPartition
from headrace.queries.http_names import text_from_offsets
from headrace.queries.local.positions import Position
from headrace.queries.tokens import Token
from headrace.records import RecordMetadata

After: TypeAlias = RecordMetadata | Iterable[RecordMetadata] | Position
"""Records that an answer must reflect."""

MOST_WAIT_MS = 30_000
"""The longest wait that an instance accepts."""


class ClientBound:
    """The bound of all reads of a client: the newest snapshot, and no way back."""

    def __init__(self) -> None:
        self.last: Token | None = None
        """The newest snapshot that an answer had."""

    @property
    def is_forgettable(self) -> bool:
        """Return whether a snapshot that is gone need not be asked for again: nobody named it."""
        return self.last is not None

    def params(self, wait: float) -> dict[str, str]:
        """Return the parameters of the next request."""
        if self.last is None:
            return {}
        return {"min_snapshot": str(self.last), "wait_ms": wait_ms(wait)}

    def note(self, token: Token) -> None:
        """Note the snapshot of an answer."""
        last = self.last
        if last is None or last.history != token.history or token.is_at_least(last):
            self.last = token

    def forget(self) -> None:
        """Forget the last snapshot: the application was reset."""
        self.last = None


class PinnedBound:
    """The bound of several reads at one snapshot: the first answer chooses it."""

    def __init__(self, client: ClientBound, at: Token | None, after: After | None) -> None:
        self._client = client
        self._after = None if after is None else text_from_offsets(offsets_of(after))
        self.token = at
        """The snapshot; None: no answer yet."""

    @property
    def is_forgettable(self) -> bool:
        """Return whether a snapshot that is gone need not be asked for again: nobody named it."""
        return self.token is None and self._client.is_forgettable

    def params(self, wait: float) -> dict[str, str]:
        """Return the parameters of the next request."""
        if self.token is not None:
            return {"snapshot": str(self.token)}
        params = self._client.params(wait)
        if self._after is not None:
            params |= {"min_position": self._after, "wait_ms": wait_ms(wait)}
        return params

    def note(self, token: Token) -> None:
        """Note the snapshot of an answer."""
        if self.token is None:
            self.token = token
        self._client.note(token)

    def forget(self) -> None:
        """Forget the last snapshot: the application was reset."""
        self._client.forget()


Bound: TypeAlias = ClientBound | PinnedBound


def wait_ms(seconds: float) -> str:
    """Return a wait for a request, in milliseconds."""
    return str(max(0, min(int(seconds * 1000), MOST_WAIT_MS)))


def offsets_of(after: After) -> dict[TopicPartition, int]:
    """Return the offset of the last record to reflect, of each partition."""
    if isinstance(after, Position):
        return {
            TopicPartition(topic, partition): offset
            for topic, offsets in after.offsets.items()
            for partition, offset in offsets.items()
        }
    records = [after] if isinstance(after, RecordMetadata) else after
    offsets: dict[TopicPartition, int] = {}
    for topic, partition, offset in records:
        name = TopicPartition(topic, partition)
        offsets[name] = max(offset, offsets.get(name, 0))
    return offsets
