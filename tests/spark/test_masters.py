"""Where Spark runs, and what is said if it does not: in processes with a Java of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from headrace import StreamsConfig
from headrace.brokers import open_log
from headrace.brokers.log import TopicPartition
from headrace.brokers.sessions import Broker
from tests.kafka_broker import RunningBroker

SECONDS = 300
"""How long a process may take on a busy machine."""

PROGRAM = """
import atexit
from pyspark import SparkContext
from headrace import KafkaStreams, StreamsBuilder


def stop_spark():  # a cluster that only dies starts its executors again and again meanwhile
    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()


atexit.register(stop_spark)
builder = StreamsBuilder()
words = builder.stream("lines-of-masters", key=str, value=str).flat_map_values(str.split, value=str)
by_word = words.group_by(lambda _key, word: word, key=str, value=str)
by_word.count(materialized="counts").to_stream().to("counts-of-masters")
app = KafkaStreams(builder.build(), application_id="masters", trigger="available_now")
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A file with an application that counts words."""
    file = tmp_path / "words.py"
    file.write_text(PROGRAM)
    return file


def run(program: Path, *arguments: str) -> tuple[int, str]:
    """Run a program as users do, with its state beside it; return its code and what it says."""
    state = ["--state-dir", str(program.parent / "state")]
    ended = subprocess.run(
        [sys.executable, "-m", "headrace.cli.main", "run", str(program), *state, *arguments],
        cwd=program.parent,
        env={**os.environ, "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    return ended.returncode, " ".join(ended.stdout.split())


def write_lines(log: Broker) -> None:
    log.create_topic("lines-of-masters", partitions=2)
    lines = [b"to be or not", b"to be", b"to do"]
    log.append([("lines-of-masters", n % 2, n, b"k", line, None) for n, line in enumerate(lines)])


@pytest.fixture
def swept() -> Iterator[None]:
    """Removes what a cluster on this machine leaves in Spark's own folder."""
    work = Path(str(pyspark.__file__)).parent / "work"
    before = set(work.glob("*"))
    yield
    for left in set(work.glob("*")) - before:
        shutil.rmtree(left)


@pytest.mark.usefixtures("swept")
def test_a_cluster_keeps_state_and_kafka_creates_the_topic_that_is_written(
    program: Path, kafka: RunningBroker
) -> None:
    log = open_log(StreamsConfig(bootstrap_servers=kafka.address))
    write_lines(log)

    where = ["--bootstrap-servers", kafka.address, "--master", "local-cluster[2,1,1024]"]
    code, said = run(program, *where)

    assert code == 0, said
    name = TopicPartition("counts-of-masters", 0)
    written = [each for some in log.read(name, 0, log.end_offsets([name])[name]) for each in some]
    log.close()
    counts = {each.key: int.from_bytes(each.value or b"", "big") for each in written}
    assert counts == {b"to": 3, b"be": 2, b"or": 1, b"not": 1, b"do": 1}


def test_a_java_that_ends_at_its_start_is_told_in_a_sentence(program: Path) -> None:
    log = open_log(StreamsConfig(state_dir=program.parent / "state"))
    write_lines(log)
    log.close()

    code, said = run(program, "-s", "spark.driver.memory=zz")

    assert code != 0
    assert "Spark does not start" in said
    assert "Invalid maximum heap size: -Xmxzz" in said
    assert "Traceback" not in said
