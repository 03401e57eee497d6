"""Show each record to a function: peek, foreach and print."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from headrace.control_characters import escape_controls
from headrace.processors.operation import NodeContext, Operation, Process
from headrace.records import Headers


@dataclass(frozen=True)
class Peek(Operation):
    """Show each record to a function, then forward it."""

    action: Callable[[Any, Any], object]

    def bind(self, node: NodeContext) -> Process:
        action, forward, fail = self.action, node.forward, node.fail

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                action(key, value)
            except Exception as error:
                return fail(error, key, value, timestamp, headers)
            return forward(key, value, timestamp, headers)

        return process


@dataclass(frozen=True)
class Print(Operation):
    """Write a line per record: ``[label]: key, value``."""

    label: str
    file: TextIO | Path | None
    mapper: Callable[[Any, Any], str] | None

    def bind(self, node: NodeContext) -> Process:
        label, mapper, fail = self.label, self.mapper or _key_and_value, node.fail
        write, flush = self._open(node)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                write(f"[{label}]: {mapper(key, value)}\n")
                flush()
            except Exception as error:
                return fail(error, key, value, timestamp, headers)
            return None

        return process

    def _open(self, node: NodeContext) -> tuple[Callable[[str], object], Callable[[], object]]:
        if isinstance(self.file, Path):
            opened = self.file.open("a", encoding="utf-8")
            node.on_close(opened.close)
            return opened.write, opened.flush
        stream = sys.stdout if self.file is None else self.file
        return stream.write, stream.flush


def _key_and_value(key: Any, value: Any) -> str:
    return f"{_shown(key)}, {_shown(value)}"


def _shown(value: Any) -> str:
    return "null" if value is None else escape_controls(str(value), keep="\t")
