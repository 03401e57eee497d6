"""Masters of Spark, and the errors of a failed start: in processes with their own Java."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
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

IMPORTING = """
import atexit
from pyspark import SparkContext
from headrace import KafkaStreams, StreamsBuilder
from orders import Level, Order, added, is_large


def stop_spark():
    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()


def same(order):
    import orders
    assert isinstance(order, orders.Order)
    assert order.level is orders.Level.HIGH
    return order


atexit.register(stop_spark)
builder = StreamsBuilder()
orders = builder.stream("orders-of-masters", key=str, value=Order)
high = orders.filter(lambda _key, order: order.level is Level.HIGH).map_values(same, value=Order)
by_customer = high.group_by(lambda _key, order: order.customer, key=str, value=Order)
totals = by_customer.reduce(added, materialized="totals").to_stream()
totals.filter(lambda _key, order: is_large(order)).map_values(same, value=Order).to("large")
app = KafkaStreams(
    builder.build(),
    application_id="importing",
    state_dir="state",
    spark={"spark.master": "local-cluster[1,1,1024]"},
    trigger="available_now",
)
if __name__ == "__main__":
    raise SystemExit(app.run())
"""

ORDERS = """
import enum
from dataclasses import dataclass


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"


@dataclass(frozen=True)
class Order:
    customer: str
    pieces: int
    level: Level = Level.LOW


def added(one, other):
    return Order(one.customer, one.pieces + other.pieces, one.level)


def is_large(order):
    from shop.limits import LARGE  # nothing has imported it where the program is made

    return order.pieces >= LARGE
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
    headrace = ["-m", "headrace.cli.main", "run"]
    return run_python(program.parent, *headrace, str(program), *state, *arguments)


def run_python(folder: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """Run Python in a folder; return its code and what it says."""
    try:
        ended = subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env={**os.environ, "COLUMNS": "200", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        logs = [log.read_text(errors="replace") for log in folder.glob("state/*/*/spark.log")]
        pytest.fail(f"It does not end, says {error.stdout!r}, and Spark says:\n{logs}")
    return ended.returncode, " ".join(ended.stdout.split())


def write_lines(log: Broker) -> None:
    log.create_topic("lines-of-masters", partitions=2)
    lines = [b"to be or not", b"to be", b"to do"]
    log.append([("lines-of-masters", n % 2, n, b"k", line, None) for n, line in enumerate(lines)])


@pytest.fixture
def swept() -> Iterator[None]:
    """Removes what a cluster on this machine leaves in Spark's own folder.

    One test at a time, in whichever process: another one's executors would lose their folder.
    """
    work = Path(str(pyspark.__file__)).parent / "work"
    with Path(tempfile.gettempdir(), "headrace-tests-cluster.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = set(work.glob("*"))
        yield
        for left in set(work.glob("*")) - before:
            shutil.rmtree(left)


@pytest.mark.nightly("cluster")
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


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """A Python for workers that finds what is installed, and nothing else."""
    python = tmp_path / "bare-python"
    python.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {sys.executable} -P "$@"\n')
    python.chmod(0o700)
    return str(python)


@pytest.mark.nightly("cluster")
@pytest.mark.usefixtures("swept")
@pytest.mark.parametrize("started", [["-m", "headrace.cli.main", "run"], []], ids=["run", "main"])
def test_workers_of_a_cluster_get_the_modules_that_only_the_driver_finds(
    tmp_path: Path, bare_python: str, started: list[str]
) -> None:
    folder = tmp_path / "mine"
    (folder / "shop").mkdir(parents=True)
    (folder / "shop" / "__init__.py").touch()
    (folder / "shop" / "limits.py").write_text("LARGE = 5\n")
    (folder / "orders.py").write_text(ORDERS)
    (folder / "importing.py").write_text(IMPORTING)
    log = open_log(StreamsConfig(state_dir=tmp_path / "state"))
    log.create_topic("orders-of-masters", partitions=2)
    given = [("ann", 2, "high"), ("bob", 1, "high"), ("ann", 9, "low"), ("ann", 3, "high")]
    for number, (customer, pieces, level) in enumerate(given):
        value = f'{{"customer": "{customer}", "pieces": {pieces}, "level": "{level}"}}'.encode()
        log.append([("orders-of-masters", number % 2, number, b"k", value, None)])

    command = [*started, str(folder / "importing.py")]
    code, said = run_python(tmp_path, *command, PYSPARK_PYTHON=bare_python)

    assert code == 0, said
    name = TopicPartition("large", 0)
    written = [each for some in log.read(name, 0, log.end_offsets([name])[name]) for each in some]
    log.close()
    assert [(each.key, each.value) for each in written] == [
        (b"ann", b'{"customer":"ann","pieces":5,"level":"high"}')
    ]


def test_a_java_that_exits_at_its_start_is_explained_in_a_sentence(program: Path) -> None:
    log = open_log(StreamsConfig(state_dir=program.parent / "state"))
    write_lines(log)
    log.close()

    code, said = run(program, "-s", "spark.driver.memory=zz")

    assert code != 0
    assert "Spark does not start" in said
    assert "Invalid maximum heap size: -Xmxzz" in said
    assert "Traceback" not in said
