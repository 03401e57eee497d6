"""Compaction and retention of the embedded log."""

from __future__ import annotations

import sqlite3

from headrace.brokers.embedded.topics import Partition, find_partition, next_base
from headrace.brokers.log import TopicPartition

_DIRTY_RECORDS = 1_000
_DIRTY_RATIO = 0.5


def is_dirty(partition: Partition) -> bool:
    """Return whether cleaning is due: at least 1,000 offsets, and half of the records, are new."""
    dirty = partition.end_offset - partition.cleaned
    return dirty >= max(_DIRTY_RECORDS, _DIRTY_RATIO * (dirty + partition.compacted_records))


def clean_partition(file: sqlite3.Connection, name: TopicPartition, now: int) -> None:
    """Delete the records that the topic's settings do not keep."""
    partition = find_partition(file, name)
    if partition.settings.compacts:
        _compact(file, partition, now)
    if partition.settings.deletes:
        _expire(file, partition, now)
    (compacted_records,) = file.execute(
        "SELECT count(*) FROM record WHERE rowid >= ? AND rowid < ?", _rowid_range(partition)
    ).fetchone()
    file.execute(
        "UPDATE partition SET cleaned = end_offset, compacted_records = ? WHERE id = ?",
        (compacted_records, partition.id),
    )


def delete_before(file: sqlite3.Connection, partition: Partition, offset: int) -> None:
    """Delete the records before an offset, where the partition begins from now on."""
    file.execute(
        "DELETE FROM record WHERE rowid >= ? AND rowid < ?",
        (partition.base, partition.base + offset),
    )
    file.execute(
        "UPDATE partition SET log_start_offset = max(log_start_offset, ?) WHERE id = ?",
        (offset, partition.id),
    )


def _compact(file: sqlite3.Connection, partition: Partition, now: int) -> None:
    settings = partition.settings
    old_enough = now - settings.min_compaction_lag_ms
    rowids = _rowid_range(partition)
    # A tombstone stays for `delete.retention.ms` behind the pass that removes the records before
    # it, so that a reader of one of these sees it, too.
    file.execute(
        "DELETE FROM record WHERE rowid IN ("
        " SELECT rowid FROM (SELECT rowid, value, appended, count(*) OVER (PARTITION BY key) AS n"
        " FROM record WHERE rowid >= ? AND rowid < ?)"
        " WHERE value IS NULL AND n = 1 AND appended <= ?)",
        (*rowids, min(old_enough, now - settings.delete_retention_ms)),
    )
    file.execute(
        "UPDATE record SET appended = ? WHERE value IS NULL AND rowid IN ("
        " SELECT newest FROM (SELECT rowid, appended, max(rowid) OVER (PARTITION BY key) AS newest"
        " FROM record WHERE rowid >= ? AND rowid < ?) WHERE rowid < newest AND appended <= ?)",
        (now, *rowids, old_enough),
    )
    file.execute(
        "DELETE FROM record WHERE rowid IN ("
        " SELECT rowid FROM (SELECT rowid, appended, max(rowid) OVER (PARTITION BY key) AS newest"
        " FROM record WHERE rowid >= ? AND rowid < ?) WHERE rowid < newest AND appended <= ?)",
        (*rowids, old_enough),
    )


def _expire(file: sqlite3.Connection, partition: Partition, now: int) -> None:
    """Drop records from the oldest on, as Kafka drops segments: up to the first that may stay."""
    settings = partition.settings
    rowids = _rowid_range(partition)
    first = None
    if settings.retention_ms >= 0:
        (first,) = file.execute(
            "SELECT coalesce((SELECT rowid FROM record WHERE rowid >= ? AND rowid < ?"
            " AND timestamp >= ? ORDER BY rowid LIMIT 1), ?)",
            (*rowids, now - settings.retention_ms, partition.base + partition.end_offset),
        ).fetchone()
    if settings.retention_bytes >= 0:
        (fits,) = file.execute(
            "SELECT coalesce((SELECT min(rowid) FROM (SELECT rowid,"
            " sum(coalesce(length(key), 0) + coalesce(length(value), 0)"
            " + coalesce(length(headers), 0)) OVER (ORDER BY rowid DESC) AS bytes"
            " FROM record WHERE rowid >= ? AND rowid < ?) WHERE bytes <= ?), ?)",
            (*rowids, settings.retention_bytes, partition.base + partition.end_offset),
        ).fetchone()
        first = fits if first is None else max(first, fits)
    if first is not None:
        delete_before(file, partition, first - partition.base)


def _rowid_range(partition: Partition) -> tuple[int, int]:
    return partition.base, next_base(partition.base)
