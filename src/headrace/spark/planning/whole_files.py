"""Small files of a checkpoint: each is there as a whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Write a file in place of the one that may be there."""
    with _written_beside(path, data) as beside:
        beside.replace(path)


def create_file(path: Path, data: bytes) -> bool:
    """Write a file if there is none; return whether it was written.

    Of two processes that do it at the same time, one does.
    """
    with _written_beside(path, data) as beside:
        try:
            os.link(beside, path)
        except FileExistsError:
            return False
        except OSError:  # a file system without links: as good as it gets there
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
