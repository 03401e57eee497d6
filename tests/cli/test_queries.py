"""``headrace query``, ``stores``, ``status`` and ``serve`` with a real instance."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.brokers import open_log
from headrace.cli.targets import load_target
from headrace.queries.service import QueryService
from tests.cli.conftest import Cli, forget_programs
from tests.runtime.in_process import InProcessQuery
from tests.waiting import PATIENCE, await_that

PROGRAM = """
from decimal import Decimal

import msgspec

from headrace import KafkaStreams, Materialized, SessionWindows, StreamsBuilder, TimeWindows


class Price(msgspec.Struct):
    amount: Decimal


builder = StreamsBuilder()
views = builder.stream("views", key=str, value=int)
by_user = views.group_by_key()
by_user.count(materialized="views-by-user")
by_user.windowed_by(TimeWindows("1m", grace="1h")).count(materialized="views-by-minute")
by_user.windowed_by(SessionWindows("30s", grace="1h")).count(materialized="visits")
views.group_by(lambda _, page: page, key=int).count(materialized="views-by-page")
names = Materialized("names", history_retention="1h")
builder.table("names", key=str, value=str, materialized=names)
builder.table("prices", key=str, value=Price, materialized="prices")
app = KafkaStreams(builder.build(), application_id="pages")
"""
RECORDS = [("alice", 7, 0), ("alice", 8, 10_000), ("bob", 7, 70_000)]


@pytest.fixture
def pages(folder: Path) -> Iterator[QueryService]:
    """A program in a file, its application after one batch, and an instance that is ready."""
    (folder / "pages.py").write_text(PROGRAM)
    loaded = load_target("pages.py").app
    assert loaded is not None
    with closing(open_log(loaded.config)) as log:
        for topic in ("views", "names", "prices"):
            log.create_topic(topic)
    query = InProcessQuery(loaded.topology, folder / ".headrace", application_id="pages")
    query.log.append(
        [("views", 0, at, user.encode(), page.to_bytes(8), None) for user, page, at in RECORDS]
    )
    names = [("names", 0, at, b"alice", name, None) for at, name in ((1_000, b"A"), (2_000, b"B"))]
    query.log.append(names)
    query.log.append([("prices", 0, 1_000, b"tea", b'{"amount":27.00}', None)])
    query.run()
    service = QueryService(loaded.topology, loaded.config, server="127.0.0.1:0")
    service.start()
    await_that(service.is_ready, "an instance that is ready", found=service.instance.status)
    yield service
    service.close()
    query.log.close()
    forget_programs(folder)


@pytest.mark.usefixtures("pages")
def test_a_point_read_prints_the_bare_value(cli: Cli) -> None:
    done = cli("query", "pages.py", "views-by-user", "alice")

    assert (done.code, done.out) == (0, "2\n")
    assert done.err.startswith("Snapshot ")
    assert cli("query", "pages", "views-by-page", "7", "--output", "json").data == 2
    assert cli("query", "pages.py", "names", "alice").out.split() == [
        "value", "B", "valid_from", "2000",
    ]  # fmt: skip
    assert "A" in cli("query", "pages.py", "names", "alice", "--as-of", "1500").out


@pytest.mark.usefixtures("pages")
def test_decimals_keep_their_digits(cli: Cli) -> None:
    assert cli("query", "pages.py", "prices", "tea").out == '{"amount": 27.00}\n'
    assert '{"amount": 27.00}' in cli("query", "pages.py", "prices").out
    assert "27.00" in cli("query", "pages.py", "prices", "--output", "json").out


@pytest.mark.usefixtures("pages")
def test_ranges_windows_and_sessions_print_rows(cli: Cli) -> None:
    as_json = ("--output", "json")

    assert cli("query", "pages.py", "views-by-user", *as_json).data == [
        {"key": "alice", "value": "2"},
        {"key": "bob", "value": "1"},
    ]
    assert [
        row["key"] for row in cli("query", "pages.py", "views-by-user", "--reverse", *as_json).data
    ] == ["bob", "alice"]
    assert [
        row["key"]
        for row in cli("query", "pages.py", "views-by-user", "--prefix", "b", *as_json).data
    ] == ["bob"]
    assert cli("query", "pages.py", "views-by-minute", "bob", *as_json).data == [
        {"key": "bob", "start": 60_000, "value": "1"}
    ]
    assert cli("query", "pages.py", "views-by-minute", "--until", "0", *as_json).data == [
        {"key": "alice", "start": 0, "end": 60_000, "value": "2"}
    ]
    assert cli("query", "pages.py", "visits", "alice", *as_json).data == [
        {"key": "alice", "start": 0, "end": 10_000, "value": "2"}
    ]


@pytest.mark.usefixtures("pages")
def test_a_limit_says_that_there_is_more(cli: Cli) -> None:
    done = cli("query", "pages.py", "views-by-user", "--limit", "1")

    assert "alice" in done.out
    assert "bob" not in done.out
    assert "There are more: add `--limit 10`." in done.err


@pytest.mark.usefixtures("pages")
def test_sql_reads_stores_as_tables(cli: Cli) -> None:
    sql = 'SELECT sum(value) AS views FROM "views-by-user"'

    assert cli("query", "pages.py", "--sql", sql, "--output", "json").data == [{"views": 3}]


def test_a_read_may_be_of_an_earlier_snapshot(cli: Cli, pages: QueryService) -> None:
    record = pages.instance.newest_record()
    assert record is not None
    token = cli("query", "pages.py", "views-by-user", "alice").err.split()[-1].rstrip(".")

    assert cli("query", "pages.py", "views-by-user", "bob", "--snapshot", token).out == "1\n"
    gone = cli("query", "pages.py", "views-by-user", "bob", "--snapshot", "00000000.1")
    assert gone.code == 3
    assert "gone" in gone.err


@pytest.mark.usefixtures("pages")
def test_stores_and_status_list_what_answers(cli: Cli, pages: QueryService) -> None:
    stores = {row["name"]: row for row in cli("stores", "pages", "--output", "json").data}
    found = cli("status", "pages.py", "--output", "json").data
    printed = cli("status", "pages.py").out

    views = stores["views-by-user"]
    assert (views["kind"], views["entries"], views["lag"]) == ("timestamped_key_value", 2, 0)
    assert views["snapshot"] == found["snapshot"]
    assert stores["names"]["kind"] == "versioned_key_value"
    assert {row["active"] for row in found["shards"]} == {pages.instance.name}
    assert {row["ready"] for row in found["shards"]} == {"yes"}
    assert (found["state"], found["batch"], found["lag"], found["errors"]) == ("RUNNING", 0, 0, 0)
    assert found["records_per_second"] > 0
    assert found["most_frequent_error"] is None
    assert "RUNNING" in printed
    assert "views-by-minute" in printed


@pytest.mark.usefixtures("pages")
def test_flags_choose_windows_and_sessions(cli: Cli) -> None:
    def keys(*arguments: str) -> list[str]:
        found = cli("query", "pages.py", *arguments, "--output", "json").data
        return [f"{row['key']} {row['start']}" for row in found]

    assert keys("views-by-minute", "--reverse") == ["bob 60000", "alice 0"]
    assert keys("views-by-minute", "--from", "b") == ["bob 60000"]
    assert keys("views-by-minute", "--to", "b", "--since", "0") == ["alice 0"]
    assert keys("views-by-minute", "alice", "--reverse") == ["alice 0"]
    assert keys("visits", "--reverse") == ["bob 70000", "alice 0"]
    assert keys("visits", "--from", "b") == ["bob 70000"]
    assert keys("visits", "alice", "--until", "0") == ["alice 0"]
    assert keys("visits", "alice", "--since", "20000") == []


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize(
    ("arguments", "unused"),
    [
        (("views-by-user", "--prefix", "a", "--reverse"), "--reverse"),
        (("views-by-user", "--prefix", "a", "--from", "b"), "--from"),
        (("views-by-user", "--since", "0"), "--since"),
        (("views-by-user", "alice", "--from", "a", "--to", "b"), "--from`, `--to"),
        (("views-by-user", "--as-of", "0"), "--as-of"),
        (("views-by-minute", "alice", "--to", "b"), "--to"),
        (("views-by-minute", "--prefix", "a"), "--prefix"),
        (("visits", "--until", "5"), "--until"),
        (("names", "--as-of", "5"), "--as-of"),
        (("views-by-user", "--watch", "--reverse"), "--reverse"),
        (("--sql", "SELECT 1", "--from", "a"), "--from"),
    ],
)
def test_a_flag_without_effect_is_refused(
    cli: Cli, arguments: tuple[str, ...], unused: str
) -> None:
    done = cli("query", "pages.py", *arguments)

    assert done.code == 2
    assert f"does not use `{unused}`. Leave it out." in done.err


@pytest.mark.usefixtures("pages")
def test_refusals_are_sentences_with_exit_codes(cli: Cli) -> None:
    missing = cli("query", "pages.py", "views-by-user", "carol")
    unknown = cli("query", "pages.py", "views-by-usr", "carol")
    wrong = cli("query", "pages.py", "views-by-page", "seven")
    neither = cli("query", "pages.py")

    assert (missing.code, missing.err) == (4, "Error: Store 'views-by-user' has no key 'carol'.\n")
    assert unknown.code == 4
    assert "views-by-user" in unknown.err
    assert wrong.code == 2
    assert "seven" in wrong.err
    assert neither.code == 2


def printed(text: str) -> list[str]:
    """Return the words of the command that a text advises."""
    found = re.search(r"`headrace ([^`]+)`", text)
    assert found is not None, text
    return shlex.split(found[1])


@pytest.mark.parametrize("file", ["pages.py", "my pages/pages.py"])
def test_without_an_instance_the_error_has_the_command_that_starts_one(
    cli: Cli, pages: QueryService, folder: Path, file: str
) -> None:
    pages.close()
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / "pages.py").rename(folder / file)
    (folder / ".headrace").rename(folder / "my log")
    log = ["--embedded-path", "my log/topics.db"]
    done = cli("query", file, "views-by-user", "alice", *log)
    assert done.code == 3
    words = [sys.executable, "-m", "headrace", *printed(done.err)]

    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        try:
            advice = next(line for line in serving.stdout if "`headrace " in line)
            await_that(
                lambda: cli("query", "pages", "views-by-user", "alice", *log).out == "2\n",
                "an answer of the instance",
            )

            assert "views-by-minute" in cli(*printed(advice)).out
        finally:
            serving.send_signal(signal.SIGTERM)
            code = serving.wait(PATIENCE)
    assert code == 0
