"""The interface of the instance in whose process a coordinator runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from headrace.queries.catalog import Catalog
from headrace.queries.copy.layout import Shard
from headrace.queries.copy.views import KeptSnapshots
from headrace.queries.members import MemberStatus
from headrace.queries.problems import QueryProblemError
from headrace.runtime.snapshots import SnapshotRecord

T = TypeVar("T")


class QueriedInstance(Protocol):
    """An instance, as its readers see it. Readers call it from any thread."""

    @property
    def name(self) -> str | None:
        """``application.server`` of the instance; None: a private copy."""
        ...

    @property
    def catalog(self) -> Catalog:
        """The stores of its program."""
        ...

    @property
    def snapshots(self) -> KeptSnapshots:
        """The snapshots that it shows."""
        ...

    def newest_record(self) -> SnapshotRecord | None:
        """Return the newest snapshot record that it has read."""

    def problem(self) -> QueryProblemError | None:
        """Return why no shard can answer; None: some may."""

    def shard_problem(self, shard: Shard, /) -> QueryProblemError | None:
        """Return why a shard cannot answer; None: it can."""

    def is_shard_ready(self, shard: Shard, /) -> bool:
        """Return whether a shard is shown, and not far behind."""
        ...

    def status(self) -> MemberStatus:
        """Return what it says about itself."""
        ...

    def members(self) -> Mapping[str, MemberStatus]:
        """Return all known instances, itself included."""
        ...

    def placement(self) -> Mapping[Shard, tuple[str, ...]]:
        """Return the instances that should have each shard, the first to ask first."""
        ...

    def note_status(self, status: MemberStatus, /) -> None:
        """Remember what another instance says about itself."""

    def add_listener(self, callback: Callable[[], None], /) -> Callable[[], None]:
        """Call a function, from any thread, after a change; return what removes it."""
        ...


async def await_change(
    instance: QueriedInstance, find: Callable[[], T | None], seconds: float
) -> T | None:
    """Return what a function finds, now or after a change of the instance; None: not in time."""
    found = find()
    if found is not None or seconds <= 0:
        return found
    changed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wake() -> None:
        loop.call_soon_threadsafe(changed.set)

    remove = instance.add_listener(wake)
    try:
        async with asyncio.timeout(seconds):
            while (found := find()) is None:
                await changed.wait()
                changed.clear()
    except TimeoutError:
        return find()
    finally:
        remove()
    return found
