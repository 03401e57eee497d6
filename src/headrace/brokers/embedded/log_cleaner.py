"""Compaction and retention: what a partition of the embedded log no longer keeps."""

from __future__ import annotations

import sqlite3

from headrace.brokers.embedded.topics import Partition, find_partition, next_base
from headrace.brokers.log import TopicPartition

_DIRTY_RECORDS = 1_000
_DIRTY_RATIO = 0.5


def is_dirty(partition: Partition) -> bool:
    """Whether cleaning is worth its time: as ``min.cleanable.dirty.ratio``, and never for little.

    Counting offsets is enough for a guess.
    """
    dirty = partition.ending - partition.cleaned
    return dirty >= max(_DIRTY_RECORDS, _DIRTY_RATIO * (dirty + partition.kept))


def clean_partition(file: sqlite3.Connection, name: TopicPartition, now: int) -> None:
    """Remove what the settings of a topic let go.

    Args:
        file: The file, in a transaction that writes.
        name: The partition.
        now: The time in milliseconds.
    """
    partition = find_partition(file, name)
    if partition.settings.compacts:
        _compact(file, partition, now)
    if partition.settings.deletes:
        _expire(file, partition, now)
    (kept,) = file.execute(
        "SELECT count(*) FROM record WHERE place >= ? AND place < ?", _places(partition)
    ).fetchone()
    file.execute(
        "UPDATE partition SET cleaned = ending, kept = ? WHERE id = ?", (kept, partition.id)
    )


def delete_before(file: sqlite3.Connection, partition: Partition, offset: int) -> None:
    """Let a partition begin at an offset; earlier records are gone."""
    file.execute(
        "DELETE FROM record WHERE place >= ? AND place < ?",
        (partition.base, partition.base + offset),
    )
    file.execute(
        "UPDATE partition SET beginning = max(beginning, ?) WHERE id = ?", (offset, partition.id)
    )


def _compact(file: sqlite3.Connection, partition: Partition, now: int) -> None:
    settings = partition.settings
    old_enough = now - settings.min_compaction_lag_ms
    places = _places(partition)
    file.execute(
        "DELETE FROM record WHERE place IN ("
        " SELECT place FROM (SELECT place, appended, max(place) OVER (PARTITION BY key) AS newest"
        " FROM record WHERE place >= ? AND place < ?) WHERE place < newest AND appended <= ?)",
        (*places, old_enough),
    )
    # A tombstone stays for a while, so that readers see it; a record before it goes first.
    file.execute(
        "DELETE FROM record WHERE place IN ("
        " SELECT place FROM (SELECT place, value, appended, count(*) OVER (PARTITION BY key) AS n"
        " FROM record WHERE place >= ? AND place < ?)"
        " WHERE value IS NULL AND n = 1 AND appended <= ?)",
        (*places, min(old_enough, now - settings.delete_retention_ms)),
    )


def _expire(file: sqlite3.Connection, partition: Partition, now: int) -> None:
    """Drop records from the oldest on, as Kafka drops segments: up to the first that may stay."""
    settings = partition.settings
    places = _places(partition)
    first = None
    if settings.retention_ms >= 0:
        (first,) = file.execute(
            "SELECT coalesce((SELECT place FROM record WHERE place >= ? AND place < ?"
            " AND timestamp >= ? ORDER BY place LIMIT 1), ?)",
            (*places, now - settings.retention_ms, partition.base + partition.ending),
        ).fetchone()
    if settings.retention_bytes >= 0:
        (fits,) = file.execute(
            "SELECT coalesce((SELECT min(place) FROM (SELECT place,"
            " sum(coalesce(length(key), 0) + coalesce(length(value), 0)"
            " + coalesce(length(headers), 0)) OVER (ORDER BY place DESC) AS bytes"
            " FROM record WHERE place >= ? AND place < ?) WHERE bytes <= ?), ?)",
            (*places, settings.retention_bytes, partition.base + partition.ending),
        ).fetchone()
        first = fits if first is None else max(first, fits)
    if first is not None:
        delete_before(file, partition, first - partition.base)


def _places(partition: Partition) -> tuple[int, int]:
    return partition.base, next_base(partition.base)
