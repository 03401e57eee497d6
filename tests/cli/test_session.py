"""The output of commands, and their common options."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from headrace.cli.session import OutputFormat, Session, print_table
from tests.cli.conftest import Cli

ROWS = [
    {"topic": "[b]orders", "records": 12, "note": None},
    {"topic": "a", "records": 3, "note": "x"},
]


def test_a_terminal_gets_a_table_without_markup_of_its_content(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")

    print_table(ROWS)

    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == ["topic      records  note", "[b]orders       12  -", "a                3  x"]


@pytest.mark.parametrize(("flag", "variable"), [(False, "1"), (True, "")])
def test_colours_can_be_left_out(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    flag: bool,
    variable: str,
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", variable)

    print_table(ROWS, no_color=flag)

    assert "\x1b[3" not in capsys.readouterr().out


@pytest.mark.parametrize("no_color", [False, True])
def test_a_view_is_drawn_on_a_terminal_with_colours_or_without(
    monkeypatch: pytest.MonkeyPatch, no_color: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)

    terminal = Session(no_color=no_color).terminal()

    assert terminal is not None
    assert terminal.no_color is no_color


@pytest.mark.parametrize("session", [Session(quiet=True), Session(output=OutputFormat.JSON)])
def test_no_view_is_drawn_where_it_would_disturb(
    monkeypatch: pytest.MonkeyPatch, session: Session
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)

    assert session.terminal() is None


def test_even_everything_is_without_the_calls_to_java(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    py4j = logging.getLogger("py4j")
    monkeypatch.setattr(py4j, "level", logging.NOTSET)

    cli("version", "-vv")

    assert py4j.level == logging.WARNING


def test_a_traceback_that_py4j_logs_as_the_root_is_left_out(cli: Cli) -> None:
    cli("version")
    root = logging.getLogger()

    records = [
        logging.LogRecord("root", logging.ERROR, path, 1, "Exception while …", (), None)
        for path in ("/lib/py4j/java_gateway.py", "/home/me/app.py")
    ]

    assert [bool(root.filter(record)) for record in records] == [False, True]


@pytest.mark.parametrize(
    "words",
    [
        ["run"], ["plan"], ["describe"], ["lag"], ["reset"], ["produce"], ["consume"], ["doctor"],
        ["version"], ["config", "show"], ["topics", "list"], ["topics", "describe"],
        ["topics", "create"], ["topics", "delete"], ["topics", "grow"], ["groups", "list"],
        ["groups", "describe"], ["groups", "offsets"], ["groups", "delete"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_every_command_explains_itself_and_has_the_common_options(
    cli: Cli, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")

    done = cli(*words, "--help")

    assert done.code == 0
    for option in ("--output", "--quiet", "--no-color", "--traceback", "--verbose"):
        assert option in done.out


def test_a_wrong_format_is_a_usage_error(cli: Cli) -> None:
    assert cli("version", "--output", "xml").code == 2


def test_a_path_that_no_system_can_have_is_an_error_in_one_sentence(
    cli: Cli, broker_flags: list[str], named: Callable[[str], str]
) -> None:
    done = cli("reset", named("app"), "--state-dir", "x" * 300, *broker_flags)

    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("Error: Cannot use '/")
    assert done.err.endswith("…': File name too long. Use another path.\n")
