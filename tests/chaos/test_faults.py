"""A fault that takes no effect raises, in each family, and does not count."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chaos.faults import FAULTS, clock, disk, leadership, network, processes, steps
from chaos.processes import Session, lives
from chaos.rounds import Plan, Round
from chaos.scene import Fault, NoRecoveryError, NothingHappenedError, Scene
from chaos.sites import KafkaSite
from chaos.steps import FOLDER, refuse
from tests.tcp_proxy import Request, TcpProxy
from tests.waiting import PATIENCE, await_that

WRITES = """
import signal, sys, time
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
while True:
    time.sleep(0.01)
    try:
        with open(sys.argv[1], "a") as file:
            file.write("x")
    except OSError:
        with open(sys.argv[2], "x"):
            break
"""


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own, which does nothing."""
    sleeping = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(sleeping, start_new_session=True) as process:
        yield process
        process.kill()


class _Supervisor(SimpleNamespace):
    """A supervisor of one process, which is all of the application."""

    application_id = "app"
    starts = 1

    @property
    def log(self) -> Path:
        return Path(self.folder, "application.log")

    @property
    def checkpoint(self) -> Path:
        return Path(self.folder)

    def is_up(self) -> bool:
        return True

    def last_output(self) -> str:
        return ""

    def step_clock(self, milliseconds: int) -> int:
        return 1_000_000 + milliseconds


@pytest.fixture
def scene(child: subprocess.Popen[bytes], tmp_path: Path) -> Scene:
    session = Session(child.pid)
    alone = SimpleNamespace(driver=child.pid, jvm=session.pids, workers=session.pids)
    for name in ("pids", "kill", "stop", "resume"):
        setattr(alone, name, getattr(session, name))
    supervisor = _Supervisor(folder=tmp_path, session=alone)
    supervisor.log.touch()
    return Scene(cast(Any, None), cast(Any, supervisor), cast(Any, None), (), Random(1))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits for events that do not come."""
    monkeypatch.setattr(processes, "_START_SECONDS", 0.0)
    monkeypatch.setattr(processes, "_LONGEST_STOP", 0.2)
    monkeypatch.setattr(steps, "_REACH_SECONDS", 0.0)
    monkeypatch.setattr(clock, "_SHOW_SECONDS", 0.1)
    monkeypatch.setattr(disk, "_REFUSE_SECONDS", 0.1)
    monkeypatch.setattr(network, "_LONGEST_FAULT", 0.3)
    monkeypatch.setattr(network, "_REQUEST_SECONDS", 0.1)
    monkeypatch.setattr(leadership, "LEAD_SECONDS", 0.1)


@pytest.mark.parametrize("kind", ["kill-jvm", "kill-driver", "kill-all", "stop-jvm", "stop-worker"])
def test_a_process_that_has_ended_is_neither_killed_nor_stopped(
    kind: str, scene: Scene, child: subprocess.Popen[bytes]
) -> None:
    detail = FAULTS["stop-jvm"].inflict(scene)
    child.kill()
    await_that(lambda: not lives(child.pid), "the process to end")

    assert detail.endswith(" s")
    with pytest.raises(NothingHappenedError, match="No such process"):
        FAULTS[kind].inflict(scene)


def test_a_process_that_lives_is_killed(scene: Scene, child: subprocess.Popen[bytes]) -> None:
    assert FAULTS["kill-all"].inflict(scene) == "1 killed"
    assert child.wait() == -signal.SIGKILL


@pytest.mark.parametrize("kind", ["before-begin", "after-spark-commit"])
def test_a_step_that_is_never_reached_kills_no_process(kind: str, scene: Scene) -> None:
    with pytest.raises(NothingHappenedError, match="was not reached"):
        FAULTS[kind].inflict(scene)


@pytest.mark.parametrize("kind", ["torn-offsets", "torn-commits"])
def test_a_checkpoint_without_files_is_not_torn(
    kind: str, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.faults.checkpoint._DECIDE_SECONDS", 0.0)
    object.__setattr__(scene.supervisor, "held_down", nullcontext)

    with pytest.raises(NothingHappenedError, match="no file"):
        FAULTS[kind].inflict(scene)


@pytest.mark.parametrize("kind", ["checkpoint-full", "log-full"])
def test_a_disk_is_full_if_a_write_was_refused(
    kind: str, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "_SHORTEST", 0.0)
    monkeypatch.setattr(disk, "_LONGEST", 0.1)
    with pytest.raises(NothingHappenedError, match="No write was refused"):
        FAULTS[kind].inflict(scene)

    def limited(*_: object) -> None:
        scene.supervisor.log.write_text("java.io.IOException: File too large")
        refuse()

    monkeypatch.setenv(FOLDER, str(scene.supervisor.folder))
    monkeypatch.setattr(disk, "_limit", limited)
    assert " bytes for " in FAULTS[kind].inflict(scene)


def test_a_process_whose_disk_is_full_cannot_write_and_then_can(tmp_path: Path) -> None:
    written, refused = tmp_path / "written", tmp_path / "refused"
    command = [sys.executable, "-c", WRITES, str(written), str(refused)]
    with subprocess.Popen(command, start_new_session=True) as process:
        await_that(written.exists, "a first write")
        scene = cast(Scene, None)
        with disk._limited(lambda _: [process.pid], scene, 0):
            process.wait()

    assert refused.exists()


@pytest.mark.parametrize(
    ("kind", "clocks"),
    [("clock-forwards", (900_000, 9_000_000)), ("clock-backwards", (1_000_500, 1_000_500))],
)
def test_a_clock_has_jumped_if_a_batch_shows_it(
    kind: str, clocks: tuple[int, int], scene: Scene
) -> None:
    folder = scene.supervisor.checkpoint / "offsets"
    folder.mkdir()
    for number, each in enumerate((900_000, 1_000_500)):
        (folder / str(number)).write_text(f"v1\n{{}}\n{json.dumps({'clock': each})}")
    with pytest.raises(NothingHappenedError, match="No batch was planned"):
        FAULTS[kind].inflict(scene)

    step_clock = scene.supervisor.step_clock

    def stepped(milliseconds: int) -> int:
        for number, each in enumerate(clocks):
            (folder / str(number + 2)).write_text(json.dumps({"clock": each}))
        return step_clock(milliseconds)

    object.__setattr__(scene.supervisor, "step_clock", stepped)
    assert FAULTS[kind].inflict(scene).endswith(" s")


class _Site(KafkaSite):
    def __init__(self, proxies: list[TcpProxy]) -> None:
        self.proxies = proxies


@pytest.mark.parametrize("kind", ["cut", "stall", "delay", "lost-answer"])
def test_an_unused_network_does_not_fail(kind: str, scene: Scene) -> None:
    with TcpProxy("127.0.0.1:1") as proxy:
        object.__setattr__(scene, "site", _Site([proxy]))
        with pytest.raises(NothingHappenedError, match=r"Nothing came by|No client sent"):
            FAULTS[kind].inflict(scene)


@pytest.mark.parametrize("kind", ["cut", "stall", "delay"])
def test_a_network_that_is_used_fails(kind: str, scene: Scene) -> None:
    with socket.create_server(("127.0.0.1", 0)) as broker, TcpProxy() as proxy:
        proxy.lead_to(f"127.0.0.1:{broker.getsockname()[1]}")
        object.__setattr__(scene, "site", _Site([proxy]))
        with (
            socket.create_connection(("127.0.0.1", proxy.port)) as client,
            broker.accept()[0],
            ThreadPoolExecutor(1) as pool,
        ):
            failing = pool.submit(FAULTS[kind].inflict, scene)
            while not failing.done():
                with suppress(OSError):
                    client.sendall(bytes(8))  # a request of no bytes
                time.sleep(0.01)

            assert failing.result().startswith("1 of 1 for ")


class _Least(Random):
    """Nothing is left to chance: the least of everything."""

    def random(self) -> float:
        return 0.0


def test_a_slow_network_is_slow_enough_to_matter(scene: Scene) -> None:
    object.__setattr__(scene, "chance", _Least())
    with TcpProxy("127.0.0.1:1") as proxy:
        network._delay(proxy, scene)

        assert proxy._delay >= 0.05


@pytest.mark.parametrize("asked", network.REQUESTS)
def test_an_answer_that_is_lost_never_comes_though_its_request_does(
    asked: Request, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "_REQUEST_SECONDS", PATIENCE)
    object.__setattr__(scene, "seed", network.REQUESTS.index(asked))
    sent = (2).to_bytes(4) + asked.to_bytes(2)
    with socket.create_server(("127.0.0.1", 0)) as broker, TcpProxy() as proxy:
        proxy.lead_to(f"127.0.0.1:{broker.getsockname()[1]}")
        object.__setattr__(scene, "site", _Site([proxy]))
        with (
            socket.create_connection(("127.0.0.1", proxy.port)) as client,
            broker.accept()[0] as there,
            ThreadPoolExecutor(1) as pool,
        ):
            failing = pool.submit(FAULTS["lost-answer"].inflict, scene)
            await_that(lambda: proxy._trap is not None, "the fault to lie in wait")
            client.sendall(sent)
            arrived = there.recv(len(sent))
            there.sendall(b"done")
            detail = failing.result()
            answer = b""
            with suppress(ConnectionResetError):
                answer = client.recv(4)

    assert (arrived, answer) == (sent, b"")
    assert detail == asked.name.lower()


@pytest.fixture
def led(scene: Scene, child: subprocess.Popen[bytes]) -> Scene:
    supervisor: Any = scene.supervisor
    supervisor.stand_by, supervisor.dismiss = lambda: True, lambda: None
    supervisor.follow = lambda: child
    progress = count()
    leader = SimpleNamespace(metadata=f"Process {child.pid} on here")
    log = SimpleNamespace(committed_offsets=lambda _group: {"leader": leader})
    site = SimpleNamespace(kind="kafka", log=log, committed=lambda _group: next(progress))
    object.__setattr__(scene, "site", site)
    return scene


def test_a_leader_that_is_killed_is_followed(led: Scene) -> None:
    assert FAULTS["take-over"].inflict(led) == "1 killed"


@pytest.mark.parametrize("kind", ["take-over", "zombie", "sleeping-driver"])
def test_without_a_standby_nothing_happens(kind: str, led: Scene) -> None:
    object.__setattr__(led.supervisor, "stand_by", lambda: False)

    with pytest.raises(NothingHappenedError, match="There was no standby"):
        FAULTS[kind].inflict(led)


@pytest.mark.parametrize("kind", ["take-over", "zombie", "sleeping-driver"])
def test_a_leader_that_has_ended_is_no_target_of_a_fault(
    kind: str, led: Scene, child: subprocess.Popen[bytes]
) -> None:
    child.kill()
    child.wait()

    with pytest.raises(NothingHappenedError, match="had ended before"):
        FAULTS[kind].inflict(led)


@pytest.mark.parametrize("kind", ["take-over", "zombie", "sleeping-driver"])
def test_a_standby_that_does_not_lead_is_reported(kind: str, led: Scene) -> None:
    site: Any = led.site
    site.log.committed_offsets = lambda _group: {}

    with pytest.raises(NoRecoveryError, match="did not lead"):
        FAULTS[kind].inflict(led)


@pytest.mark.parametrize("kind", ["zombie", "sleeping-driver"])
def test_a_zombie_that_lives_on_is_reported(
    kind: str, led: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leadership, "END_SECONDS", 0.1)

    with pytest.raises(NoRecoveryError, match="lived on"):
        FAULTS[kind].inflict(led)


@pytest.mark.parametrize("kind", ["zombie", "sleeping-driver"])
def test_a_zombie_that_ends_for_another_reason_is_reported(
    kind: str, led: Scene, child: subprocess.Popen[bytes]
) -> None:
    def terminated(group: str) -> Any:
        child.terminate()  # comes through when it is woken
        return committed(group)

    site: Any = led.site
    committed = site.log.committed_offsets
    site.log.committed_offsets = terminated

    with pytest.raises(NoRecoveryError, match="not because another process leads"):
        FAULTS[kind].inflict(led)


def test_a_zombie_of_the_embedded_log_is_what_its_driver_leaves(led: Scene) -> None:
    led.site.kind = "embedded"

    with pytest.raises(NothingHappenedError, match="Nothing was left"):
        FAULTS["zombie"].inflict(led)


FAILS_WITH_ANOTHER = """
import signal, subprocess, sys
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

def fail(*_):
    other.kill()
    other.wait()
    sys.exit(1)

signal.signal(signal.SIGTERM, fail)
print(other.pid, flush=True)
signal.pause()
"""


def test_while_a_driver_sleeps_its_other_processes_run(led: Scene) -> None:
    command = [sys.executable, "-c", FAILS_WITH_ANOTHER]
    supervisor: Any = led.supervisor
    site: Any = led.site
    leads = site.log.committed_offsets
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        other, seen = int(driver.stdout.readline()), set[bool]()

        def fenced(group: str) -> Any:
            await_that(lambda: is_stopped(driver.pid), "the driver to stand still")
            seen.add(is_stopped(other))
            driver.terminate()  # comes through when it is woken
            supervisor.log.write_text("Another process has taken over application 'app'")
            return leads(group)

        supervisor.follow = lambda: driver
        site.log.committed_offsets = fenced

        try:
            assert FAULTS["sleeping-driver"].inflict(led) == "1 woken"
        finally:
            Session(driver.pid).kill()
    assert seen == {False}


def test_no_standby_takes_over_from_a_driver_that_sleeps_with_the_lock(
    led: Scene, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leadership, "_SLEEP_SECONDS", 0.1)
    led.site.kind = "embedded"
    site: Any = led.site
    leaders = iter([site.log.committed_offsets("app"), {}])

    assert FAULTS["sleeping-driver"].inflict(led) == "driver asleep for 0.1 s, led on"
    assert not is_stopped(child.pid)
    site.log.committed_offsets = lambda _group: next(leaders)
    with pytest.raises(NoRecoveryError, match="Another process leads"):
        FAULTS["sleeping-driver"].inflict(led)


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_fault_that_did_not_happen_is_reported_and_not_counted(tmp_path: Path) -> None:
    running = Round(Plan("embedded", "running_aggregate", seed=1), tmp_path)
    running.supervisor = cast(Any, _Supervisor(folder=tmp_path))
    running.scene = cast(Any, None)
    running.watcher = cast(Any, SimpleNamespace(looks=0))
    running.await_progress = lambda: 0.5  # type: ignore[method-assign]

    def nothing(_: Scene) -> str:
        msg = "No such process lived."
        raise NothingHappenedError(msg)

    def no_end(_: Scene) -> str:
        msg = "The zombie lived on."
        raise NoRecoveryError(msg)

    assert running.inflict(Fault("kill-jvm", nothing))
    assert running.inflict(Fault("stop-jvm", lambda _: "1 s"))
    assert not running.inflict(Fault("zombie", no_end))

    assert running.missed == ["kill-jvm did not happen: No such process lived."]
    assert [fault.kind for fault in running.faults] == ["stop-jvm", "zombie"]
    assert len(running.problems) == 1
    assert "The zombie lived on." in running.problems[0]
