"""The file of the embedded log when a writer is killed, or when the file cannot grow."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from headrace import BrokerUnavailableError, ProducerRecord, StreamsConfig
from headrace.brokers import TopicPartition, open_log
from headrace.brokers.embedded import EmbeddedLog
from tests.waiting import PATIENCE, PATIENTLY

ORDERS = TopicPartition("orders", 0)
MARKERS = TopicPartition("markers", 0)
PER_BATCH = 500

HELD = """
import sys, time
from headrace import ProducerRecord
from headrace.brokers import OffsetAndMetadata, TopicPartition
from headrace.brokers.embedded import EmbeddedLog, writing

def hang(*_):
    print("open", flush=True)
    time.sleep(600)

writing.commit = hang
with EmbeddedLog(sys.argv[1]).transaction("writer") as transaction:
    transaction.append([ProducerRecord("orders", 0, 1, b"k", b"x" * 1000)] * 20_000)
    transaction.commit_offsets("markers", {TopicPartition("markers", 0): OffsetAndMetadata(1)})
"""

BATCHES = f"""
import sys
from headrace import ProducerRecord
from headrace.brokers import OffsetAndMetadata, TopicPartition
from headrace.brokers.embedded import EmbeddedLog

log, name = EmbeddedLog(sys.argv[1]), TopicPartition("markers", 0)
print("ready", flush=True)
while True:
    with log.transaction("writer") as transaction:
        done = log.committed_offsets("markers", [name])
        batch = done[name].offset if done else 0
        value = b"%d" % batch
        transaction.append([ProducerRecord("orders", 0, 1, b"k", value)] * {PER_BATCH})
        transaction.commit_offsets("markers", {{name: OffsetAndMetadata(batch + 1)}})
"""

LIMITED = """
import os, resource, sys
from headrace import BrokerError, ProducerRecord
from headrace.brokers.embedded import EmbeddedLog

log = EmbeddedLog(sys.argv[1])
log.append([ProducerRecord("orders", 0, 1, b"k", b"before")])
limit = max(os.path.getsize(sys.argv[1]), os.path.getsize(sys.argv[1] + "-wal")) + 100_000
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
try:
    with log.transaction("writer") as transaction:
        transaction.append([ProducerRecord("orders", 0, 1, b"k", b"x" * 1000)] * 1_000)
except BrokerError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.append([ProducerRecord("orders", 0, 1, b"k", b"after")])
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    log = EmbeddedLog(tmp_path / "topics.db")
    log.create_topic("orders")
    log.create_topic("markers")
    log.close()
    return log.path


def run(program: str, path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE)


def killed(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.communicate()


def values(log: EmbeddedLog) -> list[bytes]:
    end = log.end_offsets([ORDERS])[ORDERS]
    return [each.value for some in log.read(ORDERS, 0, end) for each in some]


def assert_sound(log: EmbeddedLog) -> None:
    with log._database.reading() as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_writer_killed_in_a_transaction_leaves_nothing_and_no_lock(path: Path) -> None:
    child = run(HELD, path)
    assert child.stdout is not None
    assert child.stdout.readline() == b"open\n"
    log = EmbeddedLog(path, busy_ms=100)
    with pytest.raises(BrokerUnavailableError, match="in use by another writer"):
        log.append([ProducerRecord("orders", 0, 1, b"k", b"early")])

    killed(child)
    log.append([ProducerRecord("orders", 0, 1, b"k", b"after")])

    assert values(log) == [b"after"]
    assert_sound(log)
    log.close()


def test_batches_are_whole_wherever_a_writer_is_killed(path: Path) -> None:
    chosen = random.Random(7)
    log = EmbeddedLog(path)

    for _ in range(5):
        child = run(BATCHES, path)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        time.sleep(chosen.uniform(0, 0.1))
        killed(child)

    marked = log.committed_offsets("markers", [MARKERS])
    batches = range(marked[MARKERS].offset if marked else 0)
    assert values(log) == [b"%d" % batch for batch in batches for _ in range(PER_BATCH)]
    assert_sound(log)
    log.close()


def test_a_file_that_cannot_grow_is_an_error_and_stays_sound(path: Path) -> None:
    child = run(LIMITED, path)
    output = child.communicate(timeout=PATIENCE)[0].decode()

    log = EmbeddedLog(path)
    assert child.returncode == 0
    assert repr(str(path)) in output
    assert "Make room" in output
    assert values(log) == [b"before", b"after"]
    assert_sound(log)
    log.close()


def test_a_writer_waits_as_long_as_the_settings_say(path: Path) -> None:
    holder = EmbeddedLog(path)
    log = open_log(StreamsConfig(embedded_path=path, request_timeout=PATIENTLY))
    hasty = open_log(StreamsConfig(embedded_path=path, request_timeout="50ms"))
    written = [ProducerRecord("orders", 0, 1, b"k", b"a")]
    waiting = threading.Thread(target=log.append, args=[written])

    with holder._database.writing():
        waiting.start()
        with pytest.raises(BrokerUnavailableError, match=r"for 0\.05 s.*`request_timeout`"):
            hasty.append(written)
    waiting.join()

    assert values(holder) == [b"a"]
    for each in (holder, log, hasty):
        each.close()
