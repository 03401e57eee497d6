"""The homes of topics: Kafka, and the embedded log."""

from headrace.brokers.log import (
    LogTransaction,
    MemberDescription,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RawRecord,
    RecordColumns,
    TopicDescription,
    TopicLog,
    TopicPartition,
)
from headrace.brokers.opening import open_log

__all__ = [
    "LogTransaction",
    "MemberDescription",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RawRecord",
    "RecordColumns",
    "TopicDescription",
    "TopicLog",
    "TopicPartition",
    "open_log",
]
