"""The task state: the data that a task saves besides its stores, at each commit."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from headrace.engine.punctuation import SavedSchedule
from headrace.errors import CheckpointError

FORMAT = 2
"""The format that this version writes and reads. A renamed or changed field needs another."""

BufferedRecord: TypeAlias = tuple[
    str, int, int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]
]
"""Topic, partition, offset, timestamp, key, value and headers of a record."""


class BufferedRange(msgspec.Struct, array_like=True, frozen=True):
    """Offsets of one input that a task has read and not processed. It holds no bytes."""

    topic: str
    partition: int
    first: int
    end: int
    count: int
    """How many records the range has; offsets may have holes."""


class BufferedBlob(msgspec.Struct, array_like=True, frozen=True):
    """A blob with buffered records of a repartition, which no log has."""

    topic: str
    first: int
    end: int
    size: int
    """How many bytes it has."""


class TaskState(msgspec.Struct, kw_only=True):
    """The state of a task besides its stores."""

    format: int = FORMAT
    stream_time: int = -1
    partition_times: dict[str, int] = {}
    """The latest timestamp of each input, by topic and partition."""
    deadlines: dict[str, int] = {}
    """Until when the task waits for an empty input, by topic and partition."""
    buffered: list[BufferedRecord] = []
    """The records that the task has read and not processed, if its host keeps them here."""
    buffered_ranges: list[BufferedRange] = []
    """The records that the task has read and not processed, if its host can read them again."""
    buffered_blobs: list[BufferedBlob] = []
    """Where the host keeps those of repartition topics, in the order of their offsets."""
    schedules: list[SavedSchedule] = []
    node_times: dict[str, dict[str, int]] = {}
    """The times that operations save, by node."""
    store_times: dict[str, dict[str, int]] = {}
    """The times that stores save, by store: see `headrace.state.store_times`."""
    repartition_offsets: dict[str, int] = {}
    """The next offset of each repartition topic inside a query; the host counts them."""


class _Format(msgspec.Struct):
    format: int = 0


encode_task_state = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(TaskState).decode
_decode_format = msgspec.msgpack.Decoder(_Format).decode


def decode_task_state(data: bytes, application_id: str) -> TaskState:
    """Return the task state; raise `CheckpointError` if another version of Headrace wrote it."""
    found = _decode_format(data).format
    if found == FORMAT:
        return _decode(data)
    msg = (
        f"A task state has format {found}, but this version of Headrace reads format {FORMAT}: run "
        f"the version that wrote it, or start again with `headrace reset {application_id}`."
    )
    raise CheckpointError(msg)
