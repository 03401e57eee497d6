"""The small files of a checkpoint. Each exists in full or does not exist.

Run `make nightly PART=model` and `make nightly PART=cuts` after a change here.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from headrace.errors import CheckpointError
from headrace.runtime.batches import BatchBoundary

FIRST_FILE = "first.json"
"""The file of a checkpoint that has the boundary at which its first batch begins."""


def replace_file(path: Path, data: bytes) -> None:
    """Write a file, or replace it, in one step."""
    with _written_beside(path, data) as beside:
        beside.replace(path)


def create_file(path: Path, data: bytes) -> bool:
    """Write a file if there is none; return whether this process wrote it, and no other."""
    with _written_beside(path, data) as beside:
        try:
            os.link(beside, path)
        except FileExistsError:
            return False
        except OSError:  # a file system without links: another process may come in between
            if path.exists():
                return False
            beside.replace(path)
        return True


@contextmanager
def _written_beside(path: Path, data: bytes) -> Iterator[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    beside = Path(name)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield beside
    finally:
        beside.unlink(missing_ok=True)


def read_first(application_id: str, checkpoint: Path) -> BatchBoundary | None:
    """Return where the first batch of an application begins; None before its first start."""
    path = checkpoint / FIRST_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=BatchBoundary)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise unreadable(path, application_id, error) from error


def unreadable(path: Path, application_id: str, error: Exception) -> CheckpointError:
    """Return the error of a file of a checkpoint that cannot be decoded."""
    remedy = f"or start again with `headrace reset {application_id}`."
    return CheckpointError(
        f"{str(path)!r} cannot be read: {error}.", f"Restore the checkpoint from a copy, {remedy}"
    )


def create_first(checkpoint: Path, boundary: BatchBoundary) -> None:
    """Write where the first batch of a checkpoint begins, unless it is written."""
    create_file(checkpoint / FIRST_FILE, msgspec.json.encode(boundary))
