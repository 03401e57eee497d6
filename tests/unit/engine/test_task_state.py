"""The bytes that a task saves besides its stores."""

from __future__ import annotations

import msgspec
import pytest

from headrace import CheckpointError
from headrace.engine.punctuation import SavedSchedule
from headrace.engine.task_state import (
    FORMAT,
    BufferedBlob,
    BufferedRange,
    TaskState,
    decode_task_state,
    encode_task_state,
)
from headrace.processors.api import PunctuationType

TICK = SavedSchedule("n", PunctuationType.STREAM_TIME, 10, 0, "tick", 20, cancelled=False)


def test_a_task_state_comes_back() -> None:
    saved = TaskState(
        stream_time=7,
        partition_times={"a-0": 5},
        deadlines={"b-0": 9},
        buffered=[("a", 0, 3, 5, b"\x00\xff", None, [("h", None), ("h", b"v")])],
        buffered_ranges=[BufferedRange("a", 0, 4, 9, 3)],
        buffered_blobs=[BufferedBlob("r", 0, 8, 100)],
        schedules=[TICK],
        node_times={"n": {"stream_time": 4}},
        store_times={"s": {"time": 6, "sequence": 2}},
        repartition_offsets={"r": 8},
    )

    assert decode_task_state(encode_task_state(saved), "app") == saved


@pytest.mark.parametrize("found", [0, FORMAT + 1])
def test_a_task_state_of_another_format_is_refused(found: int) -> None:
    data = msgspec.msgpack.encode({"format": found, "stream_time": "of another type"})

    with pytest.raises(CheckpointError) as caught:
        decode_task_state(data, "app")

    assert str(caught.value) == (
        f"A task state has format {found}, but this version of Headrace reads format {FORMAT}: run "
        "the version that wrote it, or start again with `headrace reset app`."
    )


def test_the_format_number_belongs_to_these_names() -> None:
    """Raise `FORMAT` when a name or a type changes."""
    names = {
        struct.__name__: " ".join(struct.__struct_fields__)
        for struct in (TaskState, BufferedRange, BufferedBlob, SavedSchedule)
    }

    assert FORMAT == 2
    assert names == {
        "TaskState": "format stream_time partition_times deadlines buffered buffered_ranges "
        "buffered_blobs schedules node_times store_times repartition_offsets",
        "BufferedRange": "topic partition first end count",
        "BufferedBlob": "topic first end size",
        "SavedSchedule": "node type interval_ms order method due cancelled",
    }
