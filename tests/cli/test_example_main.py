"""``headrace example`` for the examples that have a ``main.py``, and its refusals."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace import StreamsConfig
from headrace.brokers import TopicPartition, open_log
from headrace.brokers.embedded import EmbeddedLog
from headrace.examples.child_settings import run_to_its_end, settings_file
from headrace.examples.reprocess import main as reprocess
from tests.cli.conftest import Cli
from tests.unit.spark.fake_query import FakeQuery, faked_queries

MAINS = ["clients", "log-appender", "reprocess", "connections", "exactly-once", "instances"]


def add_record(path: str, topic: str) -> None:
    log = EmbeddedLog(Path(path))
    log.append([(topic, 0, 1, b"key", b"value", ())])
    log.close()


@pytest.mark.parametrize("name", MAINS)
def test_a_story_does_not_write_to_topics_that_hold_records(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    module = f"headrace.examples.{name.replace('-', '_')}.main"
    __import__(module)
    monkeypatch.setattr(sys.modules[module], "main", lambda config: 0)
    topic = next(iter(sys.modules[module].ALL_TOPICS))
    assert cli("example", name, "--state-dir", "own").code == 0
    add_record("own/topics.db", topic)

    refused = cli("example", name, "--state-dir", "own")
    agreed = cli("example", name, "--state-dir", "own", "--yes")

    assert (refused.code, agreed.code) == (1, 0)
    assert f"There are records in {topic} already." in refused.err


def test_the_own_log_of_a_story_begins_empty(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    configs: list[StreamsConfig] = []

    def story(config: StreamsConfig) -> int:
        configs.append(config)
        log = open_log(config)
        assert log.list_topics() == sorted(reprocess.ALL_TOPICS)
        log.close()
        return 0

    monkeypatch.setattr(reprocess, "main", story)
    assert cli("example", "reprocess").code == 0
    add_record(".headrace/examples/reprocess/topics.db", "lines")

    assert cli("example", "reprocess").code == 0

    assert len(configs) == 2
    log = open_log(configs[1])
    assert log.end_offsets([TopicPartition("lines", 0)]) == {TopicPartition("lines", 0): 0}
    assert log.describe_topic("lines-dead").settings == {"retention.ms": "-1"}
    log.close()


def test_a_process_that_fails_ends_the_story_without_a_traceback(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def story(_: StreamsConfig) -> int:
        run_to_its_end([sys.executable, "-c", "raise SystemExit(4)"])
        return 0

    monkeypatch.setattr(reprocess, "main", story)

    done = cli("example", "reprocess")

    assert done.code == 1
    assert "A process of this example ended with code 4." in done.err


def test_a_missing_extra_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "headrace.examples.instances.main", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)

    done = cli("example", "instances")

    assert done.code == 1
    assert "Install it with `pip install 'headrace[server]'`." in done.err


def test_a_name_that_is_too_long_for_a_file_is_unknown(cli: Cli) -> None:
    done = cli("example", "./" + "x" * 300)

    assert done.code == 4
    assert "There is no example" in done.err


def test_the_next_steps_repeat_the_flags(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    queries: list[FakeQuery] = faked_queries(monkeypatch, is_active=False)

    done = cli("example", "user-views", "--state-dir", "own", "-s", "client.id=me")

    assert len(queries) == 1
    (consume,) = [line for line in done.out.splitlines() if " consume " in line]
    assert consume.endswith("-s client.id=me")


def test_a_copy_of_the_clients_has_a_partitioner_of_its_own(cli: Cli, folder: Path) -> None:
    assert cli("example", "clients", "--copy", "mine").code == 0

    assert "headrace.examples" not in (folder / "mine" / "producing.py").read_text()


def test_the_processes_of_a_story_get_all_settings_in_a_private_file(folder: Path) -> None:
    config = StreamsConfig(
        bootstrap_servers="kafka:9092",
        sasl_password='a "b" \\ c',
        request_timeout="7s",
        consumer={"fetch.min.bytes": "2"},
        errors_dead_letter_queue_topic_name="dead",
    )

    with settings_file(config) as file:
        assert StreamsConfig.load(file) == config
        assert file.parent.stat().st_mode & 0o077 == 0
    with settings_file(StreamsConfig(state_dir="own")) as file:
        assert StreamsConfig.load(file).embedded_path == Path("own/topics.db")
