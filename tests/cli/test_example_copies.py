"""Copies of examples on Spark: their own tests, a copied ``main.py``, and two instances."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from headrace import StreamsConfig
from headrace.brokers import open_log
from tests.cli.conftest import Cli
from tests.cli.running_example import RunningExample
from tests.kafka_broker import RunningBroker
from tests.unit.spark.fake_query import faked_queries
from tests.waiting import await_that

pytestmark = pytest.mark.nightly("demo")


@pytest.mark.parametrize("name", ["sms-parts", "words", "clients"])
def test_the_tests_of_a_copy_pass(name: str, cli: Cli, folder: Path) -> None:
    assert cli("example", name, "--copy", "mine").code == 0

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder / "mine",
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert re.search(r"^\d+ passed", done.stdout, re.MULTILINE)


def test_a_copied_main_program_runs(cli: Cli, folder: Path) -> None:
    assert cli("example", "log-appender", "--copy", "mine").code == 0

    with RunningExample("./mine", folder=folder) as example:
        assert example.ended() == 0, example.said

    assert "logs-0: 30 events" in example.said


FIRST_ORDERS = """

_all = feed


def feed(seed: int = 7):
    \"\"\"Yield the records of the document alone.\"\"\"
    for _, record in zip(range(5), _all(seed)):
        yield record
"""


def test_either_instance_of_a_copy_answers_as_in_the_document(cli: Cli, folder: Path) -> None:
    assert cli("example", "orders", "--copy", "mine").code == 0
    with (folder / "mine" / "feed.py").open("a") as program:
        program.write(FIRST_ORDERS)

    with RunningExample("./mine", "--instances", "2", folder=folder) as example:
        said = example.read_until(r"Instances answer queries at (\S+), (\S+?)\.\s")
        for url in said.groups():
            await_answer(f"{url}/v1/orders/count/general_orders?location_id=store_1234")

        assert example.stopped() == 0, example.said


def await_answer(url: str) -> None:
    """Wait until an instance answers with the figure of the document."""
    expected = '{"locationId":"store_1234","orderCount":1}'
    await_that(lambda: answer_at(url) == expected, expected, found=lambda: answer_at(url))


def answer_at(url: str) -> str:
    try:
        return httpx.get(url, timeout=30).text
    except httpx.TransportError as error:
        return str(error)


@pytest.mark.parametrize("yes", [False, True])
def test_topics_of_kafka_that_hold_records_are_not_written_without_asking(
    cli: Cli, kafka: RunningBroker, monkeypatch: pytest.MonkeyPatch, *, yes: bool
) -> None:
    queries = faked_queries(monkeypatch, is_active=False)
    servers = ["--bootstrap-servers", kafka.address]
    log = open_log(StreamsConfig(bootstrap_servers=kafka.address))
    before = set(log.list_topics())
    cli("topics", "create", "views", "--partitions", "2", *servers)
    cli("produce", "views", "--value", "mine", *servers)

    done = cli("example", "user-views", *servers, *(["--yes"] if yes else []))

    if yes:
        assert (done.code, len(queries)) == (0, 1), done.err
    else:
        assert (done.code, queries) == (1, [])
        assert "There are records in views already." in done.err
    for topic in {*log.list_topics()} - before:
        log.delete_topic(topic)  # the next test has topics of the same names
    log.close()
