"""Every command that a message prints can be typed as it stands, and does what it is said to do."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace import KafkaStreams, StreamsBuilder, StreamsConfig, StreamsError
from headrace.brokers import OffsetAndMetadata, TopicPartition, open_log
from headrace.brokers.offset_metadata import OWN_OFFSETS, RESET_OFFSETS
from headrace.brokers.sessions import Broker
from headrace.cli import session
from headrace.runtime.in_process import InProcessQuery
from tests.cli.conftest import Cli, Done
from tests.runtime.in_process import write_query_id
from tests.unit.spark.fake_query import faked_queries
from tests.waiting import await_that

SOURCE = Path(__file__).parents[2] / "src" / "headrace"
PRINTED = re.compile(r"(?<!`)`headrace ([^`]+)`(?!`)")

PROGRAM = """
from headrace import KafkaStreams, StreamsBuilder

builder = StreamsBuilder()
builder.stream("{source}", key=str, value=str).to("{sink}")
app = KafkaStreams(builder.build(), application_id="{application}")
"""


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who can answer, and a query without Spark that ends at once."""
    monkeypatch.setattr(session, "can_answer", lambda: True)
    faked_queries(monkeypatch, is_active=False)


def run_printed(cli: Cli, message: str) -> list[Done]:
    """Run the commands of a message in the order in which it names them."""
    commands = PRINTED.findall(message)
    assert commands, message
    return [cli(*shlex.split(words), stdin="y\n") for words in commands]


def assert_names_log(message: str, broker_flags: list[str]) -> None:
    for words in PRINTED.findall(message):
        assert shlex.join(broker_flags) in words


@pytest.fixture
def named(named: Callable[[str], str]) -> Callable[[str], str]:
    """Names that no other test uses, and so different that no error takes one for another."""
    return lambda name: hashlib.sha256(named(name).encode()).hexdigest()[:24]


@pytest.fixture
def written(folder: Path, named: Callable[[str], str]) -> str:
    """A program that copies a topic."""
    text = PROGRAM.format(source=named("lines"), sink=named("copies"), application=named("app"))
    (folder / "copying.py").write_text(text)
    return "copying.py"


def test_messages_print_no_other_commands_than_those_that_are_tested() -> None:
    sources = (file.read_text() for file in SOURCE.rglob("*.py"))
    # A command of a message has arguments; `headrace warm-up` has none, and tests of its own.
    printed = (words.split() for text in sources for words in PRINTED.findall(text))

    # `tests/cli/test_queries.py` executes the commands of queries.
    assert {words[0] for words in printed if len(words) > 1} == {
        "reset",
        "serve",
        "stores",
        "topics",
    }


def test_a_missing_topic_is_created_by_the_command_of_the_error(
    cli: Cli, broker_flags: list[str], named: Callable[[str], str]
) -> None:
    consume = ["consume", named("lines"), "--from-beginning", "--timeout", "10ms", *broker_flags]
    missing = cli(*consume)

    assert_names_log(missing.err, broker_flags)
    assert [done.code for done in run_printed(cli, missing.err)] == [0]
    assert cli(*consume).code == 0


def test_a_missing_partition_is_created_by_the_command_of_the_error(
    cli: Cli, broker_flags: list[str], broker_log: Broker, named: Callable[[str], str]
) -> None:
    topic = named("lines")
    broker_log.create_topic(topic)
    produce = ["produce", topic, "--value", "x", "--partition", "2", *broker_flags]
    missing = cli(*produce)

    assert_names_log(missing.err, broker_flags)
    assert [done.code for done in run_printed(cli, missing.err)] == [0]
    assert cli(*produce).code == 0
    assert broker_log.partition_count(topic) == 3


def test_the_input_of_a_program_is_created_by_the_command_of_the_error(
    cli: Cli,
    broker_flags: list[str],
    broker_log: Broker,
    named: Callable[[str], str],
    written: str,
) -> None:
    broker_log.create_topic(named("copies"))
    run = ["run", written, "--state-dir", "my state", *broker_flags]
    missing = cli(*run)

    assert_names_log(missing.err, broker_flags)
    assert "--state-dir 'my state'" in missing.err
    assert [done.code for done in run_printed(cli, missing.err)] == [0]
    assert cli(*run).code == 0


def test_a_program_whose_checkpoint_is_gone_starts_after_the_command_of_the_error(
    cli: Cli,
    broker_flags: list[str],
    broker_log: Broker,
    named: Callable[[str], str],
    written: str,
) -> None:
    for topic in (named("lines"), named("copies")):
        broker_log.create_topic(topic)
    name = TopicPartition(named("lines"), 0)
    broker_log.commit_offsets(named("app"), {name: OffsetAndMetadata(0, OWN_OFFSETS)})
    run = ["run", written, "--state-dir", "state", *broker_flags]
    refused = cli(*run)

    assert f"`headrace reset {named('app')} " in refused.err
    assert_names_log(refused.err, broker_flags)
    assert [done.code for done in run_printed(cli, refused.err)] == [0]
    assert broker_log.committed_offsets(named("app"))[name].metadata.startswith(RESET_OFFSETS)
    assert cli(*run).code == 0


def test_a_checkpoint_from_before_a_reset_is_deleted_by_the_command_of_the_error(
    cli: Cli,
    broker_flags: list[str],
    broker_log: Broker,
    folder: Path,
    named: Callable[[str], str],
    written: str,
) -> None:
    for topic in (named("lines"), named("copies")):
        broker_log.create_topic(topic)
    run = ["run", written, "--state-dir", "state", *broker_flags]
    assert cli(*run).code == 0
    [layout] = (folder / "state").rglob("headrace.json")
    write_query_id(layout.parent)  # Spark's part of a start
    name = TopicPartition(named("lines"), 0)
    broker_log.commit_offsets(named("app"), {name: OffsetAndMetadata(0, OWN_OFFSETS)})
    reset = cli("reset", named("app"), "--yes", "--state-dir", "elsewhere", *broker_flags)
    assert reset.code == 0
    refused = cli(*run)

    assert f"`headrace reset {named('app')} --to-current " in refused.err
    assert_names_log(refused.err, broker_flags)
    assert "--state-dir state" in refused.err
    assert [done.code for done in run_printed(cli, refused.err)] == [0]
    assert not layout.exists()
    assert cli(*run).code == 0


def test_an_application_of_a_program_without_the_command_line_names_its_log_too(
    cli: Cli, broker_flags: list[str], named: Callable[[str], str], folder: Path
) -> None:
    setting = broker_flags[0].removeprefix("--").replace("-", "_")
    config = StreamsConfig(
        application_id=named("app"),
        state_dir=folder / "state",
        work_dir=folder / "work",
        **{setting: broker_flags[1]},  # type: ignore[arg-type]  # one of two names
    )
    builder = StreamsBuilder()
    builder.stream(named("lines"), key=str, value=str).foreach(lambda _key, _value: None)

    with pytest.raises(StreamsError) as caught:
        KafkaStreams(builder.build(), config).start()

    assert_names_log(str(caught.value), broker_flags)
    assert f"-s work.dir={folder / 'work'}" in str(caught.value)
    assert [done.code for done in run_printed(cli, str(caught.value))] == [0]
    assert named("lines") in open_log(config).list_topics()


def test_a_hint_repeats_the_flags_that_were_given_and_no_secret(cli: Cli, folder: Path) -> None:
    (folder / "kafka.properties").write_text("client.id=me\n")
    flags = ["--command-config", "kafka.properties", "-s", "sasl.password=hunter2"]
    flags += ["-s", "replication.factor=1"]

    missing = cli("consume", "lines", *flags)

    (words,) = PRINTED.findall(missing.err)
    assert words == (
        "topics create lines --embedded-path .headrace/topics.db --command-config kafka.properties "
        "-s 'sasl.password=****' -s replication.factor=1"
    )


def commands_in(text: str) -> list[list[str]]:
    """Return the commands that a text shows on lines of their own, without the first word."""
    lines = (shlex.split(line, comments=True) for line in text.splitlines() if line[:2] == "  ")
    return [words[1:] for words in lines if words]


def test_the_commands_at_the_end_of_an_example_name_its_log_and_work(
    cli: Cli, broker_flags: list[str]
) -> None:
    said = cli("example", "user-views", "--yes", *broker_flags).out

    commands = commands_in(said.partition("What to try next:")[2])
    reading_topics = [words for words in commands if words[0] == "consume"]
    assert len(commands) >= 4
    assert all(shlex.join(broker_flags) in shlex.join(words) for words in reading_topics)
    for words in commands:
        done = cli(*words, stdin="y\n")
        assert done.code == 0, f"{words}: {done.err}"


@pytest.mark.parametrize("copy", ["mine", "my own views"])
def test_the_commands_that_a_copy_of_an_example_prints_work(cli: Cli, copy: str) -> None:
    copied = cli("example", "user-views", "--copy", copy)

    [ran] = run_printed(cli, copied.out)
    assert ran.code == 0, ran.err
    commands = commands_in(ran.out.partition("What to try next:")[2])
    assert len(commands) >= 3
    for words in commands:
        done = cli(*words, stdin="y\n")
        assert done.code == 0, f"{words}: {done.err}"


@pytest.mark.tier("test")
@pytest.mark.parametrize("name", ["user-views", "./my own views"])
def test_the_queries_that_an_example_prints_for_its_instances_are_answered(
    cli: Cli, folder: Path, name: str, broker_flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "token").write_text("secret-of-this-test-0123456789abcdef\n")
    if name != "user-views":
        cli("example", "user-views", "--copy", name)
    said: list[str] = []
    answers: list[Done] = []
    monkeypatch.setattr(session.Session, "say", lambda _, text: said.append(text))

    def run_until_stopped(app: KafkaStreams, _terminal: object) -> int:
        """Run the application in this process, and type each query while it runs."""
        query = InProcessQuery(app.topology, app.config)
        views = TopicPartition("views", 0)
        await_that(lambda: query.log.end_offsets([views])[views] > 0, "records of the example")
        query.run()
        answers.extend(cli(*words, "--output", "json") for words in commands_in("\n".join(said)))
        query.log.close()
        return 0

    monkeypatch.setattr("headrace.cli.example.run_until_stopped", run_until_stopped)

    flags = ["-s", "server.token.file=token", "-s", f"application.id={folder.name}"]
    done = cli("example", name, "--instances", "2", "--yes", *flags, *broker_flags)

    assert done.code == 0, done.err
    assert [each.code for each in answers] == [0, 0, 0, 0], answers
    # The instance in this process may log at any time, above the answer.
    one, other, stores, status = (json.loads(each.out.splitlines()[-1]) for each in answers)
    assert one
    assert one == other
    assert [each["name"] for each in stores] == ["user-views"]
    assert status
