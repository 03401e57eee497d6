"""Commands run in this process, in an empty folder, on the embedded log or on Kafka."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from headrace import StreamsConfig
from headrace.brokers import open_log
from headrace.brokers.sessions import Broker
from headrace.cli.commands import app
from tests.kafka_broker import RunningBroker
from tests.unique_names import unique

PROGRAM = """
from headrace import KafkaStreams, StreamsBuilder

builder = StreamsBuilder()
(
    builder.stream("lines", key=str, value=str)
    .group_by(lambda _, line: line, key=str)
    .count(materialized="counts")
    .to_stream()
    .to("word-counts")
)
app = KafkaStreams(builder.build(), application_id="word-count")
"""

BARE = """
from headrace import StreamsBuilder
builder = StreamsBuilder()
builder.stream("in", key=str, value=str).to("out")
"""
"""A program that is no application: a command names it after its file."""


class Done(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The output, read as JSON."""
        return json.loads(self.out)


Cli = Callable[..., Done]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working folder, and an interpreter that forgets what a command has loaded."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    for name in [name for name in os.environ if name.startswith("HEADRACE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield tmp_path
    forget_programs(tmp_path)


def forget_programs(folder: Path) -> None:
    """Unload the modules of a folder, so that the next command loads them as a new process does."""
    for name, module in sys.modules.copy().items():
        if str(getattr(module, "__file__", "")).startswith(str(folder)):
            del sys.modules[name]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs a command."""
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)

    def run(*words: str, stdin: str = "") -> Done:
        forget_programs(Path.cwd())
        result = CliRunner().invoke(app, words, input=stdin, prog_name="headrace")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Done(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def program(folder: Path) -> str:
    """A file with an application."""
    (folder / "words.py").write_text(PROGRAM)
    return "words.py"


@pytest.fixture(params=["embedded", "kafka"])
def broker_flags(request: pytest.FixtureRequest, folder: Path) -> list[str]:
    """The flags that lead a command to each broker in turn."""
    if request.param == "kafka":
        broker: RunningBroker = request.getfixturevalue("kafka")
        return ["--bootstrap-servers", broker.address]
    return ["--embedded-path", str(folder / "log.db")]


@pytest.fixture
def broker_log(broker_flags: list[str]) -> Iterator[Broker]:
    """The log that `broker_flags` lead to."""
    flag, value = broker_flags
    kafka = flag == "--bootstrap-servers"
    config = StreamsConfig(bootstrap_servers=value) if kafka else StreamsConfig(embedded_path=value)
    log = open_log(config)
    yield log
    log.close()


@pytest.fixture
def log(folder: Path) -> Iterator[Broker]:
    """The log that commands use here by default."""
    opened = open_log(StreamsConfig())
    yield opened
    opened.close()


@pytest.fixture
def named() -> Callable[[str], str]:
    """Names that no other test uses: the broker is shared."""
    mark = unique("cli")
    return lambda name: f"{name}-{mark}"
