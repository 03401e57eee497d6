"""The type of versioned key-value stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headrace.durations import MAX_MS
from headrace.state.changelog import VersionChangelog
from headrace.state.maps import StoreBackend
from headrace.state.store_times import EntryTimes
from headrace.state.store_types.base import ChangelogRecord, LoggedStoreType, Opening
from headrace.state.versioned import Versioned, segment_ms

_DAY_MS = 86_400_000
"""How much longer than the history a version is kept from compaction: Kafka's."""


class VersionedType(LoggedStoreType):
    """The versions of each key. Its changelog has a record for each version."""

    kind = "versioned_key_value"
    times = EntryTimes
    is_versioned = True
    has_segments = True
    replaces = False

    def changelog_times(self) -> dict[str, str]:
        return {"min.compaction.lag.ms": str(min(MAX_MS, self.store.retention_ms + _DAY_MS))}

    def first_segment(self, saved: Mapping[str, int], /) -> int:
        retention_ms = self.store.retention_ms
        return (EntryTimes.from_saved(saved).time - retention_ms) // segment_ms(retention_ms)

    def new_changelog(self, topic: str, _now: Callable[[], int]) -> VersionChangelog:
        return VersionChangelog(topic)

    def open(self, opening: Opening) -> Versioned[Any, Any]:
        name, context = self.store.name, opening.context
        options = {"refused": lambda: context.drop(name, "expired"), "changelog": opening.changelog}
        return self._over(opening.backend, opening.times, **options)

    def open_for_reading(self, backend: StoreBackend, times: EntryTimes, /) -> Versioned[Any, Any]:
        return self._over(backend, times)

    def apply(self, records: Iterable[ChangelogRecord], backend: StoreBackend) -> None:
        restore = self._over(backend, EntryTimes()).restore
        for record in records:
            restore(*record)

    def _over(
        self, backend: StoreBackend, times: EntryTimes, **options: Any
    ) -> Versioned[Any, Any]:
        latest, history = backend.map(self.store), backend.segments(self.store)
        retention_ms = self.store.retention_ms
        return Versioned(
            *self.arguments, latest, history, times, retention_ms=retention_ms, **options
        )
