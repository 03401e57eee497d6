"""A node, as a process of its own: it sends heartbeats and opens the connections it is given."""

from __future__ import annotations

import argparse
import threading
import time

from headrace import StreamsConfig, StreamsError
from headrace.clients import KafkaConsumer, KafkaProducer
from headrace.examples.connections.model import ConnectionDeploymentScheme, HeartBeat


class ConnectionManager:
    """Opens and closes the connections of a node, as the last scheme says."""

    def __init__(self, node_id: str) -> None:
        self.node_id = node_id
        self.current_deployments: list[str] = []

    def handle_record(self, scheme: ConnectionDeploymentScheme) -> None:
        """Have the connections of a scheme, and no others."""
        has = scheme.deployments.get(self.node_id, [])
        if has != self.current_deployments:
            print(f"{self.node_id} has {', '.join(has) or 'no connections'}", flush=True)
        self.current_deployments = has

    def run(self, config: StreamsConfig) -> None:
        """Follow the schemes: those after the start, and the last of those that came together."""
        with KafkaConsumer(
            config, key=str, value=ConnectionDeploymentScheme, group_id=f"manager-{self.node_id}"
        ) as consumer:
            consumer.subscribe(
                ["connection-deployment-scheme"], on_assigned=KafkaConsumer.seek_to_end
            )
            while True:
                records = consumer.poll("1s")
                if records and records[-1].value is not None:
                    self.handle_record(records[-1].value)


def send_heartbeats(manager: ConnectionManager, config: StreamsConfig, every: float = 1.0) -> None:
    """Send a heartbeat at once, and then at a fixed rate, however long one takes.

    A heartbeat that cannot be written is lost. The next one may arrive, so the node says what
    happened and continues.
    """
    with KafkaProducer(config, key=str, value=HeartBeat) as producer:
        due = time.monotonic()
        while True:
            now = time.time_ns() // 1_000_000
            beat = HeartBeat(manager.node_id, manager.current_deployments, now)
            try:
                producer.send("heartbeats", "tick", beat).result()
            except StreamsError as error:
                print(f"{manager.node_id} cannot send its heartbeat: {error}", flush=True)
            due = max(due + every, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))


def main() -> None:
    """Run a node until its process ends."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--node-id", required=True)
    options.add_argument("--every", type=float, default=1.0, help="seconds between heartbeats")
    options.add_argument("--settings", required=True, help="a file with the settings of the log")
    given = options.parse_args()
    config = StreamsConfig.load(given.settings)
    manager = ConnectionManager(given.node_id)
    heartbeats = threading.Thread(
        target=send_heartbeats, args=(manager, config, given.every), daemon=True
    )
    heartbeats.start()
    manager.run(config)


if __name__ == "__main__":
    main()
