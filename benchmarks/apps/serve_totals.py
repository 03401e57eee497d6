"""An instance that answers queries of the totals until standard input ends, as `headrace serve`."""

from __future__ import annotations

import sys

from benchmarks.apps.queried_totals import topology
from headrace import StreamsConfig
from headrace.queries.service import QueryService


def main(arguments: list[str]) -> int:
    address, application_id, state, source, server = arguments
    config = StreamsConfig(
        application_id=application_id, bootstrap_servers=address, state_dir=state
    )
    service = QueryService(topology(source), config, server=server)
    service.start()
    sys.stdin.read()
    service.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
