"""Producer, consumer and log handler: one API for Kafka and for the embedded log."""

from headrace.brokers import OffsetAndMetadata, TopicPartition
from headrace.clients.consumer import KafkaConsumer
from headrace.clients.json_formatter import JsonFormatter, log_context
from headrace.clients.logging_handler import KafkaHandler
from headrace.clients.partitioning import RoundRobinPartitioner
from headrace.clients.producer import KafkaProducer
from headrace.clients.records import ConsumerRecords

__all__ = [
    "ConsumerRecords",
    "JsonFormatter",
    "KafkaConsumer",
    "KafkaHandler",
    "KafkaProducer",
    "OffsetAndMetadata",
    "RoundRobinPartitioner",
    "TopicPartition",
    "log_context",
]
