"""Ctrl-C while ``headrace run`` starts or works: it ends soon, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.process_tree import ProcessTree
from headrace import StreamsConfig
from headrace.brokers import TopicPartition, open_log
from headrace.runtime.leadership import open_leadership
from tests.application_home import embedded_home
from tests.process_groups import in_own_group
from tests.spark.hosts import await_that
from tests.waiting import PATIENCE

PROGRAM = """
from headrace import StreamsBuilder
builder = StreamsBuilder()
builder.stream("in", key=str, value=str).to("out")
"""

SLOW = """
import time
from pathlib import Path
from headrace import StreamsBuilder

def slow(value):
    Path("begun").touch()
    time.sleep(2)
    if value == "bad":
        raise ValueError("not this one")
    return value.upper()

builder = StreamsBuilder()
builder.stream("in", key=str, value=str).map_values(slow, value=str).to("out")
"""


@pytest.fixture
def silent_broker() -> Iterator[socket.socket]:
    """Takes connections, and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@contextmanager
def headrace_run(
    folder: Path, *settings: str, program: str = PROGRAM
) -> Iterator[subprocess.Popen[str]]:
    """``headrace run``."""
    (folder / "app.py").write_text(program)
    command = [sys.executable, "-c", "from headrace.cli.main import main; main()", "run", "app.py"]
    options = [word for setting in settings for word in ("-s", setting)]
    with in_own_group([*command, *options], folder) as process:
        yield process


def assert_ends_at_ctrl_c(process: subprocess.Popen[str]) -> None:
    """Press Ctrl-C; see that the process ends as it should."""
    assert ended_by(signal.SIGINT, process) == (0, "")


def ended_by(number: signal.Signals, process: subprocess.Popen[str]) -> tuple[int, str]:
    """Send a signal to its group; return the exit code and what was said, when nothing is left."""
    os.killpg(process.pid, number)
    _, said = process.communicate(timeout=PATIENCE)
    await_that(lambda: not [*ProcessTree(process.pid).members()], "its processes to end")
    return process.returncode, said


def topics_in(folder: Path) -> StreamsConfig:
    config = StreamsConfig(application_id="app", state_dir=folder / "state")
    log = open_log(config)
    log.create_topic("in")
    log.close()
    return config


def test_ctrl_c_ends_a_run_that_waits_for_its_broker(
    tmp_path: Path, silent_broker: socket.socket
) -> None:
    broker = f"bootstrap.servers=127.0.0.1:{silent_broker.getsockname()[1]}"
    with headrace_run(tmp_path, broker, f"request.timeout.ms={2_000 * PATIENCE:.0f}") as process:
        connection, _ = silent_broker.accept()

        assert_ends_at_ctrl_c(process)
        connection.close()


def test_ctrl_c_ends_a_run_that_stands_by(tmp_path: Path) -> None:
    config = topics_in(tmp_path)
    leadership = open_leadership(config, embedded_home(config.state_dir))
    assert leadership.wait(PATIENCE)
    with headrace_run(tmp_path, f"state.dir={config.state_dir}") as process:
        assert process.stdout is not None
        assert any("this process stands by" in line for line in process.stdout)

        assert_ends_at_ctrl_c(process)
    leadership.release()


def test_ctrl_c_ends_a_run_that_starts_spark(tmp_path: Path) -> None:
    config = topics_in(tmp_path)
    with headrace_run(tmp_path, f"state.dir={config.state_dir}") as process:
        # Written right before Java is started.
        logging = embedded_home(config.state_dir).work / "log4j2.properties"
        await_that(logging.exists, "Spark to be started")

        assert_ends_at_ctrl_c(process)
    leadership = open_leadership(config, embedded_home(config.state_dir))
    assert leadership.start_timeout == 0
    leadership.release()


@pytest.mark.parametrize(
    ("number", "value", "code", "said", "written"),
    [
        (signal.SIGINT, "good", 0, "", [b"GOOD"]),
        pytest.param(
            *(signal.SIGINT, "bad", 1, "not this one", []), marks=pytest.mark.nightly("faults")
        ),
        # `timeout` sends it to the whole group.
        pytest.param(
            *(signal.SIGTERM, "good", 0, "", [b"GOOD"]), marks=pytest.mark.nightly("faults")
        ),
    ],
)
def test_a_signal_lets_the_running_batch_finish_and_reports_its_failure(
    tmp_path: Path, number: signal.Signals, value: str, code: int, said: str, written: list[bytes]
) -> None:
    config, name = topics_in(tmp_path), TopicPartition("out", 0)
    log = open_log(config)
    log.append([("in", 0, 1, b"k", value.encode(), None)])
    with headrace_run(tmp_path, f"state.dir={config.state_dir}", program=SLOW) as process:
        await_that((tmp_path / "begun").exists, "the batch")

        ended, output = ended_by(number, process)
    found = [each.value for some in log.read(name, 0, 9) for each in some]
    log.close()

    assert ended == code, output
    assert said in output
    assert (output == "") == (code == 0)
    assert found == written
