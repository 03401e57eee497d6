"""A processor that collects ids, and shows and forgets them as the clock says.

It also forwards each change of the collected ids, so that each event shows at once. About one call
in `_COMMITS` requests a commit, in the middle of related records.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from chaos import oracle
from chaos.contract import Sent, Workload
from chaos.workloads.generating import PARTITIONS, SETTINGS, event
from chaos.workloads.stamping import stamped
from headrace import (
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Stores,
    StreamsBuilder,
    Topology,
)

INTERVAL_MS = 500
_COMMITS = 3
"""About one call in this many requests a commit."""

_collected = Stores.key_value("punctuated-store", str, list[str])


class Collected(NamedTuple):
    """A result of the processor."""

    ids: list[str] | None
    is_change: bool


class Collect(Processor[str, dict[str, Any], str, Collected]):
    """Keeps the ids of each key until the next punctuation."""

    def init(self, context: ProcessorContext[str, Collected]) -> None:
        super().init(context)
        self._ids = context.get_state_store(_collected)
        context.schedule(INTERVAL_MS, PunctuationType.WALL_CLOCK_TIME, self.punctuate)

    def process(self, record: Record[str, dict[str, Any]]) -> None:
        if record.value["amount"] % _COMMITS == 0:
            self.context.commit()
        ids = [*(self._ids.get(record.key) or []), record.value["id"]]
        self._ids.put(record.key, ids)
        self.context.forward(record.with_value(Collected(ids, is_change=True)))

    def punctuate(self, timestamp: int) -> None:
        """Forward the collected ids, and clear them."""
        for key, ids in self._ids.all():
            self.context.forward(Record(key, Collected(ids, is_change=False), timestamp))
            if len(ids) % _COMMITS == 0:
                self.context.commit()
            self._ids.delete(key)
            self.context.forward(Record(key, Collected(None, is_change=True), timestamp))


def _is_such(_key: str, collected: Collected, *, is_change: bool) -> bool:
    return collected.is_change == is_change


def _topology() -> Topology:
    builder = StreamsBuilder()
    events = builder.stream("punctuated-events", key=str, value=dict[str, Any])
    results = stamped(events.process(Collect, stores=[_collected], key=str), "shown")
    for topic, is_change in (("punctuated-changes", True), ("punctuated-ids", False)):
        chosen = results.filter(partial(_is_such, is_change=is_change))
        chosen.map_values(lambda result: result.ids).to(topic, key=str, value=list[str])
    return builder.build()


def _records(seed: int, start: int, count: int) -> Iterator[Sent]:
    for number in range(start, start + count):
        yield event("punctuated-events", seed, number, keys=20)


WORKLOAD = Workload(
    name="punctuation",
    topics={"punctuated-events": PARTITIONS},
    outputs={"punctuated-changes": PARTITIONS, "punctuated-ids": PARTITIONS},
    stores={"punctuated-store": "key_value"},
    settings=SETTINGS,
    settle_seconds=5.0,
    topology=_topology,
    records=_records,
    expected=oracle.punctuation,
    observed=oracle.punctuation_seen,
    traced=oracle.punctuation_traced,
    shown=("punctuated-store", "punctuated-changes"),
)
