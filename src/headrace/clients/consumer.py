"""KafkaConsumer: reads topics, alone or in a group, from Kafka or from the embedded log."""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any, Generic, TypeAlias, Unpack

from headrace.brokers import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition, open_log
from headrace.brokers.sessions import GroupMetadata, RebalanceListener, Wakeup
from headrace.clients.log_naming import name_log, naming_log
from headrace.clients.one_thread import OneThread, by_one_thread
from headrace.clients.records import ConsumerRecords
from headrace.clients.settings import ClientConfig, ConsumerSettings, client_config
from headrace.durations import Duration, duration_ms
from headrace.errors import (
    CommitFailedError,
    ConfigError,
    DeserializationError,
    NoOffsetForPartitionError,
    StreamsError,
    WakeupError,
)
from headrace.records import ConsumerRecord, K, Timestamp, V, readable, timestamp_ms
from headrace.serdes.base import Serde, SerdeLike, serde_for_topic
from headrace.serdes.deduce import serde_for

OnRebalance: TypeAlias = Callable[["KafkaConsumer[Any, Any]", list[TopicPartition]], None]
"""f(consumer, partitions), called from within `poll` or `close`."""

OnCommit: TypeAlias = Callable[
    [Mapping[TopicPartition, OffsetAndMetadata], StreamsError | None], None
]
"""f(offsets, error), called once per commit."""

_log = logging.getLogger(__name__)

_ITERATION_MS = 1_000


class KafkaConsumer(Generic[K, V]):
    """Reads records. One thread uses it; only `wakeup` may be called from another.

    Args:
        config: A mapping of Kafka's dotted names (``{"max.poll.records": 5}``), or the config of an
            application, whose broker and ``consumer`` settings it then has.
        key: The type, or the serde, of the keys.
        value: The type, or the serde, of the values.
        group_id: The group to share the work with, and to commit for.
        settings: Kafka's settings as keywords, which win: ``auto_offset_reset="earliest"``. Without
            ``bootstrap_servers`` the embedded log is read.

    Raises:
        ConfigError: Settings that cannot be used, all of them together.
    """

    def __init__(
        self,
        config: ClientConfig | None = None,
        /,
        *,
        key: SerdeLike[K],
        value: SerdeLike[V],
        group_id: str | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        _check_reset(settings.get("auto_offset_reset"))
        merged, client_settings = client_config("consumer", config, settings)
        self._reset = _check_reset(client_settings.get("auto.offset.reset"))
        own_group = client_settings.pop("group.id", None)
        group_id = own_group if group_id is None else group_id
        self._key, self._value = serde_for(key), serde_for(value)
        self._serdes = cache(self._serdes_of)
        self._one_thread = OneThread()
        self._group = group_id
        self._max_records = int(client_settings.get("max.poll.records", 500))
        self._commits_itself = (
            group_id is not None and client_settings.get("enable.auto.commit", "true") == "true"
        )
        self._commit_seconds = int(client_settings.get("auto.commit.interval.ms", 5_000)) / 1000
        self._commit_due = time.monotonic() + self._commit_seconds
        self._listeners: tuple[OnRebalance | None, ...] = (None, None, None)
        self._assigned: dict[TopicPartition, None] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._fetched: deque[ConsumerRecord] = deque()
        """Read from the broker, but not returned yet."""
        self._ends: dict[TopicPartition, int] = {}
        """Positions behind the fetched records and what follows them that is no record."""
        self._paused: set[TopicPartition] = set()
        self._is_subscribed = False
        self._starting: set[TopicPartition] = set()
        """Partitions that the session does not read yet: their positions go to it as a whole."""
        self._woken = Wakeup()
        self._closed = False
        self._config = merged
        self._broker = open_log(merged)
        self._session = self._broker.open_consumer(group_id, client_settings)
        self._completed: deque[Callable[[], None]] = deque()
        """Calls of `on_completion` that are due: commits that have ended."""

    def __enter__(self) -> KafkaConsumer[K, V]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @naming_log
    @by_one_thread
    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str],
        *,
        on_assigned: OnRebalance | None = None,
        on_revoked: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        """Read topics together with the other consumers of the group.

        Args:
            topics: Their names, or a pattern that whole names match, of new topics too.
            on_assigned: Partitions were added; may seek.
            on_revoked: Partitions are about to go to others; their offsets can be committed.
            on_lost: Partitions have gone to others; the function of ``on_revoked`` if left out.
        """
        if isinstance(topics, str):
            msg = f"`topics` is the text {topics!r}. Write `[{topics!r}]`, or a compiled pattern."
            raise StreamsError(msg)
        self._release_partitions()
        self._listeners = (on_assigned, on_revoked, on_revoked if on_lost is None else on_lost)
        self._is_subscribed = True
        listener = RebalanceListener(self._on_assigned, self._on_revoked, self._on_lost)
        names = topics if isinstance(topics, re.Pattern) else list(topics)
        self._session.subscribe(names, listener)

    @naming_log
    @by_one_thread
    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without sharing them with a group."""
        self._release_partitions()
        self._is_subscribed = False
        self._session.assign({})
        self._assigned = dict.fromkeys(TopicPartition(*partition) for partition in partitions)
        self._starting = set(self._assigned)

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that are read. Other threads may ask too."""
        return frozenset(self._assigned)

    @naming_log
    @by_one_thread
    def poll(self, timeout: Duration = 0) -> ConsumerRecords:
        """Return the next records; if there are none, wait for them until the time is up.

        Raises:
            WakeupError: `wakeup` was called.
            DeserializationError: The next record does not fit a serde, or the name of one of its
                headers is not UTF-8. Seek behind it to continue.
        """
        self._fetch(duration_ms(timeout, what="timeout"))
        records: list[ConsumerRecord] = []
        while self._fetched and len(records) < self._max_records:
            try:
                records.append(self._next())
            except DeserializationError:
                # Earlier records are returned first; the next call raises this.
                if not records:
                    raise
                break
        return ConsumerRecords(records)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Yield records one by one until `wakeup`; only yielded records count as read."""
        while True:
            try:
                self._one_thread.run("for … in consumer", partial(self._fetch, _ITERATION_MS))
            except WakeupError:
                return
            except StreamsError as error:
                name_log(self._config, error)
                raise
            while self._fetched:
                yield self._next()

    @naming_log
    @by_one_thread
    def commit(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None
    ) -> None:
        """Commit positions, and wait until the broker has stored them.

        Args:
            offsets: The next offset to read of each partition; left out: the positions.

        Raises:
            CommitFailedError: The partitions belong to others.
        """
        self._session.commit(self._to_commit(offsets))

    @naming_log
    @by_one_thread
    def commit_async(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        on_completion: OnCommit | None = None,
    ) -> None:
        """Commit positions without waiting.

        Args:
            offsets: The next offset to read of each partition; left out: the positions.
            on_completion: ``f(offsets, error)``, called from within a later `poll` or `close`.
        """
        self._start_commit(self._to_commit(offsets), on_completion or _warn_of)

    @naming_log
    @by_one_thread
    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at another offset of a partition."""
        self._check_assigned([partition])
        if offset < 0:
            msg = f"The offset {offset} is negative. Use zero or more."
            raise StreamsError(msg)
        self._positions[partition] = offset
        self._drop_fetched([partition])
        if partition not in self._starting:
            self._session.seek(partition, offset)

    @naming_log
    @by_one_thread
    def seek_to_beginning(self, partitions: Collection[TopicPartition] = ()) -> None:
        """Go to the first offset of some partitions, or of all."""
        starts = self._broker.beginning_offsets(self._some_or_all(partitions))
        for partition, offset in starts.items():
            self.seek(partition, offset)

    @naming_log
    @by_one_thread
    def seek_to_end(self, partitions: Collection[TopicPartition] = ()) -> None:
        """Go behind the last record of some partitions, or of all."""
        ends = self._broker.end_offsets(self._some_or_all(partitions))
        for partition, offset in ends.items():
            self.seek(partition, offset)

    @naming_log
    @by_one_thread
    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record that `poll` returns."""
        self._check_assigned([partition])
        self._find_positions([partition])
        return self._positions[partition]

    @naming_log
    @by_one_thread
    def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of the group, for partitions that have one."""
        return self._broker.committed_offsets(self._needed_group(), partitions)

    @naming_log
    @by_one_thread
    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition that still has its record."""
        return self._broker.beginning_offsets(partitions)

    @naming_log
    @by_one_thread
    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last committed record of each partition."""
        return self._broker.end_offsets(partitions)

    @naming_log
    @by_one_thread
    def partitions_for(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic.

        Raises:
            UnknownTopicError: There is no such topic; the error has similar names.
        """
        return [TopicPartition(topic, n) for n in range(self._broker.partition_count(topic))]

    @naming_log
    @by_one_thread
    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, Timestamp]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of each partition at or after a time, if there is one."""
        times = {partition: timestamp_ms(time) for partition, time in timestamps.items()}
        return self._broker.offsets_for_times(times)

    @naming_log
    @by_one_thread
    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Return no records of these partitions until `resume`, and stay in the group."""
        self._check_assigned(partitions)
        self._paused.update(partitions)
        self._session.pause(partitions)
        # Fetched records are fetched again after `resume`.
        for partition in self._drop_fetched(partitions):
            self._session.seek(partition, self._positions[partition])

    @naming_log
    @by_one_thread
    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Return records of these partitions again."""
        self._check_assigned(partitions)
        self._paused.difference_update(partitions)
        self._session.resume(partitions)

    def wakeup(self) -> None:
        """Make a blocked `poll`, or the next one, raise `WakeupError`. For other threads."""
        self._woken.set()
        self._session.wakeup()

    @naming_log
    @by_one_thread
    def group_metadata(self) -> GroupMetadata:
        """Return the metadata with which a producer commits for this consumer."""
        return self._session.group_metadata()

    @naming_log
    @by_one_thread
    def close(self) -> None:
        """Leave the group, and commit before if that is automatic. May be called again."""
        if self._closed:
            return
        self._closed = True
        try:
            self._commit_positions()
        finally:
            try:
                self._session.close()
            finally:
                self._broker.close()
                self._report_commits()

    def _fetch(self, timeout_ms: int) -> None:
        """Fetch records, unless some are fetched already or the timeout ends first."""
        if self._woken.take():
            raise WakeupError
        self._report_commits()
        self._commit_if_due()
        if self._starting:
            self._start()
        if self._fetched:
            return
        self._pass_ends()
        # A listener may seek during this poll, which drops earlier records.
        polled = self._session.poll(timeout_ms, self._max_records)
        self._fetched.extend(polled)
        self._ends |= self._session.take_ends()
        if not self._fetched:
            self._pass_ends()
        if not self._fetched and self._woken.take():
            raise WakeupError

    def _next(self) -> ConsumerRecord:
        """Return the next record with its values; it counts as read from here on."""
        raw, unreadable = readable(self._fetched[0])
        key_serde, value_serde = self._serdes(raw.topic)
        if unreadable is not None:
            raise _undecoded(raw, "headers", f"cannot be read: {unreadable}")
        part = "key"
        try:
            key = None if raw.key is None else key_serde.deserialize(raw.key)
            part = "value"
            value = None if raw.value is None else value_serde.deserialize(raw.value)
        except (TypeError, ValueError) as error:
            raise _undecoded(raw, part, f"does not fit its serde: {error}") from error
        self._fetched.popleft()
        self._positions[TopicPartition(raw.topic, raw.partition)] = raw.offset + 1
        return raw._replace(key=key, value=value)

    def _pass_ends(self) -> None:
        """Move positions to the ends that were reached, once all fetched records are returned."""
        for partition, end in self._ends.items():
            if end > self._positions.get(partition, end):
                self._positions[partition] = end
        self._ends.clear()

    def _serdes_of(self, topic: str) -> tuple[Serde[Any], Serde[Any]]:
        return (
            serde_for_topic(self._key, topic, is_key=True),
            serde_for_topic(self._value, topic, is_key=False),
        )

    def _start(self) -> None:
        """Begin to read manually assigned partitions."""
        self._find_positions(self._assigned)
        self._session.assign({name: self._positions[name] for name in self._assigned})
        self._starting.clear()
        if self._paused:
            self._session.pause(self._paused)

    def _find_positions(self, partitions: Iterable[TopicPartition]) -> None:
        """Set positions to the committed offsets, or as ``auto_offset_reset`` says."""
        unknown = [name for name in partitions if name not in self._positions]
        if not unknown:
            return
        if self._group is not None:
            committed = self._broker.committed_offsets(self._group, unknown)
            self._positions |= {name: offset for name, (offset, _) in committed.items()}
            unknown = [name for name in unknown if name not in committed]
        if unknown and self._reset == "none":
            raise NoOffsetForPartitionError(*unknown[0], group=self._group)
        if self._reset == "earliest":
            self._positions |= self._broker.beginning_offsets(unknown)
        else:
            self._positions |= self._broker.end_offsets(unknown)

    def _on_assigned(self, partitions: list[TopicPartition]) -> Mapping[TopicPartition, int]:
        self._assigned |= dict.fromkeys(partitions)
        self._starting.update(partitions)
        try:
            self._notify(0, partitions)
            self._find_positions(partitions)
        finally:
            self._starting.difference_update(partitions)
        return {name: self._positions[name] for name in partitions}

    def _on_revoked(self, partitions: list[TopicPartition]) -> None:
        partitions = [name for name in partitions if name in self._assigned]
        if not partitions:
            return
        try:
            if self._commits_itself:
                # The group waits, so this must not; the next owner reads after this commit.
                self._start_commit(self._progress(partitions), _warn_of)
            self._notify(1, partitions)
        finally:
            self._forget(partitions)

    def _on_lost(self, partitions: list[TopicPartition]) -> None:
        try:
            self._notify(2, partitions)
        finally:
            self._forget(partitions)

    def _notify(self, which: int, partitions: list[TopicPartition]) -> None:
        listener = self._listeners[which]
        if listener is not None:
            listener(self, partitions)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        gone = list(partitions)
        self._drop_fetched(gone)
        for partition in gone:
            self._assigned.pop(partition, None)
            self._positions.pop(partition, None)
            self._paused.discard(partition)

    def _drop_fetched(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Drop records that were not returned yet, and return their partitions."""
        dropped: dict[TopicPartition, None] = {}
        others: deque[ConsumerRecord] = deque()
        for record in self._fetched:
            partition = TopicPartition(record.topic, record.partition)
            if partition in partitions:
                dropped[partition] = None
            else:
                others.append(record)
        self._fetched = others
        for partition in partitions:
            self._ends.pop(partition, None)
        return list(dropped)

    def _release_partitions(self) -> None:
        """Release all partitions before others are read."""
        try:
            self._commit_positions()
            if self._is_subscribed and self._assigned:
                self._notify(1, list(self._assigned))
        finally:
            self._forget(self._assigned)

    def _commit_positions(self) -> None:
        """Commit the positions, if that is automatic."""
        if self._commits_itself:
            # The new owners have started at the last commit.
            with suppress(CommitFailedError):
                self._session.commit(self._progress(self._assigned))

    def _commit_if_due(self) -> None:
        if not self._commits_itself or time.monotonic() < self._commit_due:
            return
        self._commit_due = time.monotonic() + self._commit_seconds
        progress = self._progress(self._assigned)
        if progress:
            self._start_commit(progress, _warn_of)

    def _start_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], on_completion: OnCommit
    ) -> None:
        self._session.commit_async(
            offsets, lambda error: self._completed.append(partial(on_completion, offsets, error))
        )

    def _report_commits(self) -> None:
        """Call the functions that wait for commits that have ended."""
        while self._completed:
            self._completed.popleft()()

    def _progress(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            name: OffsetAndMetadata(self._positions[name])
            for name in partitions
            if name in self._positions
        }

    def _to_commit(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        self._needed_group()
        return self._progress(self._assigned) if offsets is None else offsets_from(offsets)

    def _some_or_all(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        self._check_assigned(partitions)
        return partitions or list(self._assigned)

    def _check_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            if partition not in self._assigned:
                msg = (
                    f"{partition} is not assigned to this consumer. "
                    "Wait for `on_assigned`, or use `assign`."
                )
                raise StreamsError(msg)

    def _needed_group(self) -> str:
        if self._group is None:
            msg = "This consumer has no `group_id`, so it has no committed offsets. Give it one."
            raise StreamsError(msg)
        return self._group


def _check_reset(policy: str | None) -> str:
    policy = "latest" if policy is None else policy
    if policy not in {"earliest", "latest", "none"}:
        msg = f'`auto_offset_reset` is {policy!r}. Use "earliest", "latest" or "none".'
        raise ConfigError(msg)
    return policy


def _warn_of(_: object, error: StreamsError | None) -> None:
    if error is not None:
        _log.warning("Offsets were not committed: %s", error)


def offsets_from(
    offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets with their metadata, where some are plain numbers."""
    return {
        TopicPartition(*name): OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        for name, offset in offsets.items()
    }


def _undecoded(raw: ConsumerRecord, part: str, problem: str) -> DeserializationError:
    msg = (
        f"The {part} at offset {raw.offset} of {raw.topic!r}, partition {raw.partition}, "
        f"{problem}. Seek to {raw.offset + 1} to continue."
    )
    return DeserializationError(msg, topic=raw.topic, partition=raw.partition, offset=raw.offset)
