"""Several processes on one embedded log: none takes from another what it wrote."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.brokers import TopicPartition
from headrace.brokers.embedded import EmbeddedLog, database
from tests.brokers.appending import record, values
from tests.waiting import PATIENCE

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

FORKING = """
import os, sys, threading
from pathlib import Path
from headrace import ProducerRecord
from headrace.brokers.embedded import EmbeddedLog

def fork_often(name):
    for _ in range(10):
        log = EmbeddedLog(Path(sys.argv[1]))
        child = os.fork()
        if child == 0:
            for each in (log, EmbeddedLog(Path(sys.argv[1]))):
                each.append([ProducerRecord("orders", 0, 1, b"k", name)])
            os._exit(0)
        assert os.waitpid(child, 0) == (child, 0)
        log.close()

threads = [threading.Thread(target=fork_often, args=[name]) for name in (b"first", b"second")]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
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
        gc.disable()  # clients of other tests cannot be destroyed here: they have no threads
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


def test_a_process_continues_after_it_forked(log: EmbeddedLog) -> None:
    write(log, b"parent")

    assert_ended_well(forked(lambda: write(log, b"child")))
    write(log, b"parent again")

    assert values(log, ORDERS) == [b"parent", b"child", b"parent again"]


def test_a_process_may_fork_while_another_thread_writes(log: EmbeddedLog) -> None:
    over = threading.Event()

    def write_often() -> None:
        while not over.wait(0.001):  # SQLite lets another process wait as long as one writes
            write(log, b"parent")

    writer = threading.Thread(target=write_often, daemon=True)
    writer.start()
    for _ in range(10):
        assert_ended_well(forked(lambda: write(log, b"child")))
    over.set()
    writer.join()

    assert values(log, ORDERS).count(b"child") == 10


class Locked:
    """A fake connection to a file."""

    def __init__(self) -> None:
        self.lock = threading.RLock()


def test_threads_that_fork_at_the_same_time_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    file, free = Locked(), list[bool]()
    monkeypatch.setattr(database, "_databases", [file])
    monkeypatch.setattr(database, "_held", [])

    def fork() -> None:
        database._hold_all()
        database._release_all()

    other = threading.Thread(target=fork, daemon=True)
    database._hold_all()
    other.start()
    other.join(0.2)
    waits = other.is_alive()
    database._release_all()
    other.join(PATIENCE)
    asker = threading.Thread(target=lambda: free.append(file.lock.acquire(blocking=False)))
    asker.start()
    asker.join()

    assert waits
    assert not other.is_alive()
    assert free == [True]


def test_no_thread_opens_a_log_during_a_fork(log: EmbeddedLog, path: Path) -> None:
    opened: list[EmbeddedLog] = []
    opening = threading.Thread(target=lambda: opened.append(EmbeddedLog(path)), daemon=True)

    database._hold_all()
    opening.start()
    opening.join(0.2)
    during = list(opened)
    database._release_all()
    opening.join(PATIENCE)

    assert during == []
    assert len(opened) == 1
    opened[0].close()


def test_two_threads_may_fork_while_logs_come_and_go(log: EmbeddedLog, path: Path) -> None:
    command = [sys.executable, "-c", FORKING, str(path)]

    subprocess.run(command, check=True, timeout=PATIENCE)

    assert sorted(values(log, ORDERS)) == [b"first"] * 20 + [b"second"] * 20
