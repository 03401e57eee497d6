"""Checks a running application for states that a reader may never see, not even for a moment."""

from __future__ import annotations

import math
from contextlib import nullcontext

from chaos.checks import Verdict, all_records, ids_of, shown_key, stamp_of
from chaos.contract import EXACTLY_ONCE, Log, Offsets, Workload
from chaos.oracle import ids_in
from chaos.reading import EmbeddedReader, Reader, open_reader


class Watch:
    """A reader that checks the topics of an application repeatedly.

    Args:
        workload: The workload that runs.
        kind: ``kafka`` or ``embedded``.
        address: The brokers, or the file.
        application_id: Names the groups.
        guarantee: Its guarantee.
    """

    def __init__(
        self,
        workload: Workload,
        kind: str,
        address: str,
        application_id: str,
        guarantee: str = EXACTLY_ONCE,
    ) -> None:
        self.found = Verdict()
        self._workload = workload
        self._address = kind, address
        self._reader: Reader | None = None
        self._group = application_id
        self._in_transactions = guarantee == EXACTLY_ONCE
        self._changelogs: list[str] = []
        if workload.shown is not None:
            self._changelogs.append(f"{application_id}-{workload.shown[0]}-changelog")
        self._next: Offsets = {}
        self._committed: Offsets = {}
        self._batches: dict[tuple[str, int, bytes], int] = {}
        """The batches that were seen in partitions, and where those ended then."""
        self._twins: tuple[set[str], set[str]] = (set(), set())
        self._inputs: dict[tuple[str, int], list[tuple[int, str]]] = {}
        self._shown: set[str] = set()
        self._missing: dict[str, Offsets] = {}
        """Inputs that count as read but do not show, and how far outputs must be read to judge."""

    def look(self) -> None:
        """Check once; raises the reader's error while there is no broker."""
        reader = self._reader = self._reader or open_reader(*self._address)
        whole = isinstance(reader, EmbeddedReader)
        with reader.snapshot() if isinstance(reader, EmbeddedReader) else nullcontext():
            committed = reader.committed(self._group)
            # Kafka answers a commit before all partitions show the transaction. But its records
            # lie before these ends: a reader that has passed them without a record never sees it.
            written = reader.written(self._workload.outputs)
            markers = reader.committed(f"{self._group}-markers")
            outputs = reader.read(self._workload.outputs, self._next)
            ends = reader.written(self._workload.outputs)
            inputs = reader.read(self._workload.topics, self._next)
            changelogs = reader.read(self._changelogs, self._next) if whole else {}
        for record in [*all_records(outputs), *all_records(inputs), *all_records(changelogs)]:
            self._next[record.topic, record.partition] = record.offset + 1
        if self._in_transactions:
            self._check_batches(outputs, ends)
        if self._in_transactions and whole:
            self._check_twins(outputs)
            self._check_changes(outputs, changelogs)
        self._check_offsets(committed, inputs, outputs, written, reader.reached)
        self._check_rising({**committed, **markers})

    def close(self) -> None:
        """Close the reader; what was seen is kept, and another look opens a new one."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _check_batches(self, outputs: Log, ends: Offsets) -> None:
        """Check that new records of a partition are whole batches: no earlier batch grows.

        But in a partition of Kafka nothing shows behind a record of an open transaction: the rest
        of an ended one may lie there. The checks at the end decide whether it was one.
        """
        seen: dict[tuple[str, int, bytes], int] = {}
        grown: set[tuple[str, int, bytes]] = set()
        for record in all_records(outputs):
            if (stamp := stamp_of(record)) is not None:
                batch = record.topic, record.partition, stamp
                seen[batch] = ends.get(batch[:2], 0)
                if record.offset >= self._batches.get(batch, math.inf):
                    grown.add(batch)
        for batch in grown:
            self.found.add("torn", f"{batch} grew after a reader had seen it")
        self._batches |= {batch: end for batch, end in seen.items() if batch not in self._batches}

    def _check_twins(self, outputs: Log) -> None:
        if self._workload.twins is None:
            return
        for seen, topic in zip(self._twins, self._workload.twins, strict=True):
            seen |= ids_in(outputs, topic)
        one, other = self._twins
        for identity in one ^ other:
            self.found.add("torn", f"{identity!r} was in one of {self._workload.twins} only")
        one.clear()
        other.clear()

    def _check_changes(self, outputs: Log, changelogs: Log) -> None:
        """Check that changes of a changelog are in the topic that shows them; keep the last."""
        if self._workload.shown is None:
            return
        _, topic = self._workload.shown
        shown = {record.key: record.value for record in all_records({topic: outputs[topic]})}
        logged = {
            shown_key(self._workload, record.key): record.value
            for record in all_records(changelogs)
        }
        for key in logged.keys() | shown.keys():
            if logged.get(key) != shown.get(key):
                self.found.add("torn", f"{key!r} was not the same in {topic!r} and its changelog")

    def _check_offsets(
        self,
        committed: Offsets,
        inputs: Log,
        outputs: Log,
        written: Offsets,
        outputs_read: Offsets,
    ) -> None:
        if self._workload.traced is None:
            return
        self._shown |= self._workload.traced(outputs)
        for record in all_records(inputs):
            source = (record.topic, record.partition)
            self._inputs.setdefault(source, []).extend(
                (record.offset, identity) for identity in ids_of([record])
            )
        for source, waiting in self._inputs.items():
            reached = committed.get(source, 0)
            for offset, identity in waiting:
                if offset < reached:
                    self._missing.setdefault(identity, written)
            self._inputs[source] = [each for each in waiting if each[0] >= reached]
        for identity, ends in list(self._missing.items()):
            if identity in self._shown:
                del self._missing[identity]
            elif all(outputs_read.get(name, 0) >= end for name, end in ends.items()):
                del self._missing[identity]
                self.found.add("offsets_ahead", f"{identity!r} counted as read before it showed")

    def _check_rising(self, committed: Offsets) -> None:
        for name, offset in self._committed.items():
            if name in committed and committed[name] < offset:
                example = f"{name} from {offset} to {committed[name]}"
                self.found.add("went_back", example)
        self._committed |= committed
