"""The outputs of a batch, packed until they are written, and in a file beyond a bound."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import SpooledTemporaryFile

import msgspec

from headrace.runtime.batches import Batch
from headrace.runtime.exchange.packing import TaskReport, TopicRecords, unpack

MOST_BYTES = 64 << 20
"""How much is kept in memory."""


class _OutputsHead(msgspec.Struct, frozen=True, array_like=True):
    task_number: int
    sequence: int
    report: TaskReport
    written: list[msgspec.Raw]


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """A parcel of outputs whose records are left packed."""

    batch: Batch
    input: None
    task_call: None
    outputs: _OutputsHead


_head = msgspec.msgpack.Decoder(_Head).decode


class OutputBuffer:
    """What tasks wrote in a batch, as often as it is needed.

    Args:
        parcels: Their packed outputs, in any order.
        most_bytes: How much is kept in memory; more goes to a file that has no name.
    """

    def __init__(self, payloads: Iterable[bytes], most_bytes: int = MOST_BYTES) -> None:
        self._file = SpooledTemporaryFile(most_bytes, dir=_folder())  # noqa: SIM115  # `close`
        self.digest = ""
        """Stands for the offsets of the batch."""
        self.is_new = False
        """Whether nothing of the batch was written before its tasks were first run."""
        self.reports: list[TaskReport] = []
        self.tasks: dict[int, TaskOutputs] = {}
        """What each task wrote, by its marker; those that wrote nothing are not in it."""
        self.size = 0
        """How many bytes that is, packed."""
        for payload in payloads:
            self._keep(payload)

    def __enter__(self) -> OutputBuffer:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def chunks(self, most_bytes: int) -> Iterator[dict[int, SomeOutputs]]:
        """Yield what tasks wrote in pieces of so many bytes, or of one payload that is larger."""
        some: dict[int, SomeOutputs] = {}
        total = 0
        for task_number, outputs in self.tasks.items():
            for size, written in outputs.sized():
                if some and total + size > most_bytes:
                    yield some
                    some, total = {}, 0
                some.setdefault(task_number, SomeOutputs(outputs.task)).written.extend(written)
                total += size
        if some:
            yield some

    def _keep(self, payload: bytes) -> None:
        head = _head(payload)
        outputs = head.outputs
        self.digest, self.is_new = head.batch.digest, head.batch.is_new
        self.reports.append(outputs.report)
        if not outputs.written:
            return
        task = self.tasks.get(outputs.task_number)
        if task is None:
            task = self.tasks[outputs.task_number] = TaskOutputs(self._file, outputs.report.task)
        task.add(outputs.sequence, payload)
        self.size += len(payload)


class TaskOutputs:
    """What one task wrote in a batch: iterates over it in the order it was written.

    Args:
        file: Where it is kept.
        task: The id of the task.
    """

    def __init__(self, file: SpooledTemporaryFile[bytes], task: str) -> None:
        self.task = task
        self._file = file
        self._indexes: list[tuple[int, int, int]] = []

    def add(self, sequence: int, payload: bytes) -> None:
        """Keep a parcel; the sequence is its place among what the task wrote."""
        self._indexes.append((sequence, self._file.tell(), len(payload)))
        self._file.write(payload)

    def __iter__(self) -> Iterator[TopicRecords]:
        return (written for _, some in self.sized() for written in some)

    def sized(self) -> Iterator[tuple[int, list[TopicRecords]]]:
        """Yield the records of each payload, and how large it is."""
        for _, start, size in sorted(self._indexes):
            self._file.seek(start)
            outputs = unpack(self._file.read(size)).outputs
            assert outputs is not None, "only outputs are kept"
            yield size, outputs.written


@dataclass(frozen=True)
class SomeOutputs:
    """Some of what one task wrote in a batch, in memory."""

    task: str
    written: list[TopicRecords] = field(default_factory=list)

    def __iter__(self) -> Iterator[TopicRecords]:
        return iter(self.written)


def _folder() -> str | None:
    """Return where Spark keeps files of this worker; None for the system's folder."""
    first, _, _ = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")
    return first if first and Path(first).is_dir() else None
