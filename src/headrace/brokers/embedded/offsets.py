"""Committed offsets of groups in the embedded log."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from headrace.brokers.embedded.database import Count
from headrace.brokers.embedded.topics import find_partition
from headrace.brokers.log import OffsetAndMetadata, TopicPartition
from headrace.errors import BrokerError

_MAX_METADATA_BYTES = 4096

_Rows: TypeAlias = list[tuple[str, Count, Count, str]]


def commit(
    file: sqlite3.Connection, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> None:
    """Store the offsets of a group."""
    checked_group(group)
    for name, (offset, metadata) in offsets.items():
        if len(metadata.encode()) > _MAX_METADATA_BYTES:
            msg = (
                f"The metadata of an offset of group {group!r} is longer than "
                f"{_MAX_METADATA_BYTES} bytes. Shorten it."
            )
            raise BrokerError(msg)
        if offset < 0:
            msg = f"Group {group!r} cannot commit offset {offset} of {name}. Use zero or more."
            raise BrokerError(msg)
        file.execute(
            "INSERT OR REPLACE INTO committed VALUES (?, ?, ?, ?)",
            (group, find_partition(file, TopicPartition(*name)).id, offset, metadata),
        )


def committed(
    file: sqlite3.Connection, group: str, partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the committed offsets of a group."""
    rows = file.execute(
        'SELECT t.name, p.number, c."offset", c.metadata FROM committed c'
        " JOIN partition p ON p.id = c.partition JOIN topic t ON t.id = p.topic"
        " WHERE c.group_id = ? ORDER BY t.name, p.number",
        (group,),
    ).fetchall()
    names = None if partitions is None else set(partitions)
    return {
        TopicPartition(topic, number): OffsetAndMetadata(offset, metadata)
        for topic, number, offset, metadata in msgspec.convert(rows, _Rows)
        if names is None or (topic, number) in names
    }


def checked_group(group: str) -> str:
    """Return the name of a group if it is allowed."""
    if not isinstance(group, str) or not group or "\0" in group or len(group) > 32_767:
        msg = f"{group!r} cannot be the name of a group. Use a text that is not empty."
        raise BrokerError(msg)
    return group
