"""The type of versioned key-value stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from headrace.durations import MAX_MS
from headrace.state.changelog import VersionChangelog
from headrace.state.maps import StoreBackend
from headrace.state.store_times import EntryTimes
from headrace.state.store_types.base import ChangelogRecord, LoggedStoreType, StoreContext
from headrace.state.versioned import Versioned

_DAY_MS = 86_400_000
"""How much longer than the history a version is kept from compaction: Kafka's."""


class VersionedType(LoggedStoreType):
    """The versions of each key. Its changelog has a record for each version."""

    times = EntryTimes
    is_versioned = True

    def changelog_times(self) -> dict[str, str]:
        return {"min.compaction.lag.ms": str(min(MAX_MS, self.store.retention_ms + _DAY_MS))}

    def new_changelog(self, topic: str, _now: Callable[[], int]) -> VersionChangelog:
        return VersionChangelog(topic)

    def open(
        self,
        backend: StoreBackend,
        context: StoreContext,
        times: EntryTimes,
        changelog: VersionChangelog | None = None,
        /,
    ) -> Versioned[Any, Any]:
        name = self.store.name
        return self._over(backend, times, lambda: context.drop(name, "expired"), changelog)

    def open_for_reading(self, backend: StoreBackend, times: EntryTimes, /) -> Versioned[Any, Any]:
        return self._over(backend, times)

    def apply(self, records: Iterable[ChangelogRecord], backend: StoreBackend) -> None:
        store = self._over(backend, EntryTimes())
        for key, value, timestamp in records:
            store.restore(key, value, timestamp)

    def _over(
        self,
        backend: StoreBackend,
        times: EntryTimes,
        refused: Callable[[], None] = lambda: None,
        changelog: VersionChangelog | None = None,
        /,
    ) -> Versioned[Any, Any]:
        store = self.store
        return Versioned(
            store.name,
            store.key.need,
            store.value.need,
            backend.map(store),
            backend.segments(store),
            times,
            retention_ms=store.retention_ms,
            refused=refused,
            changelog=changelog,
        )
