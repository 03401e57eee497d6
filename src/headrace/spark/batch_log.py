"""Spark's batch log: the files in which Spark plans and commits its batches.

Run `make nightly PART=model` and `make nightly PART=cuts` after a change here.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from headrace.errors import CheckpointError
from headrace.runtime.batches import BatchBoundary
from headrace.runtime.checkpoint.checkpoint import Checkpoint
from headrace.runtime.checkpoint.files import FIRST_FILE, read_first

SPARK_FOLDER = "spark"
"""The folder of Spark's own files in a checkpoint."""

_OFFSETS_LINES, _COMMITS_LINES = 2, 1
"""The lines that a file has at least, besides its version."""
_DELETE = "Delete it and its `.crc`: Spark replays its batch, and writes nothing twice."
_CHECKSUM_HEADER = 8


class SparkBatchLog:
    """A `BatchLog` over the folders ``offsets`` and ``commits`` of a checkpoint."""

    def __init__(self, application_id: str, checkpoint: Path) -> None:
        self._application_id = application_id
        self._checkpoint = checkpoint
        self._folder = checkpoint / SPARK_FOLDER
        self._restore = (
            "Restore the checkpoint from a copy, or start again with "
            f"`headrace reset {application_id}`."
        )

    def query_id(self) -> str | None:
        path = self._folder / "metadata"
        try:
            return msgspec.json.decode(path.read_bytes(), type=_Metadata).id
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise _torn(path, f"{error}. {self._restore}") from error

    def plan(self, batch: int, end: BatchBoundary) -> None:
        pass  # Spark writes both files

    def commit(self, batch: int) -> None:
        pass

    def last_planned(self) -> int:
        return self._last("offsets")

    def is_committed(self, batch: int) -> bool:
        return (self._folder / "commits" / str(batch)).exists()

    def end_of(self, batch: int) -> BatchBoundary | None:
        try:
            lines = _lines(self._folder / "offsets" / str(batch), _OFFSETS_LINES)
        except FileNotFoundError:
            return None
        if lines is None or len(lines) != _OFFSETS_LINES:
            return None
        end: Any = lines[-1]
        try:
            boundary = BatchBoundary.from_dict(end)
        except msgspec.ValidationError:
            return None
        # Another version may have planned it, with other fields.
        return boundary if boundary.as_dict() == end else None

    def check(self) -> None:
        """Check that Spark can read its last batch. It would retry a torn file forever."""
        planned, committed = self._last("offsets"), self._last("commits")
        offsets, commits = self._folder / "offsets", self._folder / "commits"
        if planned >= 0 and _lines(offsets / str(planned), _OFFSETS_LINES) is None:
            raise _torn(offsets / str(planned), self._restore)
        if committed >= 0 and _lines(commits / str(committed), _COMMITS_LINES) is None:
            # The next batch, if there is one, begins with the state that this file names.
            remedy = _DELETE if planned == committed else self._restore
            raise _torn(commits / str(committed), remedy)
        if planned > committed + 1:
            msg = (
                f"The checkpoint {str(self._checkpoint)!r} has planned batch {planned}, but has "
                f"no commit of batch {planned - 1}: a file is missing. {self._restore}"
            )
            raise CheckpointError(msg)
        is_first = planned == 0 > committed
        if is_first and read_first(self._application_id, self._checkpoint) is None:
            msg = (
                f"The checkpoint {str(self._checkpoint)!r} has planned batch 0, but its file "
                f"{FIRST_FILE!r}, which holds where that batch begins, is missing. {self._restore}"
            )
            raise CheckpointError(msg)

    def _last(self, folder: str) -> int:
        names = (path.name for path in (self._folder / folder).glob("*"))
        return max((int(name) for name in names if name.isdecimal()), default=-1)


def spark_checkpoint(application_id: str, folder: Path) -> Checkpoint:
    """Return the checkpoint of an application that Spark runs."""
    return Checkpoint(application_id, folder, SparkBatchLog(application_id, folder))


class _Metadata(msgspec.Struct):
    id: str


def _torn(path: Path, remedy: str) -> CheckpointError:
    return CheckpointError(f"The file {str(path)!r} of the checkpoint is torn. {remedy}")


def _lines(path: Path, least: int) -> Sequence[object] | None:
    """Return the lines of a file of Spark's logs, without the version; None if it is torn."""
    data = path.read_bytes()
    checksum = path.with_name(f".{path.name}.crc")
    if checksum.exists() and not _fits(data, checksum.read_bytes()):
        return None
    version, *lines = data.split(b"\n")
    if re.fullmatch(rb"v\d+", version) is None or len(lines) < least:
        return None
    try:
        # A line `-` means that there is no offset.
        return [None if line == b"-" else msgspec.json.decode(line) for line in lines]
    except msgspec.DecodeError:
        return None


def _fits(data: bytes, checksum: bytes) -> bool:
    """Return whether data have the checksums that Hadoop wrote beside them."""
    size = int.from_bytes(checksum[4:_CHECKSUM_HEADER], "big")
    chunks = [data[start : start + size] for start in range(0, len(data), max(1, size))]
    sums = b"".join(zlib.crc32(chunk).to_bytes(4, "big") for chunk in chunks)
    return checksum[_CHECKSUM_HEADER:] == sums
