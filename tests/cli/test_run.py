"""`headrace run` and `headrace plan`: which application, with which settings."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import pytest

from headrace import KafkaStreams, StreamsConfig
from tests.cli.conftest import Cli

BARE = """
from headrace import StreamsBuilder
builder = StreamsBuilder()
builder.stream("in", key=str, value=str).to("out")
"""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[KafkaStreams]:
    """The applications that were run; nothing starts."""
    apps: list[KafkaStreams] = []

    def run(app: KafkaStreams) -> int:
        apps.append(app)
        return 0

    monkeypatch.setattr("headrace.cli.run.run_in_foreground", run)
    return apps


def config_of(apps: list[KafkaStreams]) -> StreamsConfig:
    (app,) = apps
    return app.config


def test_an_application_runs_with_its_own_settings(
    cli: Cli, program: str, started: list[KafkaStreams]
) -> None:
    done = cli("run", program)

    assert done.code == 0
    assert config_of(started).application_id == "word-count"


def test_flags_win_over_environment_over_file_over_code(
    cli: Cli,
    program: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    started: list[KafkaStreams],
) -> None:
    (folder / "headrace.toml").write_text(
        'application.id = "of-file"\nclient.id = "of-file"\ntask.timeout.ms = 1\ntrigger = "1s"\n'
    )
    monkeypatch.setenv("HEADRACE_CLIENT_ID", "of-environment")
    monkeypatch.setenv("HEADRACE_TASK_TIMEOUT", "2ms")
    monkeypatch.setenv("HEADRACE_TRIGGER", "2s")

    cli("run", program, "--trigger", "3s", "-s", "task.timeout.ms=3")

    config = config_of(started)
    assert config.application_id == "of-file"
    assert config.client_id == "of-environment"
    assert config.task_timeout == timedelta(milliseconds=3)
    assert config.trigger == timedelta(seconds=3)


def test_common_settings_have_flags(cli: Cli, program: str, started: list[KafkaStreams]) -> None:
    cli(
        "run", program, "--application-id", "other", "--bootstrap-servers", "h:9", "--state-dir",
        "there", "--trigger", "available_now", "--master", "local[3]", "-s", "spark.ui.port=1",
    )  # fmt: skip

    config = config_of(started)
    assert config.application_id == "other"
    assert config.bootstrap_servers == "h:9"
    assert config.state_dir == Path("there")
    assert config.trigger == "available_now"
    assert dict(config.spark) == {"spark.master": "local[3]", "spark.ui.port": "1"}


def test_an_embedded_path_wins_over_the_servers_of_a_file(
    cli: Cli, program: str, folder: Path, started: list[KafkaStreams]
) -> None:
    (folder / "headrace.toml").write_text('bootstrap.servers = "h:9"\n')

    cli("run", program, "--embedded-path", "log.db")

    assert config_of(started).bootstrap_servers is None


def test_a_file_of_properties_counts_between_toml_and_environment(
    cli: Cli,
    program: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    started: list[KafkaStreams],
) -> None:
    (folder / "headrace.toml").write_text('client.id = "toml"\napplication.id = "toml"\n')
    (folder / "my.properties").write_text("client.id=props\nstate.dir=props\n")
    monkeypatch.setenv("HEADRACE_STATE_DIR", "env")

    cli("run", program, "--command-config", "my.properties")

    config = config_of(started)
    assert (config.application_id, config.client_id) == ("toml", "props")
    assert config.state_dir == Path("env")


def test_a_topology_becomes_an_application_named_after_its_file(
    cli: Cli, folder: Path, started: list[KafkaStreams]
) -> None:
    (folder / "my_shop.py").write_text(BARE)

    cli("run", "my_shop.py")

    assert config_of(started).application_id == "my-shop"


def test_a_topology_takes_its_name_from_a_flag(
    cli: Cli, folder: Path, started: list[KafkaStreams]
) -> None:
    (folder / "my_shop.py").write_text(BARE)

    cli("run", "my_shop.py", "--application-id", "shop")

    assert config_of(started).application_id == "shop"


def test_the_exit_code_is_the_applications(
    cli: Cli, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.cli.run.run_in_foreground", lambda _: 7)

    assert cli("run", program).code == 7


def test_an_interrupted_run_says_so_in_its_exit_code(
    cli: Cli, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(_: KafkaStreams) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("headrace.cli.run.run_in_foreground", run)

    assert cli("run", program).code == 130


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--trigger", "soon"], "`trigger` is 'soon'"),
        (["-s", "no.such.setting=1"], "`no.such.setting` is not a setting"),
        (["--application-id", "a b"], "`application.id` is 'a b'"),
    ],
)
def test_settings_that_cannot_be_used_are_usage_errors(
    cli: Cli, program: str, words: list[str], said: str
) -> None:
    done = cli("run", program, *words)

    assert done.code == 2
    assert said in done.err


def test_a_file_without_an_application_is_not_found(cli: Cli, folder: Path) -> None:
    (folder / "nothing.py").write_text("x = 1\n")

    done = cli("run", "nothing.py")

    assert done.code == 4
    assert "nothing.py has no KafkaStreams, Topology or StreamsBuilder" in done.err


def test_the_plan_of_a_program_is_printed(cli: Cli, program: str) -> None:
    pytest.importorskip("headrace.spark.planning.plan")

    done = cli("plan", program)

    assert done.code == 0
    assert "word-count" in done.out
    assert "Stage 1" in done.out


def test_without_the_runtime_the_plan_says_what_to_install(
    cli: Cli, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "headrace.spark.planning.plan", None)

    done = cli("plan", program)

    assert done.code == 1
    assert "pip install headrace[spark]" in done.err
