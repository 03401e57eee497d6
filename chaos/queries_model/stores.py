"""The stores of the model's application: what each batch changes, and what each snapshot holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, TypeAlias

from chaos.queries_model.versions import VERSIONED, VERSIONS, VersionedState, Versions
from headrace.brokers.log import TopicPartition
from headrace.queries.copy.layout import CopyLayout, Shard, ShardGroup, StoreLayout
from headrace.state.store_types.base import ChangelogRecord

SNAPSHOTS = "app-snapshots"
SEGMENT_MS = 4
"""How many batches have their windows in one segment."""
KEPT_SEGMENTS = 2
KEYS = 5

Contents: TypeAlias = dict[TopicPartition, dict[bytes, bytes]]
"""The entries of every changelog partition."""


def window_segment(key: bytes, _timestamp: int) -> int:
    """Return the segment of a window by its changelog key."""
    return key[-1]


def first_segment(times: Mapping[str, Any] | None) -> int:
    """Return the first segment that a store keeps."""
    return max(0, times["time"] // SEGMENT_MS - KEPT_SEGMENTS) if times else 0


LAYOUT = CopyLayout(
    "layout",
    (
        ShardGroup("0", (StoreLayout("app-a"), StoreLayout("app-b"))),
        ShardGroup("1", (StoreLayout("app-w", window_segment, first_segment),)),
        ShardGroup("2", (VERSIONED,)),
        ShardGroup("global", (StoreLayout("app-g"),), is_global=True),
    ),
)
PARTITIONS = {"app-a": 2, "app-b": 2, "app-w": 1, VERSIONS: 1, "app-g": 1}
SHARDS = [Shard("0", 0), Shard("0", 1), Shard("1", 0), Shard("2", 0), Shard("global", 0)]


@dataclass
class ModelBatch:
    """The changes of one batch; a replay makes the same."""

    number: int
    changes: dict[TopicPartition, list[ChangelogRecord]]
    times: dict[str, dict[str, int]]
    """The times of the stores after the batch, by changelog."""


@dataclass
class History:
    """One life of the application."""

    id: str
    batches: list[ModelBatch] = field(default_factory=list)
    contents: list[Contents] = field(default_factory=list)
    """The contents of the stores after each batch; of the versioned one the latest values."""
    versions: list[Versions] = field(default_factory=list)
    """The versions that readers see after each batch."""
    _versioned: VersionedState = field(default_factory=VersionedState)

    def plan(self, random: Random) -> ModelBatch:
        """Add a batch with random changes."""
        number = len(self.batches)
        before = self.contents[-1] if self.contents else {}
        changes: dict[TopicPartition, list[ChangelogRecord]] = {}
        contents: Contents = {}
        for shard in SHARDS:
            for name in LAYOUT.partitions(shard):
                entries = dict(before.get(name, {}))
                if random.random() < 0.5:
                    is_versioned = name.topic == VERSIONS
                    change = self._versioned.change if is_versioned else partial(_changes, name)
                    changes[name] = change(random, number)
                for key, value, _ in changes.get(name, ()):
                    if value is None:
                        entries.pop(key, None)
                    else:
                        entries[key] = value
                if name.topic == "app-w":
                    oldest = first_segment({"time": number})
                    entries = {key: entries[key] for key in entries if key[-1] >= oldest}
                contents[name] = entries if name.topic != VERSIONS else self._versioned.latest()
        times = {"app-w": {"time": number}, VERSIONS: self._versioned.saved()}
        batch = ModelBatch(number, changes, times)
        self.versions.append(self._versioned.versions())
        self.batches.append(batch)
        self.contents.append(contents)
        return batch


def _changes(name: TopicPartition, random: Random, number: int) -> list[ChangelogRecord]:
    found: dict[bytes, bytes | None] = {}
    for _ in range(random.choice((1, 1, 2, 4))):
        key = b"k%d" % random.randrange(KEYS)
        if name.topic == "app-w":
            key += bytes([number // SEGMENT_MS])
        found[key] = None if random.random() < 0.25 else b"%d/%d" % (number, random.randrange(99))
    return [ChangelogRecord(key, value, number) for key, value in found.items()]
