"""A checkpoint: the folder of an application's progress and state, and the log of its batches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.runtime.checkpoint.batch_log import BatchLog


@dataclass(frozen=True)
class Checkpoint:
    """Names a checkpoint; each file in its folder has a reader of its own."""

    application_id: str
    folder: Path
    batch_log: BatchLog

    def __str__(self) -> str:
        return repr(str(self.folder))
