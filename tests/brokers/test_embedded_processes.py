"""Several processes on one embedded log: none takes from another what it wrote."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.brokers import TopicPartition
from headrace.brokers.embedded import EmbeddedLog
from tests.brokers.appending import record, values

ORDERS = TopicPartition("orders", 0)

READER = """
import sys
from pathlib import Path
from headrace.brokers import TopicPartition
from headrace.brokers.embedded import EmbeddedLog
log, orders = EmbeddedLog(Path(sys.argv[1])), TopicPartition("orders", 0)
for some in log.read(orders, 0, log.end_offsets([orders])[orders]):
    print(*(record.value.decode() for record in some))
log.close()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "topics.db"


@pytest.fixture
def log(path: Path) -> Iterator[EmbeddedLog]:
    opened = EmbeddedLog(path)
    opened.create_topic("orders")
    yield opened
    opened.close()


def write(log: EmbeddedLog, value: bytes) -> None:
    log.append([record("orders", value)])


def seen_by_another_process(path: Path) -> list[str]:
    """Return the orders that a process sees which then closes the file."""
    command = [sys.executable, "-c", READER, str(path)]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()


def forked(work: Callable[[], None]) -> int:
    """Do some work in a copy of this process; return which one that is."""
    child = os.fork()
    if child == 0:  # pragma: no cover  # another process
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return child


def assert_ended_well(child: int) -> None:
    assert os.waitpid(child, 0) == (child, 0)


def test_a_process_that_closes_the_file_takes_nothing_from_one_that_opened_it_twice(
    log: EmbeddedLog, path: Path
) -> None:
    write(log, b"a")
    second = EmbeddedLog(path)

    before = seen_by_another_process(path)
    write(log, b"b")
    write(second, b"c")

    assert before == ["a"]
    assert seen_by_another_process(path) == ["a", "b", "c"]
    second.close()


def test_a_process_that_closes_the_file_takes_nothing_from_a_forked_one(
    log: EmbeddedLog, path: Path
) -> None:
    write(log, b"parent")
    (asks, asked), (answers, answered) = os.pipe(), os.pipe()

    def write_twice() -> None:
        write(log, b"child")
        os.write(answered, b".")
        os.read(asks, 1)
        write(log, b"later")

    child = forked(write_twice)
    os.read(answers, 1)
    log.close()
    before = seen_by_another_process(path)
    os.write(asked, b".")
    assert_ended_well(child)

    assert before == ["parent", "child"]
    assert seen_by_another_process(path) == ["parent", "child", "later"]


def test_a_process_goes_on_after_it_forked(log: EmbeddedLog) -> None:
    write(log, b"parent")

    assert_ended_well(forked(lambda: write(log, b"child")))
    write(log, b"parent again")

    assert values(log, ORDERS) == [b"parent", b"child", b"parent again"]


def test_a_process_may_fork_while_another_thread_writes(log: EmbeddedLog) -> None:
    over = threading.Event()

    def write_often() -> None:
        while not over.is_set():
            write(log, b"parent")

    writer = threading.Thread(target=write_often, daemon=True)
    writer.start()
    for _ in range(20):
        assert_ended_well(forked(lambda: write(log, b"child")))
    over.set()
    writer.join()

    assert values(log, ORDERS).count(b"child") == 20
