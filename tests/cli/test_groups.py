"""`headrace groups` and `headrace lag`, on both brokers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.brokers import OffsetAndMetadata, TopicPartition
from headrace.brokers.sessions import Broker
from headrace.clients import KafkaConsumer
from headrace.records import ProducerRecord
from tests.cli.conftest import BARE, Cli
from tests.waiting import await_that


def filled(log: Broker, topic: str, records: int = 5, partitions: int = 1) -> TopicPartition:
    log.create_topic(topic, partitions=partitions)
    log.append(ProducerRecord(topic, 0, 1, None, b"v") for _ in range(records))
    return TopicPartition(topic, 0)


def test_a_group_is_listed_described_and_deleted(
    cli: Cli, broker_flags: list[str], broker_log: Broker, named: Callable[[str], str]
) -> None:
    group = named("readers")
    name = filled(broker_log, named("orders"))
    broker_log.commit_offsets(group, {name: OffsetAndMetadata(2)})
    row = {"topic": name.topic, "partition": 0, "committed": 2, "end": 5, "lag": 3}

    listed = cli("groups", "list", "--output", "json", *broker_flags)
    described = cli("groups", "describe", group, "--output", "json", *broker_flags)
    offsets = cli("groups", "offsets", group, "--output", "json", *broker_flags)
    lag = cli("lag", group, "--output", "json", *broker_flags)
    deleted = cli("groups", "delete", group, "--yes", *broker_flags)

    assert {"group": group, "members": 0, "lag": 3} in listed.data
    assert described.data == {"group": group, "members": [], "offsets": [row]}
    assert offsets.data == lag.data == [row]
    assert deleted.out == f"Deleted group {group!r}.\n"
    assert group not in broker_log.list_groups()


def test_members_are_shown_with_what_they_read(cli: Cli, log: Broker) -> None:
    filled(log, "orders", partitions=2)
    with KafkaConsumer(key=bytes, value=bytes, group_id="g", client_id="me") as consumer:
        consumer.subscribe(["orders"])

        def has_partitions() -> bool:
            consumer.poll("100ms")
            return bool(consumer.assignment())

        await_that(has_partitions, "partitions for the member")

        described = cli("groups", "describe", "g")
        deleted = cli("groups", "delete", "g", "--yes")

    assert "orders-0, orders-1" in described.out
    assert "me" in described.out
    assert deleted.code == 1
    assert "still has members" in deleted.err


@pytest.mark.parametrize(
    "words", [["groups", "describe", "x"], ["groups", "offsets", "x"], ["groups", "delete", "x"],
              ["lag", "x"]],
)  # fmt: skip
def test_an_unknown_group_is_not_found(cli: Cli, log: Broker, words: list[str]) -> None:
    log.commit_offsets("known", {filled(log, "orders"): OffsetAndMetadata(1)})

    done = cli(*words)

    assert done.code == 4
    assert done.err == "Error: There is no group 'x'. The groups are: known.\n"


def test_an_empty_list_of_groups_is_reported(cli: Cli) -> None:
    assert cli("groups", "list").out == "There are no groups.\n"
    assert "The groups are: none." in cli("groups", "describe", "x").err


def test_lag_of_a_program_counts_what_it_has_not_begun(cli: Cli, log: Broker, program: str) -> None:
    filled(log, "lines", partitions=2)
    log.commit_offsets("word-count", {TopicPartition("lines", 0): OffsetAndMetadata(1)})

    done = cli("lag", program)

    assert done.out == (
        "topic  partition  committed  end  lag\n"
        "lines  0          1          5    4\n"
        "lines  1          -          0    0\n"
    )


def test_lag_of_a_topology_is_that_of_the_application_named_after_its_file(
    cli: Cli, log: Broker, folder: Path
) -> None:
    (folder / "my_shop.py").write_text(BARE)
    log.commit_offsets("my-shop", {filled(log, "in"): OffsetAndMetadata(2)})
    log.commit_offsets("shop", {TopicPartition("in", 0): OffsetAndMetadata(4)})

    done = cli("lag", "my_shop.py")
    renamed = cli("lag", "my_shop.py", "-s", "application.id=shop")

    assert done.out.splitlines()[1:] == ["in     0          2          5    3"]
    assert renamed.out.splitlines()[1:] == ["in     0          4          5    1"]


def test_lag_of_a_program_whose_topic_is_missing_names_it(cli: Cli, program: str) -> None:
    done = cli("lag", program)

    assert done.code == 4
    assert "no topic 'lines'" in done.err


def test_lag_without_a_name_sums_every_group(cli: Cli, log: Broker) -> None:
    log.commit_offsets("g", {filled(log, "orders"): OffsetAndMetadata(1)})

    assert cli("lag").out == "group  lag\ng      4\n"


def test_offsets_of_a_deleted_topic_do_not_count(cli: Cli, log: Broker) -> None:
    log.commit_offsets("g", {filled(log, "orders"): OffsetAndMetadata(1)})
    log.commit_offsets("g", {filled(log, "bills"): OffsetAndMetadata(5)})
    log.delete_topic("orders")

    assert cli("lag", "g").out == (
        "topic  partition  committed  end  lag\nbills  0          5          5    0\n"
    )


def test_watching_continues_until_interrupted(
    cli: Cli, log: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = filled(log, "orders")
    log.commit_offsets("g", {name: OffsetAndMetadata(1)})
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) > 1:
            raise KeyboardInterrupt
        log.commit_offsets("g", {name: OffsetAndMetadata(5)})

    # Not the module's own: other threads sleep too.
    monkeypatch.setattr("headrace.cli.groups.time", SimpleNamespace(sleep=pause))

    done = cli("lag", "g", "--watch", "--interval", "3s")

    assert done.code == 130
    assert [line.split()[-1] for line in done.out.splitlines() if line] == ["lag", "4", "lag", "0"]
    assert pauses == [3, 3]


def test_an_interval_that_is_none_is_named(cli: Cli) -> None:
    assert cli("lag", "--interval", "often").code == 2


def test_a_group_starts_over_where_the_flags_say(
    cli: Cli, broker_flags: list[str], broker_log: Broker, named: Callable[[str], str]
) -> None:
    group = named("readers")
    name = filled(broker_log, named("orders"), partitions=2)
    broker_log.commit_offsets(group, {name: OffsetAndMetadata(2)})

    def reset(*flags: str) -> object:
        return cli("groups", "reset", group, *flags, "--output", "json", *broker_flags).data

    row = {"topic": name.topic, "partition": 0, "before": 2, "after": 5}
    assert reset("--to-latest", "--dry-run") == {"group": group, "offsets": [row], "done": False}
    assert broker_log.committed_offsets(group)[name].offset == 2
    assert reset("--yes") == {"group": group, "offsets": [row | {"after": 0}], "done": True}
    assert broker_log.committed_offsets(group)[name].offset == 0
    reset("--to-offset", "3", "--topic", f"{name.topic}:0", "--yes")
    assert broker_log.committed_offsets(group)[name].offset == 3
    reset("--to-datetime", "1970-01-02T00:00:00Z", "--topic", name.topic, "--yes")
    assert broker_log.committed_offsets(group) == {
        name: OffsetAndMetadata(5),
        TopicPartition(name.topic, 1): OffsetAndMetadata(0),
    }


def test_a_reset_of_a_group_is_shown_and_confirmed(cli: Cli, log: Broker) -> None:
    log.commit_offsets("g", {filled(log, "orders"): OffsetAndMetadata(2)})

    asked = cli("groups", "reset", "g")
    shown = cli("groups", "reset", "g", "--dry-run")
    done = cli("groups", "reset", "g", "--yes")

    assert asked.code == 1
    table = "topic   partition  before  after\norders  0          2       0\n"
    assert shown.out == f"{table}Nothing was changed.\n"
    assert done.out == f"{table}Group 'g' starts over.\n"


def test_a_reset_names_groups_and_partitions_that_are_there(cli: Cli, log: Broker) -> None:
    filled(log, "orders", partitions=2)

    unknown = cli("groups", "reset", "nobody")
    wrong = [cli("groups", "reset", "g", "--topic", f"orders:{which}") for which in ("2", "x", "")]

    assert unknown.code == 4
    assert {done.code for done in wrong} == {2}
    assert "names no partitions of 'orders'. It has 2 partitions, from 0" in wrong[0].err
