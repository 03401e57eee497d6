"""Processors written as lists of actions, as classes that Headrace can run.

Headrace recreates processors after each commit, while the language says that variables live as long
as the processor. So lasting values are in a `Memory` that belongs to the run of the scenario,
and ``init`` does its actions once: renewed, it only makes the same schedules again.

Schedules made in ``process`` must be bound methods that a renewed processor has too, so each
schedule of a definition becomes a method of a class made for that definition.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from headrace import (
    FixedKeyProcessor,
    FixedKeyRecord,
    Processor,
    Record,
    StoreBuilder,
    ValueTransformerWithKey,
)
from headrace_conformance.functions import expression
from headrace_conformance.script import Action, Memory, Moment, Script, StoreKinds
from headrace_conformance.stores import StoreKind, kind_of, store_builder


def processor_supplier(
    definition: Mapping[str, Any], memory: Memory, kinds: StoreKinds, *, fixed_key: bool = False
) -> Callable[[], Any]:
    """Return the class that does what ``definition`` says.

    Args:
        definition: ``{"init": actions, "process": actions}``, and ``stores`` that it brings along.
        memory: Shared by all instances.
        kinds: Every store of the scenario, by name.
        fixed_key: Whether to make a `FixedKeyProcessor`.
    """
    base: Any = FixedKeyProcessor if fixed_key else Processor
    schedules = list(_schedules([*definition.get("init", ()), *definition.get("process", ())]))
    record_type: Any = FixedKeyRecord if fixed_key else Record
    own_stores = definition.get("stores", ())
    own_kinds = {store["name"]: kind_of(store) for store in own_stores}
    known = ChainMap(own_kinds, cast("dict[str, StoreKind]", kinds))

    def init(self: Any, context: Any) -> None:
        base.init(self, context)
        self.script = Script(self, context, memory, known, schedules, record_type)
        self.script.start(definition.get("init", ()))

    def process(self: Any, record: Any) -> None:
        moment = Moment(record.key, record.value, record.timestamp, record.headers)
        self.script.run(definition.get("process", ()), moment)

    def stores(_self: Any) -> list[StoreBuilder[Any]]:
        return [store_builder(store) for store in own_stores]

    methods = {
        f"punctuate_{index}": _punctuation(index, schedules) for index in range(len(schedules))
    }
    return type(
        "Scripted", (base,), {"init": init, "process": process, "stores": stores, **methods}
    )


def transformer_supplier(
    actions: Sequence[Action], result: Any, memory: Memory, kinds: StoreKinds
) -> Callable[[], Any]:
    """Return the class of transformers that do ``actions``, then answer ``result``."""
    answer = expression(result)

    class Scripted(ValueTransformerWithKey[Any, Any, Any]):
        def transform(self, key: Any, value: Any) -> Any:
            script = Script(self, self.context, memory, kinds, (), Record)
            moment = Moment(key, value, -1)
            script.run(actions, moment)
            return answer(script.scope(moment))

    return Scripted


def _schedules(actions: Sequence[Action]) -> Iterator[Action]:
    for action in actions:
        if action["do"] == "schedule":
            yield action
        yield from _schedules([*action.get("then", ()), *action.get("else", ())])


def _punctuation(index: int, schedules: Sequence[Action]) -> Callable[[Any, int], None]:
    def punctuate(self: Any, timestamp: int) -> None:
        self.script.run(
            schedules[index]["then"], Moment(None, None, timestamp, is_punctuation=True)
        )

    # The engine finds a schedule's method again by its name.
    punctuate.__name__ = f"punctuate_{index}"
    return punctuate
