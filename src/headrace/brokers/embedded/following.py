"""Reading partitions of the embedded log as they grow."""

from __future__ import annotations

import time
from collections.abc import Iterator

from headrace.brokers.embedded.database import Database
from headrace.brokers.embedded.reading import read_some
from headrace.brokers.embedded.topics import find_partition
from headrace.brokers.log import CHUNK_RECORDS, TopicPartition
from headrace.brokers.sessions import PartitionNews
from headrace.errors import UnknownTopicError

_LOOK_SECONDS = 0.003
"""How often the follower looks whether the file has changed, which takes 10 microseconds."""


class EmbeddedFollower:
    """A `Follower` that looks at the file for changes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._positions: dict[TopicPartition, int] = {}
        self._version: int | None = None
        """The state of the file that was read to its end; None: there is more."""

    def follow(self, partition: TopicPartition, offset: int, /) -> None:
        self._positions[partition] = offset
        self._version = None

    def leave(self, partition: TopicPartition, /) -> None:
        self._positions.pop(partition, None)

    def poll(self, seconds: float, /) -> list[PartitionNews]:
        deadline = time.monotonic() + seconds
        version = self._database.version()
        while version == self._version:
            left = deadline - time.monotonic()
            if left <= 0:
                return []
            time.sleep(min(left, _LOOK_SECONDS))
            version = self._database.version()
        self._version = version
        return [news for name in self._positions for news in self._read(name)]

    def close(self) -> None:
        self._database.close()

    def _read(self, name: TopicPartition) -> Iterator[PartitionNews]:
        """Yield one chunk of a partition, and its end if that is reached."""
        position = self._positions[name]
        with self._database.reading() as file:
            try:
                partition = find_partition(file, name)
            except UnknownTopicError:
                return
            end = partition.end_offset
            start = max(position, partition.log_start_offset)
            columns = read_some(file, name, start, end, CHUNK_RECORDS) if start < end else None
        if columns is not None and columns.offsets:
            position = self._positions[name] = columns.offsets[-1] + 1
            yield PartitionNews(name, columns, None)
            if position < end:
                self._version = None
                return
        self._positions[name] = max(position, end)
        yield PartitionNews(name, None, end)
