"""The process under test: a workload as a user would run it, on real Spark.

``python -m chaos.application WORKLOAD FILE`` runs until a signal stops it; FILE holds its settings
as JSON, under Kafka's names. Standard input takes the time of day in milliseconds, line by line:
an empty line brings the real one back.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from pathlib import Path

from chaos.workloads import WORKLOADS
from headrace import KafkaStreams


def main(arguments: list[str]) -> int:
    name, file = arguments
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(message)s"
    )
    workload = WORKLOADS[name]
    streams = KafkaStreams(
        workload.topology(), json.loads(Path(file).read_text()), **workload.settings
    )
    streams.set_state_listener(lambda new, _old: logging.info("STATE %s", new.value))
    threading.Thread(target=_follow_clock, args=(streams,), daemon=True).start()
    return streams.run()


def _follow_clock(streams: KafkaStreams) -> None:
    for line in sys.stdin:
        run = streams._run  # noqa: SLF001  # as tests do
        if run is not None:
            run.set_clock(int(line) if line.strip() else None)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
