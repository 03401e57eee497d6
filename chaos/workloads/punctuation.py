"""A processor that collects ids, and shows and forgets them as the clock says.

It tells each change of what it has collected, too, so that each event shows at once.
Now and then it asks for a commit, in the middle of what belongs together.
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
"""One call in this many asks for a commit, about."""

_collected = Stores.key_value("punctuated-store", str, list[str])


class Told(NamedTuple):
    """What the processor forwards."""

    ids: list[str] | None
    is_change: bool


class Collect(Processor[str, dict[str, Any], str, Told]):
    """Keeps the ids of each key until the next punctuation."""

    def init(self, context: ProcessorContext[str, Told]) -> None:
        super().init(context)
        self._ids = context.get_state_store(_collected)
        context.schedule(INTERVAL_MS, PunctuationType.WALL_CLOCK_TIME, self.punctuate)

    def process(self, record: Record[str, dict[str, Any]]) -> None:
        if record.value["amount"] % _COMMITS == 0:
            self.context.commit()
        ids = [*(self._ids.get(record.key) or []), record.value["id"]]
        self._ids.put(record.key, ids)
        self.context.forward(record.with_value(Told(ids, is_change=True)))

    def punctuate(self, timestamp: int) -> None:
        """Show what there is, and begin anew."""
        for key, ids in self._ids.all():
            self.context.forward(Record(key, Told(ids, is_change=False), timestamp))
            if len(ids) % _COMMITS == 0:
                self.context.commit()
            self._ids.delete(key)
            self.context.forward(Record(key, Told(None, is_change=True), timestamp))


def _is_such(_key: str, told: Told, *, is_change: bool) -> bool:
    return told.is_change == is_change


def _topology() -> Topology:
    builder = StreamsBuilder()
    events = builder.stream("punctuated-events", key=str, value=dict[str, Any])
    told = stamped(events.process(Collect, stores=[_collected], key=str), "shown")
    for topic, is_change in (("punctuated-changes", True), ("punctuated-ids", False)):
        told.filter(partial(_is_such, is_change=is_change)).map_values(lambda told: told.ids).to(
            topic, key=str, value=list[str]
        )
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
