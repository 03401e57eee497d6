"""Ctrl-C while ``headrace run`` starts: it ends soon, and leaves nothing behind."""

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

from headrace import StreamsConfig
from headrace.brokers import open_log
from headrace.spark.leadership import open_leadership
from tests.process_groups import in_own_group
from tests.spark.hosts import await_that

SECONDS = 60
"""How long a busy machine may take for what must come."""

PROGRAM = """
from headrace import StreamsBuilder
builder = StreamsBuilder()
builder.stream("in", key=str, value=str).to("out")
"""


@pytest.fixture
def silent_broker() -> Iterator[socket.socket]:
    """Takes connections, and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@contextmanager
def headrace_run(folder: Path, *settings: str) -> Iterator[subprocess.Popen[str]]:
    """``headrace run``."""
    (folder / "app.py").write_text(PROGRAM)
    command = [sys.executable, "-c", "from headrace.cli.main import main; main()", "run", "app.py"]
    options = [word for setting in settings for word in ("-s", setting)]
    with in_own_group([*command, *options], folder) as process:
        yield process


def assert_ends_at_ctrl_c(process: subprocess.Popen[str]) -> None:
    """Press Ctrl-C; see that the process ends as it should, and that none is left of its group."""
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=SECONDS)
    assert (process.returncode, said) == (0, "")

    def is_empty() -> bool:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return True
        return False

    await_that(is_empty, "its processes to end")


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
    with headrace_run(tmp_path, broker, f"request.timeout.ms={2_000 * SECONDS}") as process:
        connection, _ = silent_broker.accept()

        assert_ends_at_ctrl_c(process)
        connection.close()


def test_ctrl_c_ends_a_run_that_stands_by(tmp_path: Path) -> None:
    config = topics_in(tmp_path)
    leadership = open_leadership(config, config.state_dir / "app")
    assert leadership.wait(SECONDS)
    with headrace_run(tmp_path, f"state.dir={config.state_dir}") as process:
        assert process.stdout is not None
        assert any("this process stands by" in line for line in process.stdout)

        assert_ends_at_ctrl_c(process)
    leadership.release()


def test_ctrl_c_ends_a_run_that_starts_spark(tmp_path: Path) -> None:
    config = topics_in(tmp_path)
    with headrace_run(tmp_path, f"state.dir={config.state_dir}") as process:
        # Written right before Java is started.
        logging = config.state_dir / "app" / "log4j2.properties"
        await_that(logging.exists, "Spark to be started")

        assert_ends_at_ctrl_c(process)
    leadership = open_leadership(config, config.state_dir / "app")
    assert leadership.patience == 0
    leadership.release()
