"""Marks the records of one batch of a task, so that a reader sees what belongs together."""

from __future__ import annotations

from functools import reduce
from typing import Any

from headrace import (
    FixedKeyProcessor,
    FixedKeyProcessorContext,
    FixedKeyRecord,
    KeyValueStore,
    KStream,
    StoreBuilder,
    Stores,
)


class Stamp(FixedKeyProcessor[Any, Any, Any]):
    """Gives each record the header `batch`: the task and a number that rises with its batches.

    A processor lives for one batch, so its first record begins one.
    """

    def __init__(self, batches: StoreBuilder[KeyValueStore[str, int]]) -> None:
        self._batches = batches
        self._header: bytes | None = None

    def init(self, context: FixedKeyProcessorContext[Any, Any]) -> None:
        super().init(context)
        self._store = context.get_state_store(self._batches)

    def process(self, record: FixedKeyRecord[Any, Any]) -> None:
        if self._header is None:
            number = (self._store.get("last") or 0) + 1
            self._store.put("last", number)
            self._header = f"{self.context.task_id}/{number}".encode()
        headers = record.headers.without("batch").adding("batch", self._header)
        self.context.forward(record.with_headers(headers))


def stamped_together(name: str, *streams: KStream[Any, Any]) -> list[KStream[Any, Any]]:
    """Return streams of one task whose records of one batch say the same.

    Keys and values have no serdes after that.
    """
    marked = [_marked(stream, number) for number, stream in enumerate(streams)]
    together = stamped(reduce(KStream.merge, marked), name)
    return [_unmarked(together, number) for number, _ in enumerate(streams)]


def _marked(stream: KStream[Any, Any], number: int) -> KStream[Any, Any]:
    return stream.map_values(lambda value: (number, value))


def _unmarked(stream: KStream[Any, Any], number: int) -> KStream[Any, Any]:
    own = stream.filter(lambda _, marked: marked[0] == number)
    return own.map_values(lambda marked: marked[1])


def stamped(stream: KStream[Any, Any], name: str) -> KStream[Any, Any]:
    """Return a stream whose records say which batch of which task they belong to."""
    batches = Stores.key_value(f"{name}-batches", str, int, logging=False)
    return stream.process_values(lambda: Stamp(batches), stores=[batches], name=name)
