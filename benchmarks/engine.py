"""Measures how much the engine adds to the user's own work, per record.

Each program runs twice over the same records: through a production `Task`, and as a bare Python
loop that does the same work inline: the same serdes, the same conditions and arithmetic, the same
output tuples. The two take turns, and the fastest rounds of each are compared, in CPU time.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from headrace import (
    ConsumerRecord,
    Processor,
    ProcessorContext,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    Topology,
)
from headrace.config.topology_defaults import topology_defaults
from headrace.engine.settings import TaskSettings
from headrace.engine.task import Task
from headrace.records import NO_HEADERS
from headrace.state.maps import MemoryStores

RECORDS = 200_000
ROUNDS = 7


class Order(Struct):
    location: str
    amount: float
    kind: str


def is_large(_key: str, amount: int) -> bool:
    return amount > 100


def doubled(amount: int) -> int:
    return amount * 2


def is_general(_key: str, order: Order) -> bool:
    return order.kind == "GENERAL"


def taxed(order: Order) -> Order:
    return Order(order.location, order.amount * 1.2, order.kind)


counts = Stores.key_value("counts", str, int)


class Counter(Processor[str, int, str, int]):
    def init(self, context: ProcessorContext[str, int]) -> None:
        super().init(context)
        self.counts = context.get_state_store(counts)

    def process(self, record: Record[str, int]) -> None:
        seen = (self.counts.get(record.key) or 0) + 1
        self.counts.put(record.key, seen)
        self.context.forward(Record(record.key, seen, record.timestamp))


def stateless_topology() -> Topology:
    builder = StreamsBuilder()
    amounts = builder.stream("in", key=str, value=int)
    amounts.filter(is_large).map_values(doubled).to("out")
    return builder.build()


def stateless_loop(records: list[ConsumerRecord]) -> list[Any]:
    decode_key, decode = Serdes.string().deserialize, Serdes.long().deserialize
    encode_key, encode = Serdes.string().serialize, Serdes.long().serialize
    out: list[Any] = []
    for _, _, _, timestamp, raw_key, raw_value, headers in records:
        key, amount = decode_key(raw_key), decode(raw_value)
        if amount > 100:
            out.append(("out", 0, timestamp, encode_key(key), encode(amount * 2), headers))
    return out


def json_topology() -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream("in", key=str, value=Order)
    orders.filter(is_general).map_values(taxed).to("out")
    return builder.build()


def json_loop(records: list[ConsumerRecord]) -> list[Any]:
    serde = Serdes.json(Order)
    decode_key, decode = Serdes.string().deserialize, serde.deserialize
    encode_key, encode = Serdes.string().serialize, serde.serialize
    out: list[Any] = []
    for _, _, _, timestamp, raw_key, raw_value, headers in records:
        key, order = decode_key(raw_key), decode(raw_value)
        if order.kind == "GENERAL":
            new = Order(order.location, order.amount * 1.2, order.kind)
            out.append(("out", 0, timestamp, encode_key(key), encode(new), headers))
    return out


def processor_topology() -> Topology:
    topology = Topology()
    topology.add_source("source", "in", key=str, value=int)
    topology.add_processor("count", Counter, "source").add_state_store(counts, "count")
    topology.add_sink("sink", "out", "count", key=str, value=int)
    return topology


def processor_loop(records: list[ConsumerRecord]) -> list[Any]:
    decode_key, decode = Serdes.string().deserialize, Serdes.long().deserialize
    encode_key, encode = Serdes.string().serialize, Serdes.long().serialize
    store: dict[bytes, bytes] = {}
    out: list[Any] = []
    for _, _, _, timestamp, raw_key, raw_value, headers in records:
        key, _ = decode_key(raw_key), decode(raw_value)
        encoded = encode_key(key)
        found = store.get(encoded)
        seen = (0 if found is None else decode(found)) + 1
        store[encoded] = encode(seen)
        out.append(("out", 0, timestamp, encode_key(key), encode(seen), headers))
    return out


def numbers() -> list[ConsumerRecord]:
    encode = Serdes.long().serialize
    return [
        ConsumerRecord(
            "in", 0, i, i, f"key-{i % 1000}".encode(), encode(i * 7919 % 1000), NO_HEADERS
        )
        for i in range(RECORDS)
    ]


def orders() -> list[ConsumerRecord]:
    encode = Serdes.json(Order).serialize
    kinds = ("GENERAL", "RESTAURANT")
    return [
        ConsumerRecord(
            "in",
            0,
            i,
            i,
            f"key-{i % 1000}".encode(),
            encode(Order(f"store-{i % 50}", i % 100 / 3, kinds[i % 2])),
            NO_HEADERS,
        )
        for i in range(RECORDS)
    ]


def run_task(topology: Topology, records: list[ConsumerRecord]) -> tuple[float, list[Any]]:
    config = StreamsConfig(application_id="bench", statestore_cache_max_bytes=0)
    lowered = topology.lowered(topology_defaults(config))
    settings = TaskSettings.from_config(config, application_id="bench")
    task = Task(lowered.subtopologies, settings, MemoryStores())
    task.enqueue("in", records)
    gc.collect()
    started = time.process_time()
    task.process()
    task.commit()
    return time.process_time() - started, task.outputs


def run_loop(
    loop: Callable[[list[ConsumerRecord]], list[Any]], records: list[ConsumerRecord]
) -> tuple[float, list[Any]]:
    gc.collect()
    started = time.process_time()
    out = loop(records)
    return time.process_time() - started, out


PROGRAMS: dict[str, tuple[Any, Any, Any, str]] = {
    "filter, map_values": (stateless_topology, stateless_loop, numbers, "3x"),
    "the same, JSON to JSON": (json_topology, json_loop, orders, "1.5x"),
    "Processor, one get and put": (processor_topology, processor_loop, numbers, ""),
}


def main() -> int:
    print(f"{'program':32} {'task µs':>8} {'loop µs':>8} {'ratio':>6}  bar")
    for name, (topology, loop, make, bar) in PROGRAMS.items():
        records = make()
        gc.freeze()  # the collector need not look at the harness's own records
        tasks, loops = [], []
        for _ in range(ROUNDS):
            seconds, emitted = run_task(topology(), records)
            bare_seconds, expected = run_loop(loop, records)
            if emitted != expected:
                print(f"{name}: the task and the loop disagree", file=sys.stderr)
                return 1
            tasks.append(seconds)
            loops.append(bare_seconds)
        task_us = min(tasks) / RECORDS * 1e6
        loop_us = min(loops) / RECORDS * 1e6
        print(f"{name:32} {task_us:8.3f} {loop_us:8.3f} {task_us / loop_us:5.2f}x  {bar}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
