"""``headrace example``: list, follow, copy and run the applications that ship."""

from __future__ import annotations

import io
import re
import shlex
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console
from rich.file_proxy import FileProxy

from headrace import StreamsConfig
from headrace.brokers import TopicPartition, open_log
from headrace.cli import example as commands
from headrace.cli.example import say_ended
from headrace.cli.session import Session
from headrace.examples.catalogue import examples
from headrace.examples.user_views import feed
from tests.cli.conftest import Cli
from tests.unit.spark.fake_query import FakeQuery, faked_queries
from tests.waiting import PATIENCE

OWN_LOG = Path(".headrace/examples/user-views/topics.db")


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[FakeQuery]:
    """The queries that commands start; they end at once."""
    return faked_queries(monkeypatch, is_active=False)


def records_in(path: Path, topic: str) -> int:
    log = open_log(StreamsConfig(embedded_path=path))
    names = [TopicPartition(topic, each) for each in range(log.partition_count(topic))]
    count = sum(log.end_offsets(names).values())
    log.close()
    return count


def test_without_a_name_the_examples_are_listed(cli: Cli) -> None:
    done = cli("example", "--output", "json")

    assert [(row["example"], row["does"]) for row in done.data] == [
        (each.name, each.summary) for each in examples()
    ]


def test_an_unknown_name_lists_those_that_exist(cli: Cli) -> None:
    done = cli("example", "nothing")

    assert done.code == 4
    assert "There is no example 'nothing'." in done.err
    assert "user-views" in done.err


def test_a_record_is_followed_through_all_steps(cli: Cli) -> None:
    done = cli("example", "user-views", "--trace")

    first, *_, last = done.out.splitlines()
    assert first.split() == [
        "in", "views", "2023-11-14", "22:13:20", "UTC", "None:", "View(user='carol',", "page='/')",
    ]  # fmt: skip
    assert last.split() == ["store", "user-views", "carol:", "1"]
    assert "  KSTREAM-AGGREGATE-0000000002" in done.out


def test_a_copy_is_a_program_of_its_own(cli: Cli, folder: Path) -> None:
    done = cli("example", "user-views", "--copy", "mine")

    assert done.code == 0
    assert "Run it with `headrace example ./mine`. Its tests run with `pytest mine`." in done.out
    assert "headrace.examples.user_views" not in (folder / "mine" / "test_app.py").read_text()
    app = folder / "mine" / "app.py"
    app.write_text(app.read_text().replace('"user-views"', '"mine"'))
    assert "store   mine" in cli("example", "./mine", "--trace").out
    assert "store   mine" in cli("example", "mine", "--trace").out
    again = cli("example", "user-views", "--copy", "mine")
    assert (again.code, "Choose a new folder." in again.err) == (1, True)


def test_an_example_runs_on_a_log_of_its_own_that_begins_empty(
    cli: Cli, queries: list[FakeQuery]
) -> None:
    first = cli("example", "user-views")
    counted = records_in(OWN_LOG, "views")
    second = cli("example", "user-views")

    assert (first.code, second.code, len(queries)) == (0, 0, 2)
    assert counted > 0
    assert 0 < records_in(OWN_LOG, "views") <= 18
    assert not Path(".headrace/topics.db").exists()


def test_the_end_of_the_input_is_reported(
    cli: Cli, queries: list[FakeQuery], monkeypatch: pytest.MonkeyPatch
) -> None:
    has_ended = threading.Event()

    def note(session: Session, count: int) -> None:
        say_ended(session, count)
        has_ended.set()

    monkeypatch.setattr(feed, "PER_SECOND", 1e6)
    monkeypatch.setattr(commands, "say_ended", note)
    monkeypatch.setattr(commands, "run_until_stopped", lambda *_: not has_ended.wait(PATIENCE))

    done = cli("example", "user-views")

    assert done.code == 0
    assert "The input has ended after 18 records. Ctrl-C stops the application." in done.out


def test_the_end_of_the_input_stands_above_a_live_view(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, terminal = io.StringIO(), io.BytesIO()
    proxy: Any = FileProxy(Console(file=shown), io.TextIOWrapper(terminal))
    monkeypatch.setattr(sys, "stdout", proxy)

    say_ended(Session(), 18)

    assert "after 18 records" in shown.getvalue()
    assert terminal.getvalue() == b""


@pytest.mark.tier("test")
def test_instances_answer_queries_while_an_example_runs(cli: Cli, queries: list[FakeQuery]) -> None:
    done = cli("example", "user-views", "--instances", "2")

    first, second, *_ = re.findall(r"--server (http://127.0.0.1:\d+)", done.out)
    assert f"Instances answer queries at {first}, {second}." in done.out
    target = "headrace.examples.user_views.app"
    for asks in (f"query {target} user-views", f"stores {target}", f"status {target}"):
        assert f"  headrace {asks} --server {first}" in done.out
    assert (done.code, len(queries)) == (0, 1)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{first}/health/live")


@pytest.mark.parametrize(
    ("name", "why"), [("greetings", "has no store"), ("clients", "starts what it needs by itself")]
)
def test_an_example_without_stores_has_no_instances(
    cli: Cli, name: str, why: str, queries: list[FakeQuery]
) -> None:
    done = cli("example", name, "--instances", "2")

    assert (done.code, queries) == (1, [])
    assert f"Example {name!r} {why}" in done.err


def test_the_commands_that_are_printed_at_the_end_work(cli: Cli, queries: list[FakeQuery]) -> None:
    said = cli("example", "user-views").out

    commands = [
        shlex.split(line, comments=True)
        for line in said.partition("What to try next:")[2].splitlines()
        if line.startswith("  ")
    ]
    assert [words[1] for words in commands] == [
        "example", "describe", "plan", "consume", "example",
    ]  # fmt: skip
    assert [cli(*words[1:]).code for words in commands] == [0] * 5


def test_topics_that_hold_records_are_not_written_without_asking(
    cli: Cli, queries: list[FakeQuery]
) -> None:
    cli("produce", "views", "--value", "mine", "--state-dir", "own")

    refused = cli("example", "user-views", "--state-dir", "own")
    agreed = cli("example", "user-views", "--state-dir", "own", "--yes")

    assert refused.code == 1
    assert "There are records in views already." in refused.err
    assert (agreed.code, len(queries)) == (0, 1)
    assert records_in(Path("own/topics.db"), "views") > 1


def test_a_copy_with_a_main_program_is_run_by_it(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "main", None)
    monkeypatch.delitem(sys.modules, "main")
    (folder / "mine").mkdir()
    (folder / "mine" / "app.py").write_text("")
    (folder / "mine" / "main.py").write_text(
        "import sys\n"
        "def main(config):\n"
        "    print(config.state_dir, sys.stdout.line_buffering)\n"
        "    return 7\n"
    )

    done = cli("example", "./mine")

    assert (done.code, done.out.strip()) == (7, ".headrace/examples/mine True")
