"""The checkpoint of the simulated application, in files as Spark and the planner leave them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from chaos.model.batches import APPLICATION, FIRST, Planned, next_position
from headrace.errors import StreamsError
from headrace.home import ApplicationHome
from headrace.runtime.batches import BatchBoundary
from headrace.runtime.checkpoint import checkpoint
from headrace.runtime.checkpoint.files import FIRST_FILE
from headrace.runtime.checkpoint.layout import LAYOUT_FILE
from headrace.spark.batch_log import SPARK_FOLDER, spark_checkpoint


class CheckpointConflictError(StreamsError):
    """Another process wrote this file of the checkpoint: Spark ends the query."""


@dataclass
class Checkpoint:
    """The logs of offsets and commits that Spark keeps; a file is never written over."""

    query: str
    state_dir: Path
    """The folder that it is in, and no other one."""
    has_files: bool = True
    """Whether it has files to read."""
    planned: list[Planned] = field(default_factory=list)
    committed: int = 0
    """How many batches are committed."""
    is_gone: bool = False
    """Whether a reset put it away."""
    replanned: Planned | None = None
    """The next batch in an older copy, which differs from the original one."""

    @property
    def home(self) -> ApplicationHome:
        """The folders of the application."""
        return ApplicationHome(self.state_dir, self.state_dir, APPLICATION, "model")

    @property
    def folder(self) -> Path:
        """Return where its files are."""
        return self.home.checkpoint

    @property
    def opened(self) -> checkpoint.Checkpoint:
        """The checkpoint as the runtime sees it."""
        return spark_checkpoint(APPLICATION, self.folder)

    @property
    def layout(self) -> bytes | None:
        """The layout beside Spark's files; None before the first start."""
        path = self.folder / LAYOUT_FILE
        return path.read_bytes() if path.exists() else None

    @property
    def end(self) -> BatchBoundary:
        """Return where its last batch ends."""
        return self.planned[-1].end if self.planned else FIRST

    @property
    def is_unfinished(self) -> bool:
        """Return whether its last batch was planned and not committed."""
        return len(self.planned) > self.committed

    def begin(self) -> None:
        """Write down what a query does at its start."""
        spark = self.folder / SPARK_FOLDER
        if self.has_files and not spark.exists():
            for name in ("offsets", "commits"):
                (spark / name).mkdir(parents=True)
            (spark / "metadata").write_text(f'{{"id": "{self.query}"}}')
            (self.folder / FIRST_FILE).write_bytes(msgspec.json.encode(FIRST))

    def plan(self, batch: Planned) -> None:
        """Write down what a batch is."""
        if self.is_gone or len(self.planned) != batch.number:
            msg = f"offsets/{batch.number} cannot be written"
            raise CheckpointConflictError(msg)
        self.planned.append(batch)
        self._write(f"offsets/{batch.number}", b"\n" + msgspec.json.encode(batch.end.as_dict()))

    def commit(self, number: int) -> None:
        """Write down that a batch is done."""
        if self.is_gone or self.committed != number:
            msg = f"commits/{number} cannot be written"
            raise CheckpointConflictError(msg)
        self.committed += 1
        self._write(f"commits/{number}")

    def _write(self, name: str, more: bytes = b"") -> None:
        if self.has_files:
            (self.folder / SPARK_FOLDER / name).write_bytes(b"v1\n{}" + more)

    def copied(
        self, state_dir: Path, layout: bytes, planned: int | None = None, committed: int = 1 << 31
    ) -> Checkpoint:
        """Return a copy of it as it is, or as it was with fewer batches."""
        copy = Checkpoint(self.query, state_dir, has_files=self.has_files)
        copy.begin()
        if copy.has_files:
            (copy.folder / LAYOUT_FILE).write_bytes(layout)
        for number, batch in enumerate(self.planned[:planned]):
            copy.plan(batch)
            if number < min(self.committed, committed):
                copy.commit(number)
        return copy

    def other_last_batch(self) -> Planned | None:
        """Return another plan of the last batch for an older copy; None if both look the same."""
        if self.is_unfinished or not self.planned or not self.planned[-1].sinks:
            return None
        last = self.planned[-1]
        sinks = {
            sink: {
                task: [(topic, position, b"older-" + value) for topic, position, value in records]
                for task, records in tasks.items()
            }
            for sink, tasks in last.sinks.items()
        }
        return replace(last, end=next_position(last.end, 1), sinks=sinks)
