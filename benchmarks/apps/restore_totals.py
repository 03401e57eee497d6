"""Restores a private copy of the totals from Kafka, and prints how long that took, as JSON."""

from __future__ import annotations

import json
import resource
import sys
import time

from benchmarks.apps.queried_totals import topology
from headrace import StreamsConfig
from headrace.queries.catalog import catalog_of
from headrace.queries.instance import Instance
from headrace.runtime.plan import plan_topology

PATIENCE_SECONDS = 300.0


def main(arguments: list[str]) -> int:
    address, application_id, state, source = arguments
    config = StreamsConfig(
        application_id=application_id, bootstrap_servers=address, state_dir=state
    )
    instance = Instance(catalog_of(plan_topology(topology(source), config)), config, name=None)
    began, cpu = time.monotonic(), time.process_time()
    instance.start()
    while not instance.is_ready():
        if time.monotonic() - began > PATIENCE_SECONDS:
            return 1
        time.sleep(0.001)
    seconds = time.monotonic() - began
    found = {
        "seconds": seconds,
        "cpu_seconds": time.process_time() - cpu,
        "records": sum(shown for shown, _ in instance.lags().values()),
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    }
    print(json.dumps(found))
    instance.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
