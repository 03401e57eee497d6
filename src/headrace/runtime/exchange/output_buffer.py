"""The output buffer: the output of a batch until it is written; in a file beyond 64 MB."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import SpooledTemporaryFile

import msgspec

from headrace.runtime.batches import Batch
from headrace.runtime.exchange.packing import TaskReport, TopicRecords, unpack

MOST_BYTES = 64 << 20
"""The output in memory; more goes to a file."""


class _OutputsHead(msgspec.Struct, frozen=True, array_like=True):
    task_number: int
    sequence: int
    report: TaskReport
    written: list[msgspec.Raw]


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """A payload of outputs whose records stay packed."""

    batch: Batch
    input: None
    task_call: None
    outputs: _OutputsHead


_head = msgspec.msgpack.Decoder(_Head).decode


class OutputBuffer:
    """Holds the packed outputs of the tasks of a batch, to be read several times.

    They may come in any order. More than ``most_bytes`` go to a file without a name, in ``folder``
    or in the system's folder for temporary files.
    """

    def __init__(
        self,
        payloads: Iterable[bytes],
        most_bytes: int = MOST_BYTES,
        folder: Path | None = None,
    ) -> None:
        directory = None if folder is None else str(folder)
        self._file = SpooledTemporaryFile(most_bytes, dir=directory)  # noqa: SIM115  # `close`
        self.digest = ""
        """Identifies the boundaries of the batch."""
        self.is_new = False
        """As `Batch.is_new`."""
        self.reports: list[TaskReport] = []
        self.tasks: dict[int, TaskOutputs] = {}
        """The outputs of each task that wrote something, by task number."""
        self.size = 0
        """How many bytes they are, packed."""
        for payload in payloads:
            self._keep(payload)

    def __enter__(self) -> OutputBuffer:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def chunks(self, most_bytes: int) -> Iterator[dict[int, OutputChunk]]:
        """Yield what tasks wrote in pieces of so many bytes, or of one payload that is larger."""
        some: dict[int, OutputChunk] = {}
        total = 0
        for task_number, outputs in self.tasks.items():
            for size, written in outputs.sized():
                if some and total + size > most_bytes:
                    yield some
                    some, total = {}, 0
                some.setdefault(task_number, OutputChunk(outputs.task)).written.extend(written)
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
    """The outputs of one task in a batch; iterates over them in the order of the task."""

    def __init__(self, file: SpooledTemporaryFile[bytes], task: str) -> None:
        self.task = task
        self._file = file
        self._indexes: list[tuple[int, int, int]] = []

    def add(self, sequence: int, payload: bytes) -> None:
        """Add a payload; the sequence is its index among those of the task."""
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
class OutputChunk:
    """Some of the outputs of one task in a batch, in memory."""

    task: str
    written: list[TopicRecords] = field(default_factory=list)

    def __iter__(self) -> Iterator[TopicRecords]:
        return iter(self.written)
