"""Programs that are ``__main__``: a script runs on Spark with types and functions of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from headrace import StreamsConfig
from headrace.brokers import open_log
from headrace.brokers.log import TopicPartition
from headrace.brokers.sessions import Broker
from headrace.serdes import JsonSerde
from tests.spark.every_kind import KINDS

PROGRAM = Path(__file__).with_name("every_kind.py")


def test_every_kind_of_type_may_live_in_main(tmp_path: Path) -> None:
    log = open_log(StreamsConfig(application_id="kinds", state_dir=tmp_path))
    for number, (_, _, samples) in enumerate(KINDS.values()):
        log.create_topic(f"in-{number}")
        log.create_topic(f"out-{number}")
        log.append([(f"in-{number}", 0, 1, b"key", data, None) for data in samples])

    command = [sys.executable, str(PROGRAM), "run", str(tmp_path)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    for number, kind in enumerate(KINDS):
        assert written(log, f"out-{number}") == expected(kind), kind
    log.close()


def written(log: Broker, topic: str) -> list[bytes | None]:
    partition = TopicPartition(topic, 0)
    end = log.end_offsets([partition])[partition]
    return [record.value for records in log.read(partition, 0, end) for record in records]


def expected(kind: str) -> list[bytes]:
    type_, function, samples = KINDS[kind]
    serde, values = JsonSerde(type_), []
    for data in samples:
        try:
            value = serde.deserialize(data)
        except ValueError:
            continue
        values.append(JsonSerde().serialize(function(value)))
    return values
