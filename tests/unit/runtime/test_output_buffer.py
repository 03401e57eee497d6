"""Outputs of a batch are kept packed, and beyond a bound in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from headrace.records import Headers
from headrace.runtime.exchange.output_buffer import MOST_BYTES, OutputBuffer
from headrace.runtime.exchange.packing import outputs_of
from tests.unit.runtime.writing import Writing, outputs, packed


def values(buffer: OutputBuffer, task: int) -> list[bytes | None]:
    return [value for written in buffer.tasks[task] for value in written.values]


@pytest.mark.parametrize("most", [1, 1 << 20])
def test_each_task_has_what_it_wrote_in_its_order_as_often_as_asked(most: int) -> None:
    payloads = packed(
        outputs(1, b"late", sequence=2),
        outputs(0, b"a", b"b"),
        outputs(1, b"early", sequence=1),
        outputs(2),
        digest="of the batch",
    )

    with OutputBuffer(iter(payloads), most_bytes=most) as buffer:
        for _ in range(2):
            assert values(buffer, 0) == [b"a", b"b"]
            assert values(buffer, 1) == [b"early", b"late"]
        assert buffer.digest == "of the batch"
        assert [each.processed for each in buffer.reports] == [1, 2, 1, 0]
        assert buffer.tasks[1].task == "0_1"
        assert buffer.size == sum(map(len, payloads))


def test_two_may_be_read_in_turns() -> None:
    payloads = packed(outputs(0, b"a"), outputs(1, b"b"), outputs(0, b"c", sequence=2))

    with OutputBuffer(payloads, most_bytes=1) as buffer:
        first, second = iter(buffer.tasks[0]), iter(buffer.tasks[1])
        read = [next(each).values for each in (first, second, first)]

    assert read == [[b"a"], [b"b"], [b"c"]]


def test_outputs_are_cut_into_pieces_that_lose_and_change_nothing() -> None:
    headers = Headers([("trace", b"1")])
    payloads = packed(
        outputs(0, b"a", b"b", b"c", headers=headers),
        outputs(0, b"d", sequence=2),
        outputs(1, b"e"),
        outputs(1, b"f", sequence=2),
    )
    two = sum(map(len, payloads[1:3]))

    with OutputBuffer(payloads) as buffer:
        pieces = [
            {
                task_number: [record for written in some for record in outputs_of(written)]
                for task_number, some in piece.items()
            }
            for piece in buffer.chunks(two)
        ]
        whole = {
            task_number: [record for written in all_of_it for record in outputs_of(written)]
            for task_number, all_of_it in buffer.tasks.items()
        }

    first, second = whole[0], whole[1]
    assert pieces == [{0: first[:3]}, {0: first[3:], 1: second[:1]}, {1: second[1:]}]


def test_a_task_that_wrote_nothing_has_only_its_report() -> None:
    with OutputBuffer(packed(structs.replace(outputs(0), written=[]))) as buffer:
        assert not buffer.tasks
        assert [each.task for each in buffer.reports] == ["0_0"]


def test_output_beyond_the_memory_limit_goes_to_the_folder_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        "headrace.runtime.exchange.output_buffer.SpooledTemporaryFile",
        lambda *given, **named: asked.append((*given, named)),
    )
    OutputBuffer([], most_bytes=5, folder=tmp_path)
    OutputBuffer([])

    assert asked == [(5, {"dir": str(tmp_path)}), (MOST_BYTES, {"dir": None})]


def test_output_from_a_file_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OutputBuffer.__init__, "__defaults__", (1, None))
    writing = Writing(tmp_path)

    for _ in range(2):
        writing.write(outputs(0, b"a", b"b"), outputs(1, b"c"), outputs(0, b"d", sequence=2))

    assert writing.values() == [b"a", b"b", b"d", b"c"]
