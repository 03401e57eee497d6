"""Good events beside bad ones of every kind; handlers drop each bad one, as a dead letter."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from chaos import oracle
from chaos.contract import MAX_RECORD_BYTES, Sent, Workload
from chaos.workloads.generating import PARTITIONS, SETTINGS, chance, event
from chaos.workloads.running_aggregate import add, nothing
from chaos.workloads.stamping import stamped
from headrace import Materialized, StreamsBuilder, Topology

KINDS = (
    "broken-bytes",
    "huge-headers",
    "oversized-records",
    "expanding-records",
    "unknown-topics",
    "refused-records",
    "deep-recursion",
)
"""The kinds of bad records; `huge-headers` are good ones."""

_NORMAL_GAP = 25
"""One record in this many is bad, without any fault."""
_BROKEN = (b"", b"{", b"\xff\xfe\xff", b"[1, 2]", b'{"id": "\xed\xa0\x80"}', b"\x00" * 50, b"7")
_OVERSIZED_BYTES = 1_500_000
_EXPANDED_BYTES = MAX_RECORD_BYTES + 100_000
"""The broker keeps such a record compressed to some kilobytes, and a client expands it."""
_HEADERS, _HEADER_BYTES = 100, 1_000
_ECHO_BYTES = 300_000
"""The largest record of the echo's topic; its dead letter still fits the topic of dead letters."""
_DEPTH = 100_000


def bad_record(kind: str, seed: int, number: int) -> Sent:
    """Return a record of one of `KINDS`."""
    random = chance(seed, number)
    good = event("bad-events", seed, number, keys=30)
    fields = json.loads(good.value or b"")
    if kind == "huge-headers":
        values = ((f"header-{n}", random.randbytes(_HEADER_BYTES)) for n in range(_HEADERS))
        return good._replace(headers=tuple(values))
    if kind == "broken-bytes":
        return good._replace(value=random.choice(_BROKEN))
    if kind == "oversized-records":
        return good._replace(value=b"\xff" * _OVERSIZED_BYTES)
    if kind == "expanding-records":
        fields["padding"] = "0" * _EXPANDED_BYTES
    elif kind == "unknown-topics":
        fields["topic"] = random.choice(("bad/nowhere", f"bad-nowhere-{number}"))
    elif kind == "deep-recursion":
        fields["depth"] = _DEPTH
    else:
        fields["expand"] = random.randrange(_ECHO_BYTES, 2 * _ECHO_BYTES)
    return good._replace(value=json.dumps(fields).encode())


def _recurse(depth: int) -> int:
    return 0 if depth == 0 else 1 + _recurse(depth - 1)


def _work(event: dict[str, Any]) -> dict[str, Any]:
    _recurse(event.get("depth", 0))
    return {**event, "padding": "x" * event["expand"]} if "expand" in event else event


def _topology() -> Topology:
    builder = StreamsBuilder()
    events = stamped(builder.stream("bad-events", key=str, value=dict[str, Any]), "events")
    worked = events.map_values(_work, name="work")
    worked.to(
        lambda _key, event, _context: event.get("topic", "bad-echo"), key=str, value=dict[str, Any]
    )
    good = worked.filter(lambda _key, event: "topic" not in event and "expand" not in event)
    totals = good.group_by_key(key=str, value=dict[str, Any]).aggregate(
        nothing,
        add,
        materialized=Materialized("bad-store", key=str, value=dict[str, Any]),
    )
    totals.to_stream().to("bad-totals")
    return builder.build()


def _records(seed: int, start: int, count: int) -> Iterator[Sent]:
    for number in range(start, start + count):
        if number % _NORMAL_GAP:
            yield event("bad-events", seed, number, keys=30)
        else:
            yield bad_record(KINDS[number // _NORMAL_GAP % len(KINDS)], seed, number)


WORKLOAD = Workload(
    name="bad_input",
    topics={"bad-events": PARTITIONS},
    outputs={"bad-letters": 1, "bad-echo": PARTITIONS, "bad-totals": PARTITIONS},
    stores={"bad-store": "key_value"},
    topic_settings={
        "bad-events": {
            "max.message.bytes": str(2 * _OVERSIZED_BYTES),
            "compression.type": "gzip",
        },
        "bad-echo": {"max.message.bytes": str(_ECHO_BYTES)},
    },
    settings={
        **SETTINGS,
        "max_record_bytes": MAX_RECORD_BYTES,
        "deserialization_exception_handler": "continue",
        "processing_exception_handler": "continue",
        "production_exception_handler": "continue",
        "errors_dead_letter_queue_topic_name": "bad-letters",
    },
    topology=_topology,
    records=_records,
    expected=oracle.bad_input,
    observed=oracle.bad_input_seen,
    traced=oracle.bad_input_traced,
    shown=("bad-store", "bad-totals"),
    twins=("bad-echo", "bad-totals"),
)
