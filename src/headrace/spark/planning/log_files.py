"""The files of a checkpoint in which Spark writes down its batches; whole, or refused."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import msgspec

from headrace.errors import CheckpointError

SPARK_FOLDER = "spark"
"""Where Spark's own files are in a checkpoint."""

_LOGS = (
    ("offsets", 2, "Restore the checkpoint from a copy, or start again with `headrace reset`."),
    ("commits", 1, "Delete it and its `.crc`: its batch is done again, and nothing written twice."),
)
"""Spark's logs: how many lines a file has besides its version, and what helps if one is torn."""

_CHECKSUM_HEADER = 8


def check_log_files(checkpoint: Path) -> None:
    """Refuse a checkpoint whose last batch is not written down in full.

    Spark would try to read it again and again.

    Raises:
        CheckpointError: A file was cut short, as a power failure may do.
    """
    for folder, lines, remedy in _LOGS:
        numbered = [
            path for path in (checkpoint / SPARK_FOLDER / folder).glob("*") if path.name.isdecimal()
        ]
        newest = max(numbered, key=lambda path: int(path.name), default=None)
        if newest is not None and not _is_whole(newest, lines):
            msg = f"The file {str(newest)!r} of the checkpoint is torn. {remedy}"
            raise CheckpointError(msg)


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
