"""``headrace broker``, and so ``make kafka``, runs a broker until a signal ends it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.kafka_broker import RunningBroker, free_ports
from tests.process_groups import in_own_group
from tests.waiting import PATIENCE, await_that

TIMEOUT = f"{PATIENCE:g}s"


@contextmanager
def headrace_broker(port: int) -> Iterator[subprocess.Popen[str]]:
    """The broker."""
    with in_own_group([sys.executable, "-m", "headrace", "broker", "--port", str(port)]) as process:
        yield process


def children_of(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(word) for word in listed.split()]


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def press_ctrl_c(process: int) -> None:
    os.killpg(process, signal.SIGINT)


def terminate(process: int) -> None:
    os.kill(process, signal.SIGTERM)


@pytest.mark.parametrize(
    "stop", [press_ctrl_c, pytest.param(terminate, marks=pytest.mark.nightly("demo"))]
)
def test_a_broker_serves_until_a_signal_ends_it_and_leaves_nothing(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch, stop: Callable[[int], None]
) -> None:
    monkeypatch.setenv("TMPDIR", str(folder))
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    with headrace_broker(port) as process:
        assert process.stdout is not None
        starting, first, second = (process.stdout.readline() for _ in range(3))
        (java,) = children_of(process.pid)
        at = ("--bootstrap-servers", address)
        assert cli("topics", "create", "greetings", *at).code == 0
        assert cli("produce", "greetings", "--key", "ann", "--value", "hello", *at).code == 0
        read = cli("consume", "greetings", "--from-beginning", "-n", "1", "--timeout", TIMEOUT, *at)

        stop(process.pid)
        out, err = process.communicate(timeout=PATIENCE)

    assert re.fullmatch(f"Starting Kafka [0-9.]+ on {address} \\.*\n", starting), starting
    data = re.fullmatch(f"Kafka [0-9.]+ listens on {address}, data in (.*)\\.\n", first)
    assert data is not None, first
    assert Path(data[1]).parent == folder
    assert second == "Stop it with Ctrl-C.\n"
    assert read.out == "ann\thello\n"
    assert (process.returncode, out, err) == (0, "", "")
    assert not is_there(java)
    assert list(folder.glob("headrace-kafka-*")) == []


def test_a_signal_while_the_broker_starts_ends_it_without_a_word(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(folder))
    with headrace_broker(*free_ports(1)) as process:
        java: list[int] = []

        def is_started() -> bool:
            java.extend(children_of(process.pid))
            return bool(java)

        await_that(is_started, "Java")

        press_ctrl_c(process.pid)
        out, err = process.communicate(timeout=PATIENCE)

    assert (process.returncode, err) == (0, "")
    assert re.fullmatch(r"Starting Kafka .*\n", out), out
    await_that(lambda: not any(map(is_there, java)), "the end of Java")
    assert list(folder.glob("headrace-kafka-*")) == []


def test_a_port_that_another_broker_uses_is_an_error(kafka: RunningBroker) -> None:
    port = int(kafka.address.rpartition(":")[2])

    with headrace_broker(port) as process:
        out, err = process.communicate(timeout=PATIENCE)

    assert (process.returncode, out) == (1, "")
    assert err == (
        f"Error: Port {port} of 127.0.0.1 cannot be used: Address already in use. If a broker "
        "runs there already, use or stop that one; or choose another port with `--port`.\n"
    )
