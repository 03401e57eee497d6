"""The files of a checkpoint in which Spark writes down its batches; whole, or refused."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import msgspec

from headrace.errors import CheckpointError
from headrace.spark.planning.positions import FIRST_FILE, read_first

SPARK_FOLDER = "spark"
"""Where Spark's own files are in a checkpoint."""

_OFFSETS_LINES, _COMMITS_LINES = 2, 1
"""How many lines files of Spark's logs have besides their version."""
_DELETE = "Delete it and its `.crc`: its batch is done again, and nothing written twice."

_CHECKSUM_HEADER = 8


def check_log_files(application_id: str, checkpoint: Path) -> None:
    """Refuse a checkpoint whose last batch is not written down in full.

    Spark would try to read it again and again.

    Raises:
        CheckpointError: A file was cut short, as a power failure may do.
    """
    restore = (
        "Restore the checkpoint from a copy, or start again with "
        f"`headrace reset {application_id}`."
    )
    planned, offsets = _newest(checkpoint, "offsets")
    ended, commits = _newest(checkpoint, "commits")
    if offsets is not None and not _is_whole(offsets, _OFFSETS_LINES):
        raise _torn(offsets, restore)
    if commits is not None and not _is_whole(commits, _COMMITS_LINES):
        # The next batch, if there is one, begins with the state that this file names.
        raise _torn(commits, _DELETE if planned == ended else restore)
    if planned > ended + 1:
        msg = (
            f"The checkpoint {str(checkpoint)!r} has begun batch {planned}, but does not say that "
            f"batch {planned - 1} has ended: a file is missing. {restore}"
        )
        raise CheckpointError(msg)
    if planned == 0 > ended and read_first(application_id, checkpoint) is None:
        msg = (
            f"The checkpoint {str(checkpoint)!r} has begun batch 0, but its file {FIRST_FILE!r}, "
            f"which says where that begins, is missing. {restore}"
        )
        raise CheckpointError(msg)


def _newest(checkpoint: Path, folder: str) -> tuple[int, Path | None]:
    """Return the last batch in a log of Spark and its file; -1 before the first."""
    files = (checkpoint / SPARK_FOLDER / folder).glob("*")
    numbered = {int(path.name): path for path in files if path.name.isdecimal()}
    newest = max(numbered, default=-1)
    return newest, numbered.get(newest)


def _torn(path: Path, remedy: str) -> CheckpointError:
    return CheckpointError(f"The file {str(path)!r} of the checkpoint is torn. {remedy}")


def _is_whole(path: Path, least: int) -> bool:
    data = path.read_bytes()
    checksum = path.with_name(f".{path.name}.crc")
    if checksum.exists() and not _fits(data, checksum.read_bytes()):
        return False
    version, *lines = data.split(b"\n")
    has_version = re.fullmatch(rb"v\d+", version) is not None
    return has_version and len(lines) >= least and all(map(_is_json, lines))


def _fits(data: bytes, checksum: bytes) -> bool:
    """Return whether data have the checksums that Hadoop wrote beside them."""
    size = int.from_bytes(checksum[4:_CHECKSUM_HEADER], "big")
    pieces = [data[start : start + size] for start in range(0, len(data), max(1, size))]
    sums = b"".join(zlib.crc32(piece).to_bytes(4, "big") for piece in pieces)
    return checksum[_CHECKSUM_HEADER:] == sums


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except msgspec.DecodeError:
        return line == b"-"  # Spark's word for no offset
    return True
