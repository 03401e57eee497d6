"""Nodes as real processes: starts them, ends one as ``kill -9`` does, and looks at the others."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from headrace import StreamsConfig
from headrace.clients import KafkaConsumer
from headrace.examples.child_settings import settings_file
from headrace.examples.connections.model import CONNECTIONS, HeartBeat


class Cluster:
    """Some nodes; those that are alive, and their connections as of their last heartbeats."""

    def __init__(self, nodes: list[str], config: StreamsConfig, every: float = 1.0) -> None:
        self._consumer = KafkaConsumer(config, key=str, value=HeartBeat, group_id="cluster")
        self._consumer.subscribe(["heartbeats"], on_assigned=KafkaConsumer.seek_to_end)
        self._last: dict[str, HeartBeat] = {}
        program = str(Path(__file__).with_name("node.py"))
        self._settings = ExitStack()
        settings = str(self._settings.enter_context(settings_file(config)))
        options = ["--every", str(every), "--settings", settings]
        self._processes = {
            node: subprocess.Popen(  # noqa: S603
                [sys.executable, program, "--node-id", node, *options]
            )
            for node in nodes
        }

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        for node in list(self._processes):
            self.kill(node)
        self._consumer.close()
        self._settings.close()

    def kill(self, node: str) -> None:
        """End a node at once; it cannot say goodbye."""
        process = self._processes.pop(node)
        process.kill()
        process.wait()

    def deployments(self) -> dict[str, list[str]]:
        """Return the connections of each living node, as of its last heartbeat."""
        records = self._consumer.poll("100ms")
        while records:
            self._last |= {each.value.node_id: each.value for each in records}
            records = self._consumer.poll()
        return {
            node: beat.connections_info
            for node, beat in sorted(self._last.items())
            if node in self._processes
        }

    def is_whole(self) -> bool:
        """Return whether each connection is on exactly one living node, and no node is idle."""
        deployments = self.deployments()
        found = Counter(each for has in deployments.values() for each in has)
        busy = {node for node, has in deployments.items() if has}
        return found == Counter(CONNECTIONS) and busy == self._processes.keys()
