"""Restores a copy of the totals, from Kafka or from another instance, and prints its speed.

It prints JSON. From Kafka the time begins with the start of a private copy. From an instance it
begins with the first shard that is asked for: the start of the process and its way into the group
come before, and ``start_seconds`` has them, too.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager

from benchmarks.apps.queried_totals import topology
from headrace import StreamsConfig
from headrace.queries.catalog import catalog_of
from headrace.queries.coordination.http_transport import HttpTransport
from headrace.queries.copy.layout import Shard
from headrace.queries.instance import Instance
from headrace.runtime.plan import plan_topology

PATIENCE_SECONDS = 300.0
_STANDBYS = 9
"""So many that this instance gets a copy of each shard."""


class NotedSource:
    """Takes shards from instances, and notes when that began."""

    def __init__(self) -> None:
        self._transport = HttpTransport()
        self.began: float | None = None
        self.cpu = 0.0
        """The CPU time of this process before it began."""

    def shard(self, member: str, shard: Shard, /) -> AbstractContextManager[Iterable[bytes]]:
        if self.began is None:
            self.began, self.cpu = time.monotonic(), time.process_time()
        return self._transport.shard(member, shard)


def main(arguments: list[str]) -> int:
    address, application_id, state, source, *name = arguments
    config = StreamsConfig(
        application_id=application_id,
        bootstrap_servers=address,
        state_dir=state,
        num_standby_replicas=_STANDBYS,
    )
    shards = NotedSource()
    instance = Instance(
        catalog_of(plan_topology(topology(source), config)),
        config,
        name=name[0] if name else None,
        transport=HttpTransport() if name else None,
        source=shards,
    )
    start, cpu = time.monotonic(), time.process_time()
    instance.start()
    while not instance.is_ready():
        if time.monotonic() - start > PATIENCE_SECONDS:
            return 1
        time.sleep(0.001)
    ready = time.monotonic()
    if name and shards.began is None:
        return 1
    began, cpu = (start, cpu) if shards.began is None else (shards.began, shards.cpu)
    found = {
        "seconds": ready - began,
        "start_seconds": ready - start,
        "cpu_seconds": time.process_time() - cpu,
        "records": sum(shown for shown, _ in instance.lags().values()),
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    }
    print(json.dumps(found))
    instance.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
