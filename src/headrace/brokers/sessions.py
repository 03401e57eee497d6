"""What a producer and a consumer need of a broker beyond the log: waiting, groups, transactions.

A `TopicLog` answers questions; a session goes on. Clients hold one of each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from headrace.brokers.log import OffsetAndMetadata, TopicLog, TopicPartition
from headrace.errors import StreamsError
from headrace.records import ConsumerRecord, ProducerRecord, RecordMetadata

ABORTED = "The transaction of this record was aborted, so it was not written."
"""The error text of a record whose transaction was aborted."""

OnDelivery: TypeAlias = Callable[[RecordMetadata | None, StreamsError | None], None]
"""Called once per record, from any thread: with where it went, or with what went wrong."""

OnCommitted: TypeAlias = Callable[[StreamsError | None], None]
"""Called once per commit: with nothing, or with what went wrong."""


class GroupMetadata(Protocol):
    """Which consumer, in which state of its group, offsets belong to."""

    @property
    def group(self) -> str:
        """The name of the group."""
        ...


@dataclass(frozen=True)
class RebalanceListener:
    """What a consumer session calls, from within ``poll`` and ``close``."""

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
        """Hand over a record, waiting while the buffer is full."""

    def flush(self, timeout_ms: int | None = None, /) -> None:
        """Wait until every record handed over so far is written or refused."""

    def begin_transaction(self) -> None:
        """Begin a transaction; what is sent from here on belongs to it."""

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, /
    ) -> None:
        """Add the offsets of a consumer to the transaction."""

    def commit_transaction(self) -> None:
        """Make everything of the transaction visible at once."""

    def abort_transaction(self) -> None:
        """Let nothing of the transaction become visible; what was sent in it has been reported."""

    def close(self, timeout_ms: int | None = None, /) -> None:
        """Flush, and let go of the broker."""


class ConsumerSession(Protocol):
    """Reads records, alone or as a member of a group."""

    def subscribe(
        self, topics: Collection[str] | re.Pattern[str], listener: RebalanceListener, /
    ) -> None:
        """Join the group for some topics; the group decides which partitions this member reads.

        What was assigned before ends, unannounced.
        """

    def assign(self, positions: Mapping[TopicPartition, int], /) -> None:
        """Read exactly these partitions from these offsets; a subscription ends, unannounced."""

    def seek(self, partition: TopicPartition, offset: int, /) -> None:
        """Go on at another offset."""

    def pause(self, partitions: Collection[TopicPartition], /) -> None:
        """Return no records of these partitions until they are resumed."""

    def resume(self, partitions: Collection[TopicPartition], /) -> None:
        """Return records of these partitions again."""

    def poll(self, timeout_ms: int, max_records: int, /) -> Sequence[ConsumerRecord]:
        """Return the next records, waiting for the first until the time is up or `wakeup`."""
        ...

    def wakeup(self) -> None:
        """End the running or the next `poll` early. May be called from another thread."""

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], /) -> None:
        """Commit offsets as a member of the group.

        Raises:
            CommitFailedError: The group went on without this member.
        """

    def commit_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], on_completion: OnCommitted, /
    ) -> None:
        """Commit offsets as `commit` does, after all earlier commits, and do not wait.

        Args:
            offsets: What to commit.
            on_completion: Called from within this or a later call; it must not use the session.
        """

    def group_metadata(self) -> GroupMetadata:
        """Return what a producer needs to commit for this consumer."""
        ...

    def close(self) -> None:
        """Leave the group, and let go of the broker."""


class Broker(TopicLog, Protocol):
    """A log that clients can connect to."""

    def open_producer(self, settings: Mapping[str, str], /) -> ProducerSession:
        """Start a producer.

        Args:
            settings: What was set for it, by Kafka's names.
        """
        ...

    def open_consumer(self, group: str | None, settings: Mapping[str, str], /) -> ConsumerSession:
        """Start a consumer, which is a member of no group before it subscribes."""
        ...
