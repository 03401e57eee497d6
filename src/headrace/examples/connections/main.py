"""Three nodes as real processes and the rebalancer; after a while one node is killed."""

from __future__ import annotations

import time
from contextlib import closing

from headrace import KafkaStreams, StreamsConfig
from headrace.brokers import open_log
from headrace.examples.connections.app import app
from headrace.examples.connections.cluster import Cluster
from headrace.examples.connections.feed import TOPICS
from headrace.examples.running import create_topics

ALL_TOPICS = {**TOPICS, "connection-deployment-scheme": 1, "heartbeats-dead": 1}
NODES = ["node-1", "node-2", "node-3"]
SECONDS = 120
"""How long to wait for the nodes to agree, on a busy machine."""


def applications() -> list[KafkaStreams]:
    """Return all applications of the story."""
    return [app]


def main(config: StreamsConfig) -> int:
    """Run the story once; return 0 if each connection ends on exactly one living node."""
    merged = app.config.overlaid_by(config)
    with closing(open_log(merged)) as log:
        create_topics(log, ALL_TOPICS)
    with KafkaStreams(app.topology, merged), Cluster(NODES, config) as cluster:
        if not wait_until_whole(cluster):
            return 1
        print("Each connection is on one node:", cluster.deployments())
        cluster.kill("node-2")
        print("node-2 is killed.")
        if not wait_until_whole(cluster):
            return 1
        print("Each connection is on one living node again:", cluster.deployments())
    return 0


def wait_until_whole(cluster: Cluster) -> bool:
    """Return whether each connection is on exactly one living node before the time is over."""
    end = time.monotonic() + SECONDS
    while not cluster.is_whole():
        if time.monotonic() > end:
            print("Some connection is on no node, or on two:", cluster.deployments())
            return False
    return True
