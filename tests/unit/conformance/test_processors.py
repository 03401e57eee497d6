from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from headrace_conformance.processors import processor_supplier, transformer_supplier
from headrace_conformance.script import Memory
from headrace_conformance.stores import StoreKind
from headrace_conformance.values import UserError

from headrace import Record, RecordMetadata


class Schedule:
    def __init__(self, interval: int, punctuator: Callable[[int], object]) -> None:
        self.interval = interval
        self.punctuator = punctuator
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class MapStore(dict[Any, Any]):
    def put(self, key: Any, value: Any) -> None:
        self[key] = value

    def all(self) -> list[tuple[Any, Any]]:
        return sorted(self.items())

    def delete(self, key: Any) -> Any:
        return self.pop(key, None)


class Context:
    """A context that records the calls of a processor."""

    record_metadata = RecordMetadata("in", 0, 7)

    def __init__(self) -> None:
        self.forwarded: list[tuple[Any, Any, int]] = []
        self.schedules: list[Schedule] = []
        self.store = MapStore()

    def forward(self, record: Record[Any, Any], _child: str | None = None) -> None:
        self.forwarded.append((record.key, record.value, record.timestamp))

    def schedule(
        self, interval: int, _type: object, punctuator: Callable[[int], object], **_: Any
    ) -> Schedule:
        self.schedules.append(Schedule(interval, punctuator))
        return self.schedules[-1]

    def get_state_store(self, _name: str) -> MapStore:
        return self.store

    def current_system_time_ms(self) -> int:
        return 1000


def started(definition: dict[str, Any], memory: Memory, context: Context) -> Any:
    kinds = {"s": StoreKind("key_value", "string", "long")}
    processor = processor_supplier(definition, memory, kinds)()
    processor.init(context)
    return processor


TICK = {
    "do": "schedule",
    "as": "s",
    "interval": 10,
    "type": "stream_time",
    "then": [
        {"do": "let", "as": "n", "expr": "$n|add:1"},
        {"do": "forward", "key": "const:tick", "value": "$n"},
        {"do": "if", "cond": "$n|eq:2", "then": [{"do": "cancel", "as": "s"}]},
    ],
}


def test_variables_outlive_the_instance_and_init_runs_once() -> None:
    definition = {"init": [{"do": "let", "as": "n", "expr": "const:0"}, TICK]}
    memory, context = Memory(), Context()

    for timestamp in (5, 15):
        started(definition, memory, context)
        context.schedules[-1].punctuator(timestamp)

    assert context.forwarded == [("tick", 1, 5), ("tick", 2, 15)]
    assert [schedule.cancelled for schedule in context.schedules] == [False, True]


def test_a_schedule_made_in_process_is_a_bound_method_found_by_name() -> None:
    memory, context = Memory(), Context()
    processor = started({"process": [TICK]}, memory, context)

    processor.process(Record("a", 1, 5))
    (schedule,) = context.schedules
    method: Any = schedule.punctuator
    renewed = started({"process": [TICK]}, memory, context)

    assert method.__self__ is processor
    assert callable(getattr(renewed, method.__name__))
    assert len(context.schedules) == 1


def test_a_forward_keeps_what_it_does_not_name() -> None:
    context = Context()
    actions = [
        {"do": "forward"},
        {"do": "forward", "key": "const:x", "ts": "@ts|add:5"},
        {"do": "forward", "value": "@offset"},
        {"do": "forward", "value": None},
        {"do": "forward", "value": "@now"},
    ]

    started({"process": actions}, Memory(), context).process(Record("a", 1, 5))

    assert context.forwarded == [
        ("a", 1, 5),
        ("x", 1, 10),
        ("a", 7, 5),
        ("a", None, 5),
        ("a", 1000, 5),
    ]


def test_each_reads_the_store_before_it_acts() -> None:
    context = Context()
    context.store |= {"a": 1, "b": 2}
    drain = {
        "do": "each",
        "store": "s",
        "method": "all",
        "then": [
            {"do": "forward", "key": "$k", "value": "$v"},
            {"do": "delete", "store": "s", "key": "$k"},
        ],
    }

    started({"process": [drain]}, Memory(), context).process(Record("x", 0, 5))

    assert context.forwarded == [("a", 1, 5), ("b", 2, 5)]
    assert not context.store


def test_a_store_is_read_and_written() -> None:
    context = Context()
    actions = [
        {"do": "get", "store": "s", "key": "key", "as": "n"},
        {"do": "put", "store": "s", "key": "key", "value": "add:$n"},
    ]
    processor = started({"process": actions}, Memory(), context)

    processor.process(Record("a", 1, 5))
    processor.process(Record("a", 3, 6))

    assert context.store == {"a": 4}


def test_the_fail_action_raises_what_a_user_would() -> None:
    processor = started({"process": [{"do": "fail"}]}, Memory(), Context())

    with pytest.raises(UserError):
        processor.process(Record("a", 1, 5))


def test_a_transformer_answers_after_its_actions() -> None:
    actions = [{"do": "let", "as": "n", "expr": "add:1"}]
    transformer = transformer_supplier(actions, "$n|pair", Memory(), {})()
    transformer.init(Context())

    assert transformer.transform("k", 4) == ["k", 5]
