"""A processor that collects ids, and shows and forgets them as the clock says.

Now and then it asks for a commit, in the middle of what belongs together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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


class Collect(Processor[str, dict[str, Any], str, list[str]]):
    """Keeps the ids of each key until the next punctuation."""

    def init(self, context: ProcessorContext[str, list[str]]) -> None:
        super().init(context)
        self._ids = context.get_state_store(_collected)
        context.schedule(INTERVAL_MS, PunctuationType.WALL_CLOCK_TIME, self.punctuate)

    def process(self, record: Record[str, dict[str, Any]]) -> None:
        if record.value["amount"] % _COMMITS == 0:
            self.context.commit()
        self._ids.put(record.key, [*(self._ids.get(record.key) or []), record.value["id"]])

    def punctuate(self, timestamp: int) -> None:
        """Show what there is, and begin anew."""
        for key, ids in self._ids.all():
            self.context.forward(Record(key, ids, timestamp))
            if len(ids) % _COMMITS == 0:
                self.context.commit()
            self._ids.delete(key)


def _topology() -> Topology:
    builder = StreamsBuilder()
    events = builder.stream("punctuated-events", key=str, value=dict[str, Any])
    shown = events.process(Collect, stores=[_collected], key=str, value=list[str])
    stamped(shown, "shown").to("punctuated-ids", key=str, value=list[str])
    return builder.build()


def _records(seed: int, start: int, count: int) -> Iterator[Sent]:
    for number in range(start, start + count):
        yield event("punctuated-events", seed, number, keys=20)


WORKLOAD = Workload(
    name="punctuation",
    topics={"punctuated-events": PARTITIONS},
    outputs={"punctuated-ids": PARTITIONS},
    stores={"punctuated-store": "key_value"},
    settings=SETTINGS,
    settle_seconds=5.0,
    topology=_topology,
    records=_records,
    expected=oracle.punctuation,
    observed=oracle.punctuation_seen,
)
