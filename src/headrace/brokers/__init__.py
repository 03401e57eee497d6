"""Where topics live: Kafka, or the embedded log."""

from headrace.brokers.log import (
    Appended,
    LogTransaction,
    MemberDescription,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RecordColumns,
    TopicDescription,
    TopicLog,
    TopicPartition,
)
from headrace.brokers.opening import open_log

__all__ = [
    "Appended",
    "LogTransaction",
    "MemberDescription",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RecordColumns",
    "TopicDescription",
    "TopicLog",
    "TopicPartition",
    "open_log",
]
