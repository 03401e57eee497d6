"""Sessions of producers and consumers with a broker: waiting, groups, transactions."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from headrace.brokers.log import OffsetAndMetadata, RecordColumns, TopicLog, TopicPartition
from headrace.errors import BrokerError, StreamsError
from headrace.records import ConsumerRecord, ProducerRecord, RecordMetadata

ABORTED = "The transaction of this record was aborted, so it was not written."
"""The error text of a record whose transaction was aborted."""

OnDelivery: TypeAlias = Callable[[RecordMetadata | None, StreamsError | None], None]
"""Called once per record, from any thread, with its offset or with an error."""

OnCommitted: TypeAlias = Callable[[StreamsError | None], None]
"""Called once per commit, with None or with an error."""


class GroupMetadata(Protocol):
    """The consumer that offsets belong to, and the state of its group."""

    @property
    def group(self) -> str:
        """The name of the group."""
        ...


@dataclass(frozen=True)
class RebalanceListener:
    """Functions that a consumer session calls inside ``poll`` and ``close``."""

    assigned: Callable[[list[TopicPartition]], Mapping[TopicPartition, int]]
    """Partitions were added; returns the offset to read each from."""
    revoked: Callable[[list[TopicPartition]], None]
    """Partitions are about to go to others; their offsets can still be committed."""
    lost: Callable[[list[TopicPartition]], None]
    """Partitions have gone to others already."""


class ProducerSession(Protocol):
    """Writes records in the background."""

    delivers_before_commit: bool
    """Whether records of an open transaction are delivered, or all of them when it commits."""

    def partition_count(self, topic: str, /) -> int:
        """Return how many partitions a topic has, creating it where the broker does that."""
        ...

    def send(self, record: ProducerRecord, on_delivery: OnDelivery, /) -> None:
        """Buffer a record, waiting while the buffer is full."""

    def flush(self, timeout_ms: int | None = None, /) -> None:
        """Wait until every buffered record is written or refused."""

    def begin_transaction(self) -> None:
        """Begin a transaction; later records belong to it."""

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, /
    ) -> None:
        """Add the offsets of a consumer to the transaction."""

    def commit_transaction(self) -> None:
        """Make everything of the transaction visible at once."""

    def abort_transaction(self) -> None:
        """Abort the transaction, after all its records are reported."""

    def close(self, timeout_ms: int | None = None, /) -> None:
        """Flush, and close the connection."""


class Wakeup(threading.Event):
    """Ends the running `poll`, or the next one."""

    def take(self) -> bool:
        """Return whether it was set, and clear it."""
        was_set = self.is_set()
        self.clear()
        return was_set


def needed_group(group: str | None) -> str:
    """Return the group of a consumer; raise `BrokerError` if it has none."""
    if group is None:
        msg = "This consumer has no `group_id`, so it cannot subscribe or commit. Give it one."
        raise BrokerError(msg)
    return group


class ConsumerSession(Protocol):
    """Reads records, alone or as a member of a group."""

    def subscribe(
        self, topics: Collection[str] | re.Pattern[str], listener: RebalanceListener, /
    ) -> None:
        """Join the group for some topics; the group decides which partitions this member reads.

        An earlier assignment ends without a callback.
        """

    def assign(self, positions: Mapping[TopicPartition, int], /) -> None:
        """Read exactly these partitions from these offsets; a subscription ends silently."""

    def seek(self, partition: TopicPartition, offset: int, /) -> None:
        """Continue at another offset."""

    def pause(self, partitions: Collection[TopicPartition], /) -> None:
        """Return no records of these partitions until they are resumed."""

    def resume(self, partitions: Collection[TopicPartition], /) -> None:
        """Return records of these partitions again."""

    def poll(self, timeout_ms: int, max_records: int, /) -> Sequence[ConsumerRecord]:
        """Return the next records, waiting for the first until the time is up or `wakeup`."""
        ...

    def take_ends(self) -> Mapping[TopicPartition, int]:
        """Return the ends that `poll` has reached since the last call.

        They are behind the last record where marks of transactions, or aborted records, follow it.
        """
        ...

    def wakeup(self) -> None:
        """End the running or the next `poll` early. May be called from another thread."""

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], /) -> None:
        """Commit offsets as a member of the group.

        Raises:
            CommitFailedError: The group no longer has this member.
        """

    def commit_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], on_completion: OnCommitted, /
    ) -> None:
        """Commit offsets as `commit` does, after all earlier commits, without waiting.

        This or a later call runs ``on_completion``, which must not use the session.
        """

    def group_metadata(self) -> GroupMetadata:
        """Return what a producer needs to commit for this consumer."""
        ...

    def close(self) -> None:
        """Leave the group, and close the connection."""


class PartitionNews(NamedTuple):
    """The records that a follower has read from a partition, or its end."""

    partition: TopicPartition
    columns: RecordColumns | None
    """Records, in the order of their offsets."""
    end: int | None
    """The partition has ended here: it has no more committed records below this offset."""


class Follower(Protocol):
    """Reads the committed records of partitions as they are added. One thread uses it."""

    def follow(self, partition: TopicPartition, offset: int, /) -> None:
        """Read a partition from an offset on, or from its first record if that is later.

        If the partition was read before, nothing from before is returned any more.
        """

    def leave(self, partition: TopicPartition, /) -> None:
        """Read a partition no longer."""

    def poll(self, seconds: float, /) -> Sequence[PartitionNews]:
        """Return what is new, waiting for that until the time is up, or less.

        Partitions that do not exist, or whose leader is away, are silent.
        """
        ...

    def close(self) -> None:
        """Close the connection."""


class Broker(TopicLog, Protocol):
    """A log that clients can connect to."""

    def open_producer(self, settings: Mapping[str, str], /) -> ProducerSession:
        """Start a producer with settings by Kafka's names."""
        ...

    def open_consumer(self, group: str | None, settings: Mapping[str, str], /) -> ConsumerSession:
        """Start a consumer, which is a member of no group before it subscribes."""
        ...

    def open_follower(self) -> Follower:
        """Start a follower, which reads nothing yet."""
        ...
