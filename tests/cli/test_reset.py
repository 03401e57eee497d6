"""`headrace reset`, and the reset it is made of."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace import BrokerError, BrokerUnavailableError, CheckpointError, ProducerFencedError
from headrace.brokers import OffsetAndMetadata, TopicPartition
from headrace.brokers.embedded.log import EmbeddedLog
from headrace.brokers.offset_metadata import RESET_OFFSETS
from headrace.brokers.sessions import Broker
from headrace.cli import session
from headrace.clients.offsets import ResetTo
from headrace.clients.reset import (
    execute_reset,
    plan_reset,
)
from headrace.records import ProducerRecord
from tests.application_home import embedded_home
from tests.cli.conftest import BARE, Cli
from tests.cli.resetting import offsets, ran, without_word


def test_everything_of_an_application_goes_and_it_starts_at_the_beginning(
    cli: Cli,
    broker_flags: list[str],
    broker_log: Broker,
    named: Callable[[str], str],
    folder: Path,
) -> None:
    name, topic = named("app"), named("orders")
    checkpoint = ran(broker_log, name, topic, folder)

    done = cli("reset", name, "--yes", *broker_flags)

    assert done.code == 0
    assert done.out.splitlines() == [
        f"Reset of application {name!r}",
        f"  offset      {topic}-0: 6 -> 0",
        f"  offset      {topic}-1: 6 -> 0",
        f"  delete      topic {name}-counts-changelog",
        f"  delete      topic {name}-markers",
        f"  delete      group {name}-markers",
        f"  delete      {checkpoint.relative_to(folder)}",
        f"Application {name!r} starts over.",
    ]
    assert offsets(broker_log, name) == dict.fromkeys((0, 1), OffsetAndMetadata(0, RESET_OFFSETS))
    assert f"{name}-markers" not in broker_log.list_groups()
    assert [t for t in broker_log.list_topics() if t.startswith(name)] == []
    assert not checkpoint.exists()
    assert not list(checkpoint.parent.glob("checkpoint*"))


def test_records_of_an_open_transaction_are_never_seen(
    cli: Cli,
    broker_flags: list[str],
    broker_log: Broker,
    named: Callable[[str], str],
    folder: Path,
) -> None:
    name, topic = named("app"), named("orders")
    ran(broker_log, name, topic, folder)
    broker_log.create_topic(named("results"))

    def write_during_the_reset() -> None:
        with broker_log.transaction(f"{name}-1") as transaction:
            transaction.append([ProducerRecord(named("results"), 0, 1, b"k", b"v")])
            assert cli("reset", name, "--yes", *broker_flags).code == 0

    with pytest.raises(ProducerFencedError):
        write_during_the_reset()
    results = TopicPartition(named("results"), 0)
    assert list(broker_log.read(results, 0, 1)) == []


LOOPS = [
    "moved-repartition",
    "KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic",
    "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000014-topic",
    "bills-subscription-registration-topic",
    "bills-subscription-response-topic",
]
"""Topics that an application writes and reads back, as Kafka names them."""


def test_a_topic_that_the_application_reads_back_goes_with_its_offsets(
    cli: Cli,
    broker_flags: list[str],
    broker_log: Broker,
    named: Callable[[str], str],
    folder: Path,
) -> None:
    name, topic = named("app"), named("orders")
    ran(broker_log, name, topic, folder)
    for loop in LOOPS:
        broker_log.create_topic(f"{name}-{loop}")
        read_back = TopicPartition(f"{name}-{loop}", 0)
        broker_log.commit_offsets(name, {read_back: OffsetAndMetadata(0, "own")})

    done = cli("reset", name, "--yes", *broker_flags)

    assert done.code == 0
    shown = [line for line in done.out.splitlines() if line.startswith("  offset")]
    assert shown == [f"  offset      {topic}-{partition}: 6 -> 0" for partition in (0, 1)]
    assert [t for t in broker_log.list_topics() if t.startswith(name)] == []
    kept = broker_log.committed_offsets(name, [TopicPartition(topic, n) for n in (0, 1)])
    assert {without_word(each) for each in kept.values()} == {OffsetAndMetadata(0, RESET_OFFSETS)}


def test_a_topic_of_the_user_s_own_is_not_taken_for_an_internal_one(
    cli: Cli, log: Broker, folder: Path
) -> None:
    ran(log, "app", "app-topic", folder)
    log.create_topic("app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-topic")

    cli("reset", "app", "--yes")

    assert log.list_topics() == ["app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-topic", "app-topic"]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], 0),
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--to-current"], 6),
        (["--to-offset", "4"], 4),
        (["--to-offset", "400"], 10),
        (["--shift-by", "-2"], 4),
        (["--shift-by", "-99"], 0),
        (["--shift-by", "3"], 9),
        (["--to-datetime", "1970-01-04T00:00:00Z"], 2),
        (["--to-datetime", "2040-01-01T00:00:00Z"], 10),
        (["--by-duration", "1h"], 10),
        (["--by-duration", "40000d"], 0),
        (["--by-duration", "PT1H"], 10),
        (["--by-duration", "P1DT2H"], 10),
        (["--by-duration", "P40000D"], 0),
    ],
)
def test_an_application_starts_over_at_the_chosen_offset(
    cli: Cli, log: Broker, folder: Path, flags: list[str], expected: int
) -> None:
    ran(log, "app", "orders", folder)

    done = cli("reset", "app", "--yes", *flags)

    assert done.code == 0
    assert {kept.offset for kept in offsets(log, "app").values()} == {expected}


def test_positions_stay_within_what_is_there(cli: Cli, log: Broker, folder: Path) -> None:
    ran(log, "app", "orders", folder)
    log.delete_records({TopicPartition("orders", 0): 3})

    cli("reset", "app", "--yes", "--to-offset", "1")

    assert {n: kept.offset for n, kept in offsets(log, "app").items()} == {0: 3, 1: 1}


def test_a_dry_run_changes_nothing(cli: Cli, log: Broker, folder: Path) -> None:
    checkpoint = ran(log, "app", "orders", folder)

    done = cli("reset", "app", "--dry-run")

    assert "orders-0: 6 -> 0" in done.out
    assert done.out.endswith("Nothing was changed.\n")
    assert offsets(log, "app")[0] == OffsetAndMetadata(6, "own")
    assert "app-markers" in log.list_groups()
    assert checkpoint.exists()


def test_json_has_the_plan(cli: Cli, log: Broker, folder: Path) -> None:
    ran(log, "app", "orders", folder)

    done = cli("reset", "app", "--yes", "--output", "json")

    assert done.data["done"] is True
    assert done.data["offsets"][0] == {"topic": "orders", "partition": 0, "before": 6, "after": 0}
    assert done.data["groups"] == ["app-markers"]


def test_a_program_is_reset_in_the_topics_it_reads(
    cli: Cli, log: Broker, folder: Path, program: str
) -> None:
    log.create_topic("lines")
    log.append([ProducerRecord("lines", 0, 1, None, b"v")])

    done = cli("reset", program, "--yes", "--to-latest")

    assert "lines-0: none -> 1" in done.out
    assert offsets(log, "word-count") == {0: OffsetAndMetadata(1, RESET_OFFSETS)}


def test_planning_a_reset_lists_the_topics_once(
    cli: Cli, log: Broker, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.create_topic("lines")
    listed: list[list[str]] = []

    class Counting(EmbeddedLog):
        def list_topics(self) -> list[str]:
            listed.append(super().list_topics())
            return listed[-1]

    monkeypatch.setattr("headrace.brokers.opening.EmbeddedLog", Counting)

    done = cli("reset", program, "--dry-run", "--input-topics", "lines")

    assert done.code == 0
    assert listed == [["lines"]]


def test_a_topology_is_reset_as_the_application_named_after_its_file(
    cli: Cli, log: Broker, folder: Path
) -> None:
    (folder / "my_shop.py").write_text(BARE)
    ran(log, "my-shop", "in", folder)

    done = cli("reset", "my_shop.py", "--yes", "--to-latest")

    assert done.out.endswith("Application 'my-shop' starts over.\n")
    assert offsets(log, "my-shop") == dict.fromkeys((0, 1), OffsetAndMetadata(10, RESET_OFFSETS))


def test_topics_of_a_program_that_are_missing_are_named(cli: Cli, program: str) -> None:
    done = cli("reset", program, "--yes")

    assert done.code == 0
    assert "  not there   topic lines" in done.out
    checkpoint = embedded_home(Path(".headrace"), "word-count").checkpoint
    assert f"  not there   checkpoint {checkpoint}" in done.out
    assert done.out.endswith("There is nothing to reset.\n")


def test_only_chosen_topics_start_over_and_the_others_continue(
    cli: Cli, log: Broker, folder: Path
) -> None:
    ran(log, "app", "orders", folder)
    log.create_topic("bills")
    log.append(ProducerRecord("bills", 0, 1, None, b"v") for _ in range(4))
    log.commit_offsets("app", {TopicPartition("bills", 0): OffsetAndMetadata(3, "own")})

    cli("reset", "app", "--yes", "--input-topics", "bills")

    kept = {name.topic: found for name, found in log.committed_offsets("app").items()}
    assert without_word(kept["bills"]) == OffsetAndMetadata(0, RESET_OFFSETS)
    assert without_word(kept["orders"]) == OffsetAndMetadata(6, RESET_OFFSETS)


def test_internal_topics_of_an_application_with_a_longer_name_stay(
    cli: Cli, log: Broker, folder: Path
) -> None:
    ran(log, "app", "orders", folder)
    ran(log, "app-eu", "orders-eu", folder)

    cli("reset", "app", "--yes")

    assert [t for t in log.list_topics() if t.startswith("app")] == [
        "app-eu-counts-changelog",
        "app-eu-markers",
    ]
    assert "app-eu-markers" in log.list_groups()


def test_topics_of_records_that_were_tried_go_too(cli: Cli, log: Broker, folder: Path) -> None:
    ran(log, "app", "orders", folder)
    log.create_topic("app-0123456789ab-refusal-trial")  # of a process that was killed
    log.create_topic("app-refusal-trial")

    cli("reset", "app", "--yes")

    assert log.list_topics() == ["app-refusal-trial", "orders"]


def test_internal_topics_can_be_named(cli: Cli, log: Broker, folder: Path) -> None:
    ran(log, "app", "orders", folder)

    cli("reset", "app", "--yes", "--internal-topics", "app-counts-changelog")

    assert log.list_topics() == ["app-markers", "orders"]


def test_an_unknown_input_topic_is_not_found(cli: Cli, log: Broker, folder: Path) -> None:
    checkpoint = ran(log, "app", "orders", folder)

    near = cli("reset", "app", "--yes", "--input-topics", "order")
    far = cli("reset", "app", "--yes", "--input-topics", "orders,foo")

    assert (near.code, far.code) == (4, 4)
    assert near.err == (
        "Error: There is no topic 'order'. Did you mean 'orders'? Application 'app' reads orders.\n"
    )
    assert far.err == "Error: There is no topic 'foo'. Application 'app' reads orders.\n"
    assert checkpoint.exists()


def test_an_unknown_input_topic_is_an_error_with_those_the_program_reads(
    cli: Cli, program: str
) -> None:
    done = cli("reset", program, "--yes", "--input-topics", "foo")

    assert done.err == "Error: There is no topic 'foo'. Application 'word-count' reads lines.\n"


def test_an_application_that_is_not_there_is_not_found(
    cli: Cli, broker_flags: list[str], broker_log: Broker, named: Callable[[str], str], folder: Path
) -> None:
    name = named("words")
    ran(broker_log, name, named("lines"), folder)

    near = cli("reset", name.replace("words", "wrds"), "--dry-run", *broker_flags)

    assert near.code == 4
    assert near.out == ""
    assert f"Did you mean {name!r}" in near.err


def test_an_unknown_application_is_an_error_with_those_that_exist(
    cli: Cli, log: Broker, folder: Path
) -> None:
    before = cli("reset", "shop", "--yes")
    ran(log, "words", "lines", folder)
    after = cli("reset", "shop", "--yes", "--input-topics", "lines")

    assert (before.code, after.code) == (4, 4)
    assert before.err == "Error: There is no application 'shop'. There is: none.\n"
    assert after.err == "Error: There is no application 'shop'. There is: words.\n"
    assert "shop" not in log.list_groups()


@pytest.mark.parametrize("offsets_too", [False, True])
def test_an_application_that_was_reset_is_still_there(
    cli: Cli, log: Broker, folder: Path, *, offsets_too: bool
) -> None:
    ran(log, "app", "orders", folder)
    cli("reset", "app", "--yes")
    if offsets_too:
        log.delete_group("app")

    done = cli("reset", "app", "--yes")

    assert done.code == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--to-latest", "--to-offset", "0"], "`--to-latest` and `--to-offset` contradict"),
        (["--to-datetime", "yesterday"], "Write, for example, `--to-datetime"),
        (
            ["--to-datetime", "2020-01-01"],
            "Error: `--to-datetime` is '2020-01-01', which has no time zone. "
            "Write, for example, `--to-datetime 2020-01-01T00:00:00Z`.\n",
        ),
        (
            ["--by-duration", "long"],
            "Error: `--by-duration` is 'long', which is not a duration. "
            "Write, for example, `--by-duration 1h30m` or `--by-duration PT1H30M`.\n",
        ),
    ],
)
def test_positions_that_make_no_sense_are_usage_errors(
    cli: Cli, flags: list[str], said: str
) -> None:
    done = cli("reset", "app", *flags)

    assert done.code == 2
    assert said in done.err


def test_a_name_that_no_application_can_have_is_refused(cli: Cli) -> None:
    done = cli("reset", "..", "--yes")

    assert done.code == 2


def test_without_yes_and_without_a_terminal_nothing_is_reset(
    cli: Cli, log: Broker, folder: Path
) -> None:
    checkpoint = ran(log, "app", "orders", folder)

    done = cli("reset", "app", stdin="y\n")

    assert done.code == 1
    assert "Add `--yes`" in done.err
    assert checkpoint.exists()


def test_a_terminal_is_asked(
    cli: Cli, log: Broker, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = ran(log, "app", "orders", folder)
    monkeypatch.setattr(session, "can_answer", lambda: True)

    refused = cli("reset", "app", stdin="n\n")
    assert (refused.code, checkpoint.exists()) == (1, True)

    agreed = cli("reset", "app", stdin="y\n")
    assert (agreed.code, checkpoint.exists()) == (0, False)


class Failing:
    """A log whose one method fails."""

    def __init__(self, log: Broker, method: str) -> None:
        self._log, self._method = log, method

    def __getattr__(self, name: str) -> object:
        if name == self._method:
            raise BrokerUnavailableError("gone")
        return getattr(self._log, name)


@pytest.mark.parametrize("method", ["delete_group", "delete_topic", "commit_offsets"])
def test_a_reset_that_failed_half_way_is_finished_by_the_next(
    log: Broker, folder: Path, method: str
) -> None:
    checkpoint = ran(log, "app", "orders", folder)
    home = embedded_home(folder / ".headrace")
    plan = plan_reset(log, home)

    with pytest.raises(BrokerUnavailableError):
        execute_reset(Failing(log, method), plan)  # type: ignore[arg-type]  # as a log that fails

    # Whatever failed: without a checkpoint there are markers or unmarked offsets to refuse for.
    assert not checkpoint.exists()
    markers = "app-markers" in log.list_groups()
    assert markers or offsets(log, "app")[0].metadata == "own"
    execute_reset(log, plan_reset(log, home))
    assert offsets(log, "app")[0] == OffsetAndMetadata(0, RESET_OFFSETS)
    assert "app-markers" not in log.list_groups()
    assert list(home.state.iterdir()) == []


def test_a_checkpoint_that_cannot_be_moved_keeps_its_markers(
    log: Broker, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = ran(log, "app", "orders", folder)

    def refuse(*_: object) -> Path:
        raise PermissionError("not yours")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(BrokerError, match=r"cannot be deleted \(not yours\)"):
        execute_reset(log, plan_reset(log, embedded_home(folder / ".headrace")))

    assert checkpoint.exists()
    assert "app-markers" in log.list_groups()
    assert offsets(log, "app")[0] == OffsetAndMetadata(6, "own")


def test_a_reset_twice_is_the_same_as_once(log: Broker, folder: Path) -> None:
    ran(log, "app", "orders", folder)

    home = embedded_home(folder / ".headrace")
    first = plan_reset(log, home, to=ResetTo("offset", 2))
    execute_reset(log, first)
    second = plan_reset(log, home, to=ResetTo("current"))

    assert [change.after for change in second.offsets] == [2, 2]
    assert [change.before for change in second.offsets] == [c.after for c in first.offsets]
    assert second.topics == second.groups == ()


def test_the_kept_offsets_are_those_the_plan_showed(cli: Cli, log: Broker, folder: Path) -> None:
    ran(log, "app", "orders", folder)

    shown = json.loads(cli("reset", "app", "--dry-run", "--to-latest", "--output", "json").out)
    cli("reset", "app", "--yes", "--to-latest")

    after = {change["partition"]: change["after"] for change in shown["offsets"]}
    assert after == {n: kept.offset for n, kept in offsets(log, "app").items()}


def test_a_checkpoint_of_an_older_version_is_deleted(cli: Cli, log: Broker, folder: Path) -> None:
    home = embedded_home(folder / ".headrace")
    older = ran(log, "app", "orders", folder).rename(home.state.parent / "checkpoint")
    with pytest.raises(CheckpointError, match="is of an older version"):
        home.check_layout()

    done = cli("reset", "app", "--yes")

    assert f"  delete      {older.relative_to(folder)}" in done.out
    home.check_layout()
