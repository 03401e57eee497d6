"""A consumer of the embedded log."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.brokers.embedded.database import Database
from headrace.brokers.embedded.groups import check_member
from headrace.brokers.embedded.membership import Membership
from headrace.brokers.embedded.offsets import commit
from headrace.brokers.embedded.reading import read_some
from headrace.brokers.embedded.topics import find_partition
from headrace.brokers.log import OffsetAndMetadata, TopicPartition, records_from_columns
from headrace.brokers.sessions import OnCommitted, RebalanceListener, Wakeup, needed_group
from headrace.errors import OffsetOutOfRangeError, StreamsError, UnknownTopicError
from headrace.records import ConsumerRecord

_SHORTEST_WAIT = 0.001
_LONGEST_WAIT = 0.02
"""Seconds between two checks of the file: a record may wait this long."""


@dataclass(frozen=True)
class EmbeddedGroupMetadata:
    """The member that commits, and its generation."""

    group: str
    member_id: str = ""
    generation: int = 0


class EmbeddedConsumer:
    """A `ConsumerSession` that polls the file for changes."""

    def __init__(self, database: Database, group: str | None, settings: Mapping[str, str]) -> None:
        self._database = database
        self._group = group
        self._settings = settings
        self._membership: Membership | None = None
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._woken = Wakeup()
        self._turn = 0

    def subscribe(
        self, topics: Collection[str] | re.Pattern[str], listener: RebalanceListener, /
    ) -> None:
        self._leave(announced=False)
        with_positions = replace(
            listener,
            assigned=lambda partitions: self._take(listener.assigned(partitions)),
            revoked=lambda partitions: self._drop(listener.revoked, partitions),
            lost=lambda partitions: self._drop(listener.lost, partitions),
        )
        self._membership = Membership(
            self._database, needed_group(self._group), topics, with_positions, self._settings
        )

    def assign(self, positions: Mapping[TopicPartition, int], /) -> None:
        self._leave(announced=False)
        self._positions = dict(positions)
        self._paused &= self._positions.keys()

    def seek(self, partition: TopicPartition, offset: int, /) -> None:
        self._positions[partition] = offset

    def pause(self, partitions: Collection[TopicPartition], /) -> None:
        self._paused.update(partitions)

    def resume(self, partitions: Collection[TopicPartition], /) -> None:
        self._paused.difference_update(partitions)

    def poll(self, timeout_ms: int, max_records: int, /) -> Sequence[ConsumerRecord]:
        deadline = time.monotonic() + timeout_ms / 1000
        while not self._woken.take():
            version = self._database.version()
            while self._membership is not None and self._membership.follow():
                pass
            records = self._fetch(max_records)
            if records or time.monotonic() >= deadline:
                return records
            self._await_change(version, deadline)
        return []

    def take_ends(self) -> Mapping[TopicPartition, int]:
        return {}  # only records have offsets

    def wakeup(self) -> None:
        self._woken.set()

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], /) -> None:
        metadata = self.group_metadata()
        if not offsets:
            return
        with self._database.writing() as file:
            check_member(file, metadata.group, metadata.member_id, metadata.generation)
            commit(file, metadata.group, offsets)

    def commit_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], on_completion: OnCommitted, /
    ) -> None:
        # A local write: there is nothing to wait for.
        try:
            self.commit(offsets)
        except StreamsError as error:
            on_completion(error)
        else:
            on_completion(None)

    def group_metadata(self) -> EmbeddedGroupMetadata:
        if self._membership is None:
            return EmbeddedGroupMetadata(needed_group(self._group))
        member = self._membership
        return EmbeddedGroupMetadata(member.group, member.id, member.generation)

    def close(self) -> None:
        try:
            self._leave(announced=True)
        finally:
            self._database.close()

    def _await_change(self, version: int, deadline: float) -> None:
        """Wait until the file has changed, `wakeup` is called, or a heartbeat is due."""
        if self._membership is not None:
            deadline = min(deadline, time.monotonic() + self._membership.next_look_ms / 1000)
        wait = _SHORTEST_WAIT
        while (left := deadline - time.monotonic()) > 0:
            if self._woken.wait(min(wait, left)) or self._database.version() != version:
                return
            wait = min(wait * 2, _LONGEST_WAIT)

    def _fetch(self, max_records: int) -> list[ConsumerRecord]:
        records: list[ConsumerRecord] = []
        readable = [name for name in self._positions if name not in self._paused]
        # Each fetch starts at another partition, so that none starves.
        self._turn += 1
        for index in range(len(readable)):
            if len(records) >= max_records:
                break
            name = readable[(index + self._turn) % len(readable)]
            records += self._fetch_from(name, max_records - len(records))
        return records

    def _fetch_from(self, name: TopicPartition, limit: int) -> list[ConsumerRecord]:
        with self._database.reading() as file:
            try:
                partition = find_partition(file, name)
            except UnknownTopicError:
                # The next generation of the group leaves it out.
                if self._membership is None:
                    raise
                return []
            start = self._positions[name]
            if not partition.log_start_offset <= start <= partition.end_offset:
                start = self._reset(name, start, partition.log_start_offset, partition.end_offset)
            columns = read_some(file, name, start, partition.end_offset, limit)
        records = records_from_columns(name, columns)
        self._positions[name] = records[-1].offset + 1 if records else partition.end_offset
        return records

    def _reset(self, name: TopicPartition, offset: int, start: int, end: int) -> int:
        """Return the position that replaces an offset outside the partition."""
        policy = self._settings.get("auto.offset.reset", "latest")
        if policy == "none":
            raise OffsetOutOfRangeError(*name, offset=offset, beginning=start)
        return start if policy == "earliest" else end

    def _take(self, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        self._positions.update(positions)
        return positions

    def _drop(
        self, notify: Callable[[list[TopicPartition]], None], partitions: list[TopicPartition]
    ) -> None:
        try:
            notify(partitions)
        finally:
            for partition in partitions:
                self._positions.pop(partition, None)
                self._paused.discard(partition)

    def _leave(self, *, announced: bool) -> None:
        if self._membership is not None:
            try:
                self._membership.leave(announced=announced)
            finally:
                self._membership = None
                self._positions.clear()
