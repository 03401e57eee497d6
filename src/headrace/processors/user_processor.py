"""Run the processors that users write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.errors import RecordError
from headrace.processors.operation import NodeContext, Operation, Process
from headrace.records import FixedKeyRecord, Headers, Record


@dataclass(frozen=True)
class UserProcessor(Operation):
    """Hand each record to a `Processor` or `FixedKeyProcessor`, renewed at each commit."""

    supplier: Callable[[], Any]
    fixed_key: bool = False

    stateless = False
    may_schedule = True
    looks_up_global_stores = True

    def bind(self, node: NodeContext) -> Process:
        context, fail = node.processor_context(), node.fail
        make = FixedKeyRecord if self.fixed_key else Record
        current: Any = None

        def start() -> None:
            nonlocal current
            current = self.supplier()
            context.initialise(current)

        def renew() -> None:
            context.close(current)
            start()

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                current.process(make(key, value, timestamp, headers))
            except RecordError:
                raise  # a child's: the handler has decided already
            except Exception as error:
                fail(error, key, value, timestamp, headers)

        node.on_start(start)
        node.on_commit(renew)
        node.on_close(lambda: context.close(current))
        return process
