"""`headrace run`: which application, with which settings."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from pathlib import Path

import pytest
from rich.console import Console

from headrace import KafkaStreams, StreamsConfig
from tests.cli.conftest import BARE, Cli
from tests.kafka_broker import free_ports


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[KafkaStreams]:
    """The applications that were run; nothing starts."""
    apps: list[KafkaStreams] = []

    def run(app: KafkaStreams, _terminal: Console | None) -> int:
        apps.append(app)
        return 0

    monkeypatch.setattr("headrace.cli.run.run_until_stopped", run)
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
    monkeypatch.setattr("headrace.cli.run.run_until_stopped", lambda *_: 7)

    assert cli("run", program).code == 7


def test_an_interrupted_run_has_its_own_exit_code(
    cli: Cli, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("headrace.cli.run.run_until_stopped", run)

    assert cli("run", program).code == 130


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--trigger", "soon"], "`trigger` is 'soon'"),
        (["-s", "trigge=1"], "`trigge` is not a setting"),
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


def test_a_run_without_its_topic_is_not_found_and_leaves_lines(cli: Cli, program: str) -> None:
    done = cli("run", program)

    assert done.code == 4
    assert done.err == (
        "Error: There is no topic 'lines'. Create it with `headrace topics create lines "
        "--embedded-path .headrace/topics.db`.\n"
    )
    assert " INFO Application 'word-count' went from CREATED to REBALANCING.\n" in done.out
    assert " INFO Application 'word-count' went from PENDING_ERROR to ERROR.\n" in done.out


def test_a_run_without_its_broker_is_not_ready_and_logs_it_once(cli: Cli, program: str) -> None:
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"

    done = cli(
        "run", program, "--bootstrap-servers", address, "-s", "request.timeout.ms=1000",
    )  # fmt: skip

    assert done.code == 3
    assert done.err.startswith(f"Error: The broker at {address} did not answer within 1 s")
    assert done.err.count("\n") == 1
    assert "rdkafka" not in done.out


def test_on_a_terminal_a_broker_that_is_not_there_is_not_asked_for_results(
    cli: Cli, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = free_ports(1)
    opened: list[StreamsConfig] = []
    monkeypatch.setattr("headrace.foreground.open_log", opened.append)
    monkeypatch.setattr("typer.testing._NamedTextIOWrapper.isatty", lambda _: True)

    done = cli(
        "run", program, "--bootstrap-servers", f"127.0.0.1:{port}",
        "-s", "request.timeout.ms=1000",
    )  # fmt: skip

    assert done.code == 3
    assert "dead letters 0" in done.out  # the view was drawn
    assert opened == []


def test_a_run_for_programs_leaves_objects(cli: Cli, program: str) -> None:
    done = cli("run", program, "--output", "json")

    assert done.code == 4
    assert json.loads(done.err)["error"] == "UnknownTopicError"
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert lines[0].keys() == {"time", "level", "message"}
    assert lines[0]["level"] == "INFO"
    assert lines[0]["message"] == "Application 'word-count' went from CREATED to REBALANCING."


def test_a_quiet_run_leaves_the_error_alone(cli: Cli, program: str) -> None:
    done = cli("run", program, "--quiet")

    assert (done.code, done.out) == (4, "")
    assert done.err.startswith("Error: There is no topic 'lines'.")


def test_a_run_can_show_where_its_error_was_raised(cli: Cli, program: str) -> None:
    done = cli("run", program, "--traceback")

    assert done.code == 4
    assert done.err.startswith("Traceback (most recent call last):")


def test_a_logged_exception_is_readable_by_programs(
    cli: Cli, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: object) -> int:
        try:
            raise ValueError("wrong")
        except ValueError:
            logging.getLogger("headrace").exception("It failed.")
        return 0

    monkeypatch.setattr("headrace.cli.run.run_until_stopped", run)

    said = cli("run", program, "--output", "json").data

    assert (said["level"], said["message"]) == ("ERROR", "It failed.")
    assert said["traceback"].endswith("ValueError: wrong")


@pytest.mark.parametrize(
    ("words", "drawn", "written"),
    [
        ([], True, ["late"]),
        (["-v"], True, ["late", "well"]),
        (["-vv"], True, ["late", "well", "detail"]),
        (["--quiet"], False, ["late"]),
    ],
)
def test_a_terminal_gets_the_view_and_what_matters(
    cli: Cli,
    program: str,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    drawn: bool,
    written: list[str],
) -> None:
    terminals: list[Console | None] = []

    def run(_: KafkaStreams, terminal: Console | None) -> int:
        terminals.append(terminal)
        logger = logging.getLogger("headrace")
        logger.warning("late")
        logger.info("well")
        logger.debug("detail")
        return 0

    monkeypatch.setattr("headrace.cli.run.run_until_stopped", run)
    monkeypatch.setattr("typer.testing._NamedTextIOWrapper.isatty", lambda _: True)

    done = cli("run", program, *words)

    assert [line.split()[-1] for line in done.out.splitlines()] == written
    assert [terminal is not None for terminal in terminals] == [drawn]
