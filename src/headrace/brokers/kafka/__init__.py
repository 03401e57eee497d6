"""Topics in Kafka. Importing this imports the Kafka client; only files of this folder may."""

from headrace.brokers.kafka.log import KafkaLog

__all__ = ["KafkaLog"]
