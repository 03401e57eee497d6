"""`headrace reset` refuses an application that runs, from any folder, and names the process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.brokers import OffsetAndMetadata
from headrace.brokers.offset_metadata import RESET_OFFSETS
from headrace.brokers.sessions import Broker
from headrace.clients import KafkaConsumer
from tests.cli.conftest import Cli
from tests.cli.resetting import offsets, ran


@pytest.mark.parametrize("group", ["app", "app-queries", "app-leader"])
def test_an_application_with_members_is_not_reset(
    cli: Cli, log: Broker, folder: Path, group: str
) -> None:
    checkpoint = ran(log, "app", "orders", folder)
    with KafkaConsumer(key=bytes, value=bytes, group_id=group) as consumer:
        consumer.subscribe(["orders"])
        consumer.poll("50ms")

        done = cli("reset", "app", "--yes")

    assert done.code == 1
    assert f"Group {group!r} still has members" in done.err
    assert checkpoint.exists()


HOLD = """
import sys
from pathlib import Path
from headrace.home import DirectoryLock
with DirectoryLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_an_application_that_runs_is_not_reset(cli: Cli, log: Broker, folder: Path) -> None:
    checkpoint = ran(log, "app", "orders", folder)
    command = [sys.executable, "-c", HOLD, str(checkpoint.parent)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()

        done = cli("reset", "app", "--yes")

        holder.communicate()
    assert done.code == 1
    uses = f"Process {holder.pid} uses the state in {str(checkpoint.parent)!r}."
    assert done.err == f"Error: {uses} Stop it first.\n"
    assert checkpoint.exists()
    assert offsets(log, "app")[0] == OffsetAndMetadata(6, "own")


LEAD = """
import sys
from headrace import StreamsConfig
from headrace.brokers import open_log
from headrace.home import ApplicationHome
from headrace.runtime.leadership import open_leadership
name, state_dir, flag, value = sys.argv[1:]
setting = flag.removeprefix("--").replace("-", "_")
config = StreamsConfig(application_id=name, state_dir=state_dir, **{setting: value})
home = ApplicationHome.of(config, open_log(config).cluster_id())
leadership = open_leadership(config, home)
assert leadership.wait(200)
print("leads", flush=True)
sys.stdin.read()
leadership.release()
"""
"""A process that leads an application until its input ends."""


@pytest.fixture
def leader(
    broker_flags: list[str], broker_log: Broker, named: Callable[[str], str], folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a state folder of its own that runs the application ``app``."""
    name = named("app")
    ran(broker_log, name, named("orders"), folder)
    command = [sys.executable, "-c", LEAD, name, str(folder / "elsewhere"), *broker_flags]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"leads\n"
        yield process
        process.communicate()


def test_an_application_that_runs_from_another_folder_is_not_reset(
    cli: Cli,
    leader: subprocess.Popen[bytes],
    broker_flags: list[str],
    broker_log: Broker,
    named: Callable[[str], str],
) -> None:
    done = cli("reset", named("app"), "--yes", *broker_flags)

    assert done.code == 1
    assert f"Process {leader.pid} " in done.err
    assert offsets(broker_log, named("app"))[0] == OffsetAndMetadata(6, "own")


def test_an_application_that_ran_from_another_folder_is_reset_once_it_has_ended(
    cli: Cli,
    leader: subprocess.Popen[bytes],
    broker_flags: list[str],
    broker_log: Broker,
    named: Callable[[str], str],
) -> None:
    leader.communicate()

    done = cli("reset", named("app"), "--yes", *broker_flags)

    assert (done.code, done.err) == (0, "")
    assert offsets(broker_log, named("app"))[0] == OffsetAndMetadata(0, RESET_OFFSETS)
