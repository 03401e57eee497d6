"""``make demo`` shows results, and the commands that it prints at its end work as printed."""

from __future__ import annotations

import os
import pty
import re
import runpy
import select
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.process_tree import ProcessTree
from headrace import KafkaStreams
from tests.cli.conftest import Cli
from tests.kafka_broker import start_broker
from tests.unit.spark.fake_query import faked_queries
from tests.waiting import PATIENCE, await_that

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def commands(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The words of each command that is printed, in a folder like the repository."""
    shutil.copytree(EXAMPLES, folder / "examples")
    monkeypatch.delitem(sys.modules, "orders", raising=False)
    said: str = runpy.run_path("examples/demo.py")["WHAT_NEXT"]
    sys.modules.pop("orders")
    # A paragraph of indented lines is to be typed.
    typed = "\n".join(part for part in said.split("\n\n") if part.startswith("  "))
    lines = typed.replace("\\\n", " ").split("  .venv/bin/")
    return [shlex.split(line, comments=True) for line in lines if line]


@pytest.fixture
def on_both_logs() -> Iterator[list[list[str]]]:
    """The flags for the embedded log, then those for Kafka.

    The broker is the test's own: other tests have topics with the names of the demo.
    """
    with start_broker() as broker:
        yield [[], ["--bootstrap-servers", broker.address]]


def test_the_commands_of_the_demo_can_be_typed_on_one_log_after_the_other(
    cli: Cli,
    commands: list[list[str]],
    on_both_logs: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queries = faked_queries(monkeypatch, is_active=False)
    on_topics = [words for program, *words in commands if program == "headrace"]
    before_topics, on_topics = on_topics[:2], on_topics[2:]
    scripts = [words for program, *words in commands if program != "headrace"]

    done = [(words[0], cli(*words)) for words in before_topics]
    for flags in on_both_logs:
        done += [(words[0], cli(*words, *flags)) for words in on_topics]

    assert all(Path(*words).exists() for words in scripts)
    typed = ["topics", "topics", "produce", "produce", "run", "consume"]
    assert [(name, end.code, end.err) for name, end in done] == [
        (name, 0, "") for name in ["describe", "plan", *typed, *typed]
    ]
    assert len(queries) == len(on_both_logs)


@pytest.mark.parametrize(("code", "is_shown"), [(0, True), (1, False), (130, False)])
def test_the_demo_says_what_to_try_next_only_after_it_has_worked(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: int,
    is_shown: bool,
) -> None:
    monkeypatch.setattr(KafkaStreams, "run", lambda _self: code)
    main = runpy.run_path(str(EXAMPLES / "demo.py"))["main"]

    assert main() == code
    assert ("What to try next" in capsys.readouterr().out) is is_shown


class RunningDemo:
    """The demo as a user runs it, in a process group of its own, which Ctrl-C reaches as a whole.

    Args:
        on_terminal: Whether its output goes to a terminal; else to a pipe.
    """

    def __init__(self, *, on_terminal: bool) -> None:
        self._output, inner = pty.openpty() if on_terminal else os.pipe()
        self.said = ""
        self.process = subprocess.Popen(
            [sys.executable, str(EXAMPLES / "demo.py")],
            stdin=subprocess.DEVNULL,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
        )
        os.close(inner)

    def __enter__(self) -> RunningDemo:
        return self

    def __exit__(self, *_: object) -> None:
        ProcessTree(self.process.pid).kill()
        self.process.wait()
        os.close(self._output)

    def read_until(self, pattern: str) -> None:
        """Read until the output has what is looked for."""

        def is_said() -> bool:
            if re.search(pattern, self.said):
                return True
            assert self._read_some(), self.said
            return False

        await_that(is_said, repr(pattern), found=lambda: self.said)

    def read_to_end(self) -> None:
        """Read what is left; a process of the demo that outlives it would keep it open."""
        await_that(lambda: not self._read_some(), "the end of the output", found=lambda: self.said)

    def _read_some(self) -> bool:
        """Add what comes within a second; return whether more may come."""
        if not select.select([self._output], [], [], 1)[0]:
            return True
        try:
            read = os.read(self._output, 1 << 16)
        except OSError:  # Linux raises this if no process has the terminal open
            return False
        self.said += read.decode(errors="replace")
        return bool(read)


@pytest.mark.nightly("demo")
@pytest.mark.parametrize(
    ("on_terminal", "results"),
    [
        (True, r"general-revenue +store_\d +RevenueWithStore\("),
        (False, r" INFO running batch \d+ took \d+ ms  in \S+  out [1-9]"),
    ],
    ids=["terminal", "pipe"],
)
def test_the_demo_shows_results_until_ctrl_c_and_says_what_to_try_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch, on_terminal: bool, results: str
) -> None:
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("HEADRACE_LOG_SUMMARY_INTERVAL", "1s")
    with RunningDemo(on_terminal=on_terminal) as demo:
        demo.read_until(results)
        os.killpg(demo.process.pid, signal.SIGINT)
        demo.read_to_end()

        assert demo.process.wait(PATIENCE) == 0

    ended = "NOT_RUNNING" if on_terminal else "went from PENDING_SHUTDOWN to NOT_RUNNING."
    shown, heading, next_steps = demo.said.replace("\r\n", "\n").partition("What to try next")
    assert ended in shown
    assert heading, demo.said
    assert "headrace run examples/orders.py" in next_steps
    # Neither Java nor Python says a word of its own.
    assert not re.search(r"org\.apache|java\.|Py4J|\.scala|Traceback|WARN", demo.said)
    assert list(folder.glob("headrace-demo-*")) == []
