"""A Kafka broker for tests: a plain Java process on loopback, without containers.

Maven fetches its jars once, into the user's cache folder. The pytest fixture `kafka_broker` starts
one, and so does ``headrace broker``.
"""

from headrace.testing.kafka.broker import RunningBroker, RunningCluster
from headrace.testing.kafka.starting import start_broker, start_cluster

__all__ = ["RunningBroker", "RunningCluster", "start_broker", "start_cluster"]
