"""Producer, consumer, admin client and log handler: one API for Kafka and for the embedded log."""

from headrace.brokers import (
    MemberDescription,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicDescription,
    TopicPartition,
)
from headrace.clients.admin import AdminClient
from headrace.clients.consumer import KafkaConsumer
from headrace.clients.json_formatter import JsonFormatter, log_context
from headrace.clients.lag import PartitionLag
from headrace.clients.logging_handler import KafkaHandler
from headrace.clients.offsets import OffsetChange, ResetTo
from headrace.clients.partitioning import RoundRobinPartitioner
from headrace.clients.producer import KafkaProducer
from headrace.clients.records import ConsumerRecords

__all__ = [
    "AdminClient",
    "ConsumerRecords",
    "JsonFormatter",
    "KafkaConsumer",
    "KafkaHandler",
    "KafkaProducer",
    "MemberDescription",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetChange",
    "PartitionLag",
    "ResetTo",
    "RoundRobinPartitioner",
    "TopicDescription",
    "TopicPartition",
    "log_context",
]
