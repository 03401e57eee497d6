"""The partition of a record in a sink; tests/behaviour/test_to.py has what users choose."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.engine.sinks import bind_sink
from headrace.records import NO_HEADERS, Headers
from headrace.serdes import Serdes
from headrace.serdes.base import Serde
from headrace.serdes.partitioner import partition_for_key
from headrace.serdes.slots import SerdeSlot
from headrace.topology.nodes import SinkNode
from headrace.windows.window import Window, Windowed

Partitioner = Callable[[str, Any, Any, int], int | Iterable[int] | None]
LONG_1 = Serdes.long().serialize(1)


def written(
    key: Any,
    *,
    partitions: int = 3,
    partition: int = 1,
    serde: Serde[Any] | None = None,
    partitioner: Partitioner | None = None,
    internal: bool = False,
) -> list[tuple[Any, ...]]:
    """Return what a sink in a task of one partition writes for a key and the value 1."""
    task: Any = SimpleNamespace(
        settings=SimpleNamespace(application_id="app"),
        outputs=[],
        partition=partition,
        partitions_of=lambda _topic: partitions,
        record=None,
        drop=lambda *_: None,
    )
    node = SinkNode(
        name="sink",
        parents=("p",),
        topic="out",
        key=SerdeSlot("key", serde or Serdes.string()),
        value=SerdeSlot("value", Serdes.long()),
        partitioner=partitioner,
        internal=internal,
    )
    bind_sink(task, node)(key, 1, 5, NO_HEADERS)
    outputs: list[tuple[Any, ...]] = task.outputs
    return outputs


def test_a_topic_of_one_partition_needs_no_hash() -> None:
    assert written("ann", partitions=1) == [("out", 0, 5, b"ann", LONG_1, Headers())]


def test_the_hash_of_the_key_chooses_among_several() -> None:
    assert written("ann") == [("out", partition_for_key(b"ann", 3), 5, b"ann", LONG_1, Headers())]


@pytest.mark.parametrize(("partition", "expected"), [(0, 0), (1, 1), (4, 1)])
def test_a_record_without_a_key_stays_as_near_as_it_can(partition: int, expected: int) -> None:
    [output] = written(None, partition=partition)

    assert (output[1], output[3]) == (expected, None)


def test_a_windowed_key_is_hashed_without_its_window() -> None:
    serde: Serde[Any] = Serdes.time_windowed(Serdes.string(), 10)

    [output] = written(Windowed("ann", Window(20, 30)), serde=serde)

    assert output[1] == partition_for_key(b"ann", 3)
    assert output[3] == b"ann" + (20).to_bytes(8, "big")


def test_a_windowed_key_is_hashed_so_also_behind_a_partitioner_that_leaves_it_open() -> None:
    serde: Serde[Any] = Serdes.time_windowed(Serdes.string(), 10)

    [output] = written(Windowed("ann", Window(20, 30)), serde=serde, partitioner=lambda *_: None)

    assert output[1] == partition_for_key(b"ann", 3)


@pytest.mark.parametrize(
    ("chosen", "expected"), [(0, [0]), ((2, 0), [2, 0]), ([1, 1], [1]), ((), [])]
)
def test_a_partitioner_chooses_one_several_or_none(chosen: Any, expected: list[int]) -> None:
    outputs = written("ann", partitioner=lambda *_: chosen)

    assert [output[1] for output in outputs] == expected


def test_an_internal_topic_starts_with_the_application() -> None:
    [output] = written("ann", internal=True)

    assert output[0] == "app-out"
