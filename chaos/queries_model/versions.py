"""The versioned store of the model's application: late versions, and what readers see of it."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, TypeAlias

from headrace.brokers.log import TopicPartition
from headrace.queries.catalog import layout_of
from headrace.queries.copy.database import DatabaseView
from headrace.queries.copy.entry_maps import ViewStores
from headrace.queries.copy.keys import entry_prefix
from headrace.serdes import Serdes
from headrace.state.cache import CacheBudget
from headrace.state.changelog import VersionChangelog
from headrace.state.maps import MemoryStores
from headrace.state.specs import Stores
from headrace.state.store_times import EntryTimes
from headrace.state.store_types.base import ChangelogRecord, Opening
from headrace.state.store_types.lookup import logged_type_of
from headrace.state.versioned import Versioned

VERSIONS = "app-v"
"""The changelog of the store."""
RETENTION_MS = 9_000
BATCH_MS = 500
"""How much event time a batch covers."""
_LATE_MS = 4_000
_KEYS = [f"k{number}" for number in range(4)]
_ALWAYS = 1 << 40

Versions: TypeAlias = dict[str, list[tuple[bytes, int, int | None]]]
"""By key each version that readers see: value, since when, until when."""

_SPEC = Stores.versioned_key_value("v", str, bytes, history_retention=RETENTION_MS)
_TYPE = logged_type_of(_SPEC)
VERSIONED = layout_of(VERSIONS, _TYPE)
"""How a copy arranges the store: as every versioned store."""


class _Context:
    stream_time = 0
    cache: CacheBudget | None = None

    def drop(self, _store: str, _reason: str, /) -> None:
        """Do nothing: a version that is too old is refused."""


class VersionedState:
    """The store of the engine, with its changelog."""

    def __init__(self) -> None:
        self._times = EntryTimes()
        self._changelog = VersionChangelog(VERSIONS)
        opening = Opening(MemoryStores(), _Context(), self._times, self._changelog)
        self._store: Versioned[str, bytes] = _TYPE.open(opening)

    def change(self, random: Random, number: int) -> list[ChangelogRecord]:
        """Put some versions, late ones among them; return the changes of the changelog."""
        for _ in range(random.choice((1, 2, 4))):
            time = number * BATCH_MS + random.randrange(BATCH_MS)
            if random.random() < 0.5:
                time = max(0, time - random.randrange(_LATE_MS))
            value = None if random.random() < 0.25 else b"%d/%d" % (number, random.randrange(99))
            self._store.put(random.choice(_KEYS), value, time)
        timestamps, keys, values = self._changelog.take()
        rows = zip(keys, values, timestamps, strict=True)
        return [ChangelogRecord(key or b"", value, timestamp) for key, value, timestamp in rows]

    def saved(self) -> dict[str, int]:
        """Return the times of the store."""
        return self._times.saved()

    def versions(self) -> Versions:
        """Return what readers see."""
        return _versions(self._store)

    def latest(self) -> dict[bytes, bytes]:
        """Return the latest value of each key."""
        return latest_of(self.versions())


def versions_in(view: DatabaseView, name: TopicPartition, times: Mapping[str, Any]) -> Versions:
    """Return what readers of a copy see."""
    stores = ViewStores(view, entry_prefix(name))
    return _versions(_TYPE.open_for_reading(stores, EntryTimes.from_saved(times)))


def latest_of(versions: Versions) -> dict[bytes, bytes]:
    """Return the latest value of each key."""
    return {
        key.encode(): value
        for key, found in versions.items()
        for value, _, until in found
        if until is None
    }


def _versions(store: Versioned[str, bytes]) -> Versions:
    return {key: [*store.versions(Serdes.string().serialize(key), 0, _ALWAYS)] for key in _KEYS}
