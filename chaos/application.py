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
from collections import Counter
from pathlib import Path

from chaos.supervisor import DROPPED
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
    code = streams.run()
    Path(DROPPED).write_text(json.dumps(_dropped(streams)))
    return code


def _dropped(streams: KafkaStreams) -> dict[str, int]:
    """Return how many records were dropped, by reason."""
    dropped: Counter[str] = Counter()
    for name, number in streams.metrics().items():
        if str(name) == "dropped-by-reason-total":
            dropped[dict(name.tags)["reason"]] += int(number)
        elif str(name) == "records-refused-total":
            dropped["refused"] += int(number)
    return +dropped


def _follow_clock(streams: KafkaStreams) -> None:
    for line in sys.stdin:
        run = streams._run  # noqa: SLF001  # as tests do
        if run is not None:
            run.set_clock(int(line) if line.strip() else None)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
