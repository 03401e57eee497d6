"""`headrace topics`, on both brokers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.brokers.sessions import Broker
from headrace.cli import session
from tests.cli.conftest import Cli
from tests.kafka_broker import RunningBroker


def test_a_topic_is_created_listed_described_grown_and_deleted(
    cli: Cli, broker_flags: list[str], named: Callable[[str], str]
) -> None:
    topic = named("orders")

    created = cli(
        "topics", "create", topic, "-p", "2", "--config", "cleanup.policy=compact", *broker_flags
    )
    listed = cli("topics", "list", "--output", "json", *broker_flags)
    grown = cli("topics", "grow", topic, "--partitions", "3", *broker_flags)
    described = cli("topics", "describe", topic, "--output", "json", *broker_flags)
    deleted = cli("topics", "delete", topic, "--yes", *broker_flags)
    after = cli("topics", "describe", topic, *broker_flags)

    assert created.out == f"Created topic {topic!r} with 2 partitions.\n"
    assert {"topic": topic, "partitions": 2, "offsets": 0} in listed.data
    assert grown.out == f"Topic {topic!r} has 3 partitions now.\n"
    assert described.data["settings"]["cleanup.policy"] == "compact"
    assert described.data["partitions"][2] == {"partition": 2, "beginning": 0, "end": 0}
    assert deleted.out == f"Deleted topic {topic!r}.\n"
    assert after.code == 4


def test_one_partition_is_one_partition(cli: Cli) -> None:
    created = cli("topics", "create", "orders")
    grown = cli("topics", "grow", "orders", "--partitions", "1")

    assert created.out == "Created topic 'orders' with 1 partition.\n"
    assert grown.out == "Topic 'orders' has 1 partition now.\n"


def test_a_setting_that_no_topic_has_is_refused_by_both_brokers(
    cli: Cli, broker_flags: list[str], named: Callable[[str], str]
) -> None:
    done = cli("topics", "create", named("t"), "--config", "retentin.ms=1", *broker_flags)

    assert done.code == 1
    assert "retentin.ms" in done.err


def test_a_table_has_a_line_for_each_topic(cli: Cli, log: Broker) -> None:
    log.create_topic("orders", partitions=3)
    log.create_topic("a")

    done = cli("topics", "list")

    assert done.out == "topic   partitions  offsets\na       1           0\norders  3           0\n"


def test_a_topic_is_described_in_words(cli: Cli, log: Broker) -> None:
    log.create_topic("orders", settings={"retention.ms": "5"})

    done = cli("topics", "describe", "orders")

    assert "settings    retention.ms=5" in done.out
    assert "partition  beginning  end\n0          0          0" in done.out


def test_an_empty_list_of_topics_is_reported(cli: Cli) -> None:
    assert cli("topics", "list").out == "There are no topics.\n"
    assert cli("topics", "list", "--quiet").out == ""
    assert cli("topics", "list", "--output", "json").data == []


def test_an_unknown_topic_is_not_found_and_the_nearest_named(cli: Cli, log: Broker) -> None:
    log.create_topic("orders")

    done = cli("topics", "describe", "order")

    assert done.code == 4
    assert done.err == "Error: There is no topic 'order'. Did you mean 'orders'?\n"


@pytest.mark.parametrize(
    ("wanted", "there"),
    [
        ("numbers", "customers"),
        ("order-leaders", "orders-leader"),
        ("order-markers", "orders-markers"),
        ("orders-counts-change", "orders-counts-changelog"),
        ("orders-by-store-partition", "orders-by-store-repartition"),
    ],
)
def test_a_topic_with_a_distant_name_is_not_suggested(
    cli: Cli, log: Broker, wanted: str, there: str
) -> None:
    log.create_topic(there)

    done = cli("topics", "describe", wanted)

    assert done.err == (
        f"Error: There is no topic {wanted!r}. Create it with `headrace topics create {wanted} "
        "--embedded-path .headrace/topics.db`.\n"
    )


def test_an_error_can_be_read_by_programs(cli: Cli) -> None:
    done = cli("topics", "describe", "order", "--output", "json")

    assert done.out == ""
    assert done.err.startswith('{"error": "UnknownTopicError", "message": "There is no topic')


def test_a_topic_that_exists_is_not_created_again(cli: Cli, log: Broker) -> None:
    log.create_topic("orders")

    assert cli("topics", "create", "orders").code == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["create", "t", "--config", "compact"], "`--config compact` is not NAME=VALUE"),
        (["create", "t", "-s", "x"], "`-s x` is not NAME=VALUE"),
        (["list", "-s", "aplication.id=x"], "Did you mean `application.id`?"),
        (
            ["list", "--bootstrap-servers", "h:1", "--embedded-path", "f"],
            "Give one of them",
        ),
        (["list", "--command-config", "missing.properties"], "'missing.properties' cannot be read"),
    ],
)
def test_wrong_words_are_usage_errors(cli: Cli, words: list[str], said: str) -> None:
    done = cli("topics", *words)

    assert done.code == 2
    assert said in done.err


@pytest.mark.parametrize("words", [["create"], ["create", "t", "-p", "0"], ["nonsense"]])
def test_words_that_are_no_command_are_usage_errors(cli: Cli, words: list[str]) -> None:
    assert cli("topics", *words).code == 2


def test_deleting_without_a_terminal_does_not_ask(cli: Cli, log: Broker) -> None:
    log.create_topic("orders")

    done = cli("topics", "delete", "orders", stdin="y\n")

    assert done.code == 1
    assert "Add `--yes`" in done.err
    assert log.list_topics() == ["orders"]


@pytest.mark.parametrize(("answer", "left"), [("y\n", []), ("n\n", ["orders"])])
def test_deleting_asks_at_a_terminal(
    cli: Cli, log: Broker, monkeypatch: pytest.MonkeyPatch, answer: str, left: list[str]
) -> None:
    log.create_topic("orders")
    monkeypatch.setattr(session, "can_answer", lambda: True)

    done = cli("topics", "delete", "orders", stdin=answer)

    assert "Delete topic 'orders' with all its records?" in done.out
    assert log.list_topics() == left
    assert done.code == len(left)


def test_a_broker_that_is_not_there_is_not_ready(cli: Cli) -> None:
    done = cli(
        "topics", "list", "--bootstrap-servers", "127.0.0.1:1", "-s", "request.timeout.ms=300"
    )

    assert done.code == 3
    assert "127.0.0.1:1" in done.err
    assert "Traceback" not in done.err


def test_a_traceback_is_shown_if_it_is_wanted(cli: Cli) -> None:
    done = cli("topics", "describe", "order", "--traceback")

    assert done.code == 4
    assert "Traceback (most recent call last)" in done.err


def test_internal_topics_are_listed_on_request(cli: Cli, log: Broker) -> None:
    for topic in ("orders", "app-counts-changelog", "app-by-city-repartition", "app-markers"):
        log.create_topic(topic)

    some = cli("topics", "list")
    everything = cli("topics", "list", "--internal", "--output", "json")

    assert some.out == "topic   partitions  offsets\norders  1           0\n"
    assert some.err == "3 internal topics not listed; `--internal` lists all.\n"
    assert [row["topic"] for row in everything.data] == [
        "app-by-city-repartition", "app-counts-changelog", "app-markers", "orders",
    ]  # fmt: skip
    assert everything.err == ""


def test_a_topic_that_exists_is_left_alone_if_asked(cli: Cli, log: Broker) -> None:
    first = cli("topics", "create", "orders", "--replication-factor", "1", "--if-not-exists")
    again = cli("topics", "create", "orders", "-p", "3", "--if-not-exists")
    strict = cli("topics", "create", "orders")

    assert first.out == "Created topic 'orders' with 1 partition.\n"
    assert (again.code, again.out) == (0, "Topic 'orders' exists.\n")
    assert strict.code == 1
    assert log.partition_count("orders") == 1


def test_more_replicas_than_brokers_are_refused_by_kafka(
    cli: Cli, kafka: RunningBroker, named: Callable[[str], str]
) -> None:
    at = ("--bootstrap-servers", kafka.address)

    done = cli("topics", "create", named("t"), "--replication-factor", "2", *at)

    assert done.code == 1
    assert "Set it to no more than the brokers that run." in done.err


def test_settings_of_a_topic_are_altered(
    cli: Cli, broker_flags: list[str], named: Callable[[str], str]
) -> None:
    topic = named("orders")
    cli("topics", "create", topic, "--config", "retention.ms=60000", *broker_flags)

    altered = cli(
        "topics", "alter", topic, "-p", "2", "--config", "cleanup.policy=compact",
        "--delete-config", "retention.ms", "--output", "json", *broker_flags,
    )  # fmt: skip
    nothing = cli("topics", "alter", topic, *broker_flags)

    assert altered.data == {
        "topic": topic,
        "partitions": 2,
        "settings": {"cleanup.policy": "compact"},
    }
    assert nothing.code == 2
    assert "There is nothing to alter. Give `--config`" in nothing.err
