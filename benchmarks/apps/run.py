"""Runs a workload with Headrace until standard input ends."""

from __future__ import annotations

import sys
from importlib import import_module

from benchmarks.apps.orders import Topics
from headrace import KafkaStreams


def main(arguments: list[str]) -> int:
    workload, address, application_id, state, source, table, output = arguments
    topology = import_module(f"benchmarks.apps.{workload}").topology(Topics(source, table, output))
    streams = KafkaStreams(
        topology, application_id=application_id, bootstrap_servers=address, state_dir=state
    )
    streams.start()
    sys.stdin.read()
    return 0 if streams.close("60s") else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
