"""Payloads: records packed for an exchange come out as they went in."""

from __future__ import annotations

import msgspec

from headrace.brokers.log import TopicPartition
from headrace.engine.sinks import Output
from headrace.records import NO_HEADERS, ConsumerRecord, Headers
from headrace.runtime.batches import Batch
from headrace.runtime.exchange.packing import (
    InputRecords,
    Payload,
    TaskCall,
    TaskOutput,
    TaskReport,
    TopicRecords,
    columns_of,
    header_column,
    outputs_of,
    pack,
    records_of,
    source_columns,
    sources_of,
    unpack,
)

BATCH = Batch(clock=17, digest="digest")
HEADERS = Headers([("trace", b"1"), ("trace", None)])


def through(payload: Payload) -> Payload:
    return unpack(pack(payload))


def test_records_come_out_as_they_went_in() -> None:
    payload = Payload(
        BATCH,
        input=InputRecords(
            subtopology=0,
            partition=1,
            task_number=2,
            topic="orders",
            source=1,
            first=5,
            offsets=None,
            timestamps=[10, 11],
            keys=[b"a", None],
            values=[None, b"\xff"],
            headers=header_column([HEADERS, NO_HEADERS]),
        ),
    )

    came = through(payload).input

    assert came is not None
    assert records_of(came) == [
        ConsumerRecord("orders", 1, 5, 10, b"a", None, HEADERS),
        ConsumerRecord("orders", 1, 6, 11, None, b"\xff", NO_HEADERS),
    ]
    assert type(records_of(came)[0]) is ConsumerRecord


def test_offsets_with_holes_are_kept() -> None:
    sent = InputRecords(0, 0, 0, "orders", 0, 3, [3, 7, 8], [1, 1, 1], [None] * 3, [b"v"] * 3)

    came = through(Payload(BATCH, input=sent)).input

    assert came is not None
    assert [record.offset for record in records_of(came)] == [3, 7, 8]


def test_headers_take_no_room_where_there_are_none() -> None:
    assert header_column([NO_HEADERS, Headers()]) is None
    assert header_column([NO_HEADERS, HEADERS]) == [None, list(HEADERS)]


def test_outputs_come_out_in_their_order() -> None:
    outputs: list[Output] = [
        ("out", 1, 10, b"a", b"1", HEADERS),
        ("out", 0, 11, None, None, NO_HEADERS),
    ]
    partitions, timestamps, keys, values, headers = columns_of(outputs)
    written = TopicRecords("out", partitions, timestamps, keys, values, header_column(headers))
    report = TaskReport("0_0", processed=2, dropped={"node": {"late": 1}}, next_due=4)

    came = through(Payload(BATCH, outputs=TaskOutput(3, 1, report, [written]))).outputs

    assert came is not None
    assert (came.task_number, came.sequence, came.report) == (3, 1, report)
    assert [each for subtopology in came.written for each in outputs_of(subtopology)] == outputs


def test_a_task_call_names_the_inputs_that_have_more() -> None:
    task_call = TaskCall(1, 2, 3, [TopicPartition("orders", 0), ("repartition", -1)])

    came = through(Payload(BATCH, task_call=task_call))

    assert came == Payload(BATCH, task_call=TaskCall(1, 2, 3, [("orders", 0), ("repartition", -1)]))


def test_outputs_keep_the_places_of_their_input_records() -> None:
    sources = [("orders", 1, 7), None, ("rates", 0, 2**40), ("orders", 1, 7)]
    report = TaskReport("0_1")
    plain = TopicRecords("out", [1] * 4, [0] * 4, [b"k"] * 4, [None] * 4)
    traced = msgspec.structs.replace(plain, sources=source_columns(sources))

    came = through(Payload(BATCH, outputs=TaskOutput(0, 0, report, [traced, plain]))).outputs

    assert came is not None
    assert [list(sources_of(each)) for each in came.written] == [sources, [None] * 4]
