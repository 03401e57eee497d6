"""A checkpoint with a torn last batch is refused, wherever it was cut."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from headrace import CheckpointError
from headrace.spark.batch_log import SparkBatchLog

OFFSETS = b'v1\n{"batchWatermarkMs":0,"conf":{"a":"b"}}\n{"offsets": {"orders": [4, 7]}}'
COMMITS = b'v2\n{"nextBatchWatermarkMs":0}'
FILES = [
    ("offsets", OFFSETS, "headrace reset app"),
    ("commits", COMMITS, "Spark replays its batch"),
]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint that has ended batch 11."""
    for folder, data, _ in FILES:
        written(tmp_path, folder, data)
    return tmp_path


def written(checkpoint: Path, folder: str, data: bytes, whole: bytes | None = None) -> Path:
    """Write batch 11, and a torn batch 9 that is not read any more."""
    place = checkpoint / "spark" / folder
    place.mkdir(parents=True, exist_ok=True)
    (place / "9").write_bytes(b"")
    (place / "11").write_bytes(data)
    if whole is not None:
        pieces = (whole[start : start + 16] for start in range(0, len(whole), 16))
        sums = (zlib.crc32(piece).to_bytes(4, "big") for piece in pieces)
        (place / ".11.crc").write_bytes(b"crc\0" + (16).to_bytes(4, "big") + b"".join(sums))
    return place / "11"


@pytest.mark.parametrize(("folder", "data", "remedy"), FILES)
@pytest.mark.parametrize("has_checksum", [True, False])
def test_a_file_that_was_cut_is_refused(
    folder: str, data: bytes, remedy: str, has_checksum: bool, checkpoint: Path
) -> None:
    for size in range(len(data)):
        path = written(checkpoint, folder, data[:size], data if has_checksum else None)

        with pytest.raises(CheckpointError, match=remedy) as caught:
            SparkBatchLog("app", checkpoint).check()

        assert str(path) in str(caught.value)


@pytest.mark.parametrize(("folder", "data", "_remedy"), FILES)
def test_a_file_with_another_checksum_is_refused(
    folder: str, data: bytes, _remedy: str, checkpoint: Path
) -> None:
    written(checkpoint, folder, data.replace(b"0", b"1"), data)

    with pytest.raises(CheckpointError, match="torn"):
        SparkBatchLog("app", checkpoint).check()


@pytest.mark.parametrize("has_checksum", [True, False])
def test_complete_files_are_accepted(has_checksum: bool, checkpoint: Path) -> None:
    for folder, data, _ in FILES:
        written(checkpoint, folder, data, data if has_checksum else None)

    SparkBatchLog("app", checkpoint).check()


def test_a_source_without_an_offset_is_whole(checkpoint: Path) -> None:
    written(checkpoint, "offsets", OFFSETS + b"\n-")

    SparkBatchLog("app", checkpoint).check()


def test_a_checkpoint_without_batches_is_accepted(tmp_path: Path) -> None:
    SparkBatchLog("app", tmp_path).check()


def begin_next(checkpoint: Path) -> None:
    (checkpoint / "spark" / "offsets" / "12").write_bytes(OFFSETS)


def test_an_unfinished_batch_is_accepted(checkpoint: Path) -> None:
    begin_next(checkpoint)

    SparkBatchLog("app", checkpoint).check()


def test_an_end_that_the_next_batch_begins_from_cannot_be_done_without(checkpoint: Path) -> None:
    begin_next(checkpoint)
    written(checkpoint, "commits", COMMITS[:-1])

    with pytest.raises(CheckpointError, match=r"is torn\. Restore the checkpoint from a copy"):
        SparkBatchLog("app", checkpoint).check()


def test_a_missing_commit_is_an_error(checkpoint: Path) -> None:
    begin_next(checkpoint)
    for end in (checkpoint / "spark" / "commits").iterdir():
        end.unlink()

    with pytest.raises(CheckpointError) as caught:
        SparkBatchLog("app", checkpoint).check()

    assert str(caught.value) == (
        f"The checkpoint {str(checkpoint)!r} has planned batch 12, but has no commit of batch "
        "11: a file is missing. Restore the checkpoint from a copy, or start again with "
        "`headrace reset app`."
    )
