"""Patches the application under test from outside, so that it reports which step it is at.

The Kafka client, SQLite and the three methods that Spark calls are wrapped as soon as they are
imported. `BREAKS` are deliberate mistakes: the harness must find them.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from chaos.steps import FOLDER, leap_ms, reached, refuse

BREAK = "CHAOS_BREAK"
"""The variable that names a mistake of `BREAKS`."""


def install() -> None:
    """Wrap what is imported from here on, if this process is under test."""
    if FOLDER in os.environ:
        check_targets()
        sys.meta_path.insert(0, _Patcher())


def check_targets() -> None:
    """Check that each module of `PATCHES` exists: a renamed one would switch its faults off.

    Raises:
        ModuleNotFoundError: One does not.
    """
    for name in PATCHES:
        package, *rest = name.split(".")
        spec = find_spec(package)  # imports nothing
        locations = [] if spec is None else spec.submodule_search_locations or []
        files = [Path(location, *rest) for location in locations]
        if not any(file.with_suffix(".py").exists() or file.is_dir() for file in files):
            msg = f"chaos/patching.py patches {name!r}, which does not exist."
            raise ModuleNotFoundError(msg)


class _Patcher:
    """Finds modules as Python does, and changes those of `PATCHES` once they are there."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        patch = PATCHES.get(name)
        spec = None if patch is None else PathFinder.find_spec(name, path, target)
        if patch is None or spec is None or spec.loader is None:
            return None
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_patch(module: ModuleType) -> None:
            execute(module)
            patch(module)

        loader.exec_module = execute_and_patch
        return spec


def _patch_kafka(client: Any) -> None:
    class Producer(client.Producer):  # type: ignore[misc]  # known when it runs
        def begin_transaction(self, *arguments: Any) -> None:
            reached("before-begin")
            super().begin_transaction(*arguments)
            reached("after-begin")

        def send_offsets_to_transaction(self, *arguments: Any) -> None:
            reached("after-produce")
            super().send_offsets_to_transaction(*arguments)
            reached("after-offsets")

        def commit_transaction(self, *arguments: Any) -> None:
            reached("before-commit")
            super().commit_transaction(*arguments)
            reached("after-commit")

    client.Producer = Producer


class _Connection(sqlite3.Connection):
    """A connection that reports when it writes the records of a transaction of the log."""

    _writes = False

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        is_marker = "INTO committed" in sql and str(parameters[0]).endswith("-markers")
        is_end = sql == "COMMIT" and self._writes
        self._writes = (self._writes or is_marker) and sql not in ("COMMIT", "ROLLBACK")
        if is_end:
            reached("before-commit")
        with _reporting_refusals():
            cursor = super().execute(sql, parameters)
        if is_marker:
            reached("after-offsets")
        if is_end:
            reached("after-commit")
        return cursor

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        with _reporting_refusals():
            cursor = super().executemany(sql, parameters)
        if "INTO record" in sql:
            self._writes = True
            reached("after-produce")
        return cursor


@contextmanager
def _reporting_refusals() -> Iterator[None]:
    """Report a full disk if a write fails for lack of room."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            refuse()
        raise


def _patch_embedded(module: Any) -> None:
    sqlite: Any = sqlite3
    sqlite.connect = partial(sqlite3.connect, factory=_Connection)
    enter = module.EmbeddedTransaction.__enter__

    def entering(transaction: Any) -> Any:
        reached("before-begin")
        entered = enter(transaction)
        reached("after-begin")
        return entered

    module.EmbeddedTransaction.__enter__ = entering


def _patch_sink(module: Any) -> None:
    commit = module.TopicWriter.commit

    def committing(writer: Any, messages: Any, batch: int) -> None:
        commit(writer, messages, batch)
        reached("before-spark-commit")

    module.TopicWriter.commit = committing
    if BREAK in os.environ:
        worker_log, mistaken = module.worker_log, BREAKS[os.environ[BREAK]]
        module.worker_log = lambda shipped: mistaken(worker_log(shipped))


def _patch_source(module: Any) -> None:
    latest = module.TopicReader.latestOffset

    def asking(reader: Any, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        # Spark asks from where the last batch ended once it has written that it did.
        if start != getattr(reader, "last_start", start):
            reached("after-spark-commit")
        reader.last_start = start
        answer: dict[str, Any] = latest(reader, start, limit)
        return answer

    module.TopicReader.latestOffset = asking


def _patch_clock(module: Any) -> None:
    clock = module.time
    module.time = SimpleNamespace(
        time_ns=lambda: clock.time_ns() + 1_000_000 * leap_ms(), monotonic=clock.monotonic
    )


PATCHES: dict[str, Callable[[Any], None]] = {
    "confluent_kafka": _patch_kafka,
    "headrace.brokers.embedded.writing": _patch_embedded,
    "headrace.runtime.planning.batch_clock": _patch_clock,
    "headrace.spark.sink": _patch_sink,
    "headrace.spark.source": _patch_source,
}


class _Log:
    """A log as the sink sees it, with a mistake."""

    def __init__(self, log: Any) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class _WithoutMarkers(_Log):
    """Hides the markers of written batches, so that a replay writes them again."""

    def committed_offsets(self, group: str, *given: Any) -> dict[Any, Any]:
        found: dict[Any, Any] = self._log.committed_offsets(group, *given)
        return {name: each for name, each in found.items() if not name.topic.endswith("-markers")}


class _MarkersFirst(_Log):
    """Commits the markers of a transaction, and its records in another one after that."""

    @contextmanager
    def transaction(self, *given: Any, **named: Any) -> Iterator[Any]:
        records: list[Any] = []
        with self._log.transaction(*given, **named) as first:
            yield SimpleNamespace(
                append=records.extend, commit_offsets=first.commit_offsets, ask_ends=first.ask_ends
            )
        if records:
            with self._log.transaction(*given, **named) as second:
                second.append(records)


class _ChangelogsApart(_Log):
    """Commits changelogs in a transaction of their own, after that of the records."""

    @contextmanager
    def transaction(self, *given: Any, **named: Any) -> Iterator[Any]:
        changes: list[Any] = []
        with self._log.transaction(*given, **named) as first:

            def append(records: Any) -> None:
                kept: list[Any] = []
                for record in records:
                    (changes if record[0].endswith("-changelog") else kept).append(record)
                first.append(kept)

            yield SimpleNamespace(
                append=append, commit_offsets=first.commit_offsets, ask_ends=first.ask_ends
            )
        if changes:
            with self._log.transaction(*given, **named) as second:
                second.append(changes)


BREAKS: dict[str, Callable[[Any], Any]] = {
    "ignore-markers": _WithoutMarkers,
    "commit-before-produce": _MarkersFirst,
    "changelogs-apart": _ChangelogsApart,
}
"""Mistakes on purpose."""
