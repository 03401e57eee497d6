"""Events in Avro whose schema only the registry knows: each number of a schema is asked for once.

Its handlers drop records that cannot be read, so a registry that is away would lose good ones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from chaos import oracle
from chaos.contract import Sent, Workload
from chaos.registry import REGISTRY, SCHEMA
from chaos.workloads.generating import PARTITIONS, SETTINGS, event
from chaos.workloads.running_aggregate import add, nothing
from chaos.workloads.stamping import stamped
from headrace import Materialized, StreamsBuilder, Topology
from headrace.serdes import AvroSerde

_RECORDS_OF_SCHEMA = 100
_PLAIN = AvroSerde(SCHEMA)
_NOWHERE = "http://127.0.0.1:1"
"""The registry of a process that only reads the state."""


def _topology() -> Topology:
    builder = StreamsBuilder()
    framed = AvroSerde(SCHEMA, registry=os.environ.get(REGISTRY, _NOWHERE))
    events = stamped(builder.stream("framed-events", key=str, value=framed), "events")
    events.to("framed-echo", key=str, value=dict[str, Any])
    totals = events.group_by_key(key=str, value=dict[str, Any]).aggregate(
        nothing,
        add,
        materialized=Materialized("framed-store", key=str, value=dict[str, Any]),
    )
    totals.to_stream().to("framed-totals")
    return builder.build()


def _records(seed: int, start: int, count: int) -> Iterator[Sent]:
    for number in range(start, start + count):
        sent = event("framed-events", seed, number, keys=30)
        frame = b"\x00" + (1 + number // _RECORDS_OF_SCHEMA).to_bytes(4)
        yield sent._replace(value=frame + _PLAIN.serialize(json.loads(sent.value or b"")))


WORKLOAD = Workload(
    name="framed_aggregate",
    topics={"framed-events": PARTITIONS},
    outputs={"framed-letters": 1, "framed-echo": PARTITIONS, "framed-totals": PARTITIONS},
    stores={"framed-store": "key_value"},
    has_registry=True,
    settings={
        **SETTINGS,
        "deserialization_exception_handler": "continue",
        "errors_dead_letter_queue_topic_name": "framed-letters",
    },
    topology=_topology,
    records=_records,
    expected=oracle.framed_aggregate,
    observed=oracle.framed_aggregate_seen,
    traced=lambda outputs: oracle.ids_in(outputs, "framed-echo"),
    shown=("framed-store", "framed-totals"),
    twins=("framed-echo", "framed-totals"),
)
