"""An instance follows a running application over the embedded log."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.brokers.embedded import EmbeddedLog
from headrace.brokers.log import TopicPartition
from headrace.errors import BrokerError, BrokerUnavailableError, QueryError
from headrace.queries.copy.database import WriteBatch, prefix_end
from headrace.queries.copy.keys import entry_from_bytes, entry_prefix
from headrace.queries.copy.layout import Shard
from headrace.queries.copy.memory_database import MemoryDatabase
from headrace.queries.instance import Instance
from headrace.queries.members import MemberStatus, shard_name
from headrace.queries.problems import ProblemCode
from tests.runtime.counting import COUNTS, Application
from tests.waiting import await_that

SHARDS = [Shard("0", 0), Shard("0", 1)]


@pytest.fixture
def instances() -> Iterator[list[Instance]]:
    """Instances that the test appends; they are closed at its end."""
    opened: list[Instance] = []
    yield opened
    for instance in opened:
        instance.close()


def counts(instance: Instance, shard: Shard) -> dict[bytes, int]:
    """Return the entries of a shard at the newest snapshot."""
    shown = instance.snapshots.newest_of(shard)
    assert shown is not None
    prefix = entry_prefix(TopicPartition(COUNTS, shard.partition))
    return {
        key[len(prefix) :]: int.from_bytes(entry_from_bytes(data).value or b"")
        for key, data in shown.view.scan(prefix, prefix_end(prefix))
    }


def await_snapshot(instance: Instance, number: int) -> None:
    await_that(
        lambda: instance.is_ready() and set(instance.status().shards.values()) == {number},
        f"snapshot {number} of all shards",
        found=instance.status,
    )


def test_a_private_copy_follows_the_application_and_tells_listeners(
    application: Application, instances: list[Instance]
) -> None:
    instance = Instance(application.catalog, application.config, name=None)
    instances.append(instance)
    heard: list[int | None] = []
    remove = instance.add_listener(lambda: heard.append(instance.status().snapshot))
    instance.start()
    problem = instance.problem()
    assert problem is not None
    assert problem.code is ProblemCode.STORE_NOT_READY

    application.run(b"a", b"b")
    await_snapshot(instance, 0)
    application.run(b"a")
    await_snapshot(instance, 1)

    assert [counts(instance, shard) for shard in SHARDS] == [{b"a": 2, b"b": 1}] * 2
    assert [instance.shard_problem(shard) for shard in SHARDS] == [None, None]
    assert instance.lags() == {TopicPartition(COUNTS, number): (3, 3) for number in range(2)}
    assert instance.placement() == dict.fromkeys(SHARDS, ("",))
    assert instance.members()[""].is_ready
    record = instance.newest_record()
    assert record is not None
    assert record.snapshot == 1
    await_that(lambda: 1 in heard, "the listener to hear of the snapshot", found=lambda: heard)
    remove()
    problem = instance.shard_problem(Shard("0", 7))
    assert problem is not None
    assert "does not have partition 7" in problem.detail


def test_an_instance_comes_back_with_its_files_which_nobody_else_may_read(
    application: Application, instances: list[Instance], tmp_path: Path
) -> None:
    application.run(b"a")
    instance = Instance(application.catalog, application.config, name="127.0.0.1:8080")
    instances.append(instance)
    instance.start()
    await_snapshot(instance, 0)
    folder = tmp_path / "application" / "embedded" / "queries" / "127.0.0.1%3A8080"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    with pytest.raises(QueryError, match=r"its own `application\.server`"):
        Instance(application.catalog, application.config, name="127.0.0.1:8080").start()
    instance.close()
    again = Instance(application.catalog, application.config, name="127.0.0.1:8080")
    instances.append(again)
    again.start()
    await_snapshot(again, 0)

    assert counts(again, SHARDS[0]) == {b"a": 1}


def test_a_name_that_is_no_address_names_no_folder(application: Application) -> None:
    for name in ("../../x:80", "a/b:80", "..", ":80/..", "host"):
        with pytest.raises(BrokerError, match="host:port"):
            Instance(application.catalog, application.config, name=name).start()


class BrokenDatabase(MemoryDatabase):
    """A database whose disk is full at times."""

    is_full = False

    def write(self, batch: WriteBatch) -> None:
        if self.is_full:
            msg = "no space left"
            raise OSError(msg)
        super().write(batch)


@pytest.mark.parametrize("restarts", [True, False])
def test_a_stopped_applier_is_not_ready_and_restarts_if_it_should(
    application: Application, instances: list[Instance], restarts: bool
) -> None:
    database = BrokenDatabase()
    instance = Instance(
        application.catalog, application.config, name=None, database=database, restarts=restarts
    )
    instances.append(instance)
    instance.start()
    application.run(b"a")
    await_snapshot(instance, 0)

    database.is_full = True
    application.run(b"a")
    await_that(lambda: not instance.is_ready(), "the instance to be not ready")
    problem = instance.problem()
    assert problem is not None
    assert "no space left" in problem.detail
    assert not any(map(instance.is_shard_ready, SHARDS))
    database.is_full = False

    if restarts:
        await_snapshot(instance, 1)
        assert instance.failure() is None
    else:
        assert str(instance.failure()) == "no space left"


def test_an_instance_of_another_program_says_so(
    application: Application, instances: list[Instance]
) -> None:
    layout = replace(application.catalog.layout, digest="another")
    catalog = replace(application.catalog, layout=layout)
    instance = Instance(catalog, application.config, name=None)
    instances.append(instance)
    application.run(b"a")
    instance.start()

    def code() -> ProblemCode | None:
        problem = instance.problem()
        return None if problem is None else problem.code

    await_that(lambda: code() is ProblemCode.OTHER_PROGRAM, "the other program", found=code)
    assert not instance.is_ready()


class AwayLog(EmbeddedLog):
    """A log that does not answer at times."""

    is_away = False

    def topic_ids(self, names: Iterable[str], /) -> dict[str, str]:
        if self.is_away:
            msg = "away"
            raise BrokerUnavailableError(msg)
        return super().topic_ids(names)


def test_an_instance_stays_ready_while_the_broker_is_away(
    application: Application, instances: list[Instance], caplog: pytest.LogCaptureFixture
) -> None:
    log = AwayLog(application.log.address)
    instance = Instance(application.catalog, application.config, lambda: log, name=None)
    instances.append(instance)
    application.run(b"a")
    instance.start()
    await_snapshot(instance, 0)

    log.is_away = True
    application.run(b"a")
    await_that(lambda: "answers from what it has" in caplog.text, "a warning")
    assert instance.is_ready()
    assert counts(instance, SHARDS[0]) == {b"a": 1}
    log.is_away = False

    await_snapshot(instance, 1)
    assert counts(instance, SHARDS[0]) == {b"a": 2}


class Peers:
    """Answers for instances of this process."""

    def __init__(self) -> None:
        self.instances: dict[str, Instance] = {}

    async def status(self, member: str, /) -> MemberStatus:
        return self.instances[member].status()

    def start(self, application: Application, name: str) -> Instance:
        """Start an instance that knows the others."""
        config = application.config.with_settings(num_standby_replicas=0)
        database = MemoryDatabase()
        instance = Instance(
            application.catalog, config, name=name, database=database, transport=self
        )
        self.instances[name] = instance
        instance.start()
        return instance


def first_of_several(application: Application, instances: list[Instance]) -> tuple[Peers, Instance]:
    """Return an instance that shows the first snapshot, and peers to start beside it."""
    application.run(b"a")
    peers = Peers()
    first = peers.start(application, "localhost:1")
    instances.append(first)
    await_snapshot(first, 0)
    return peers, first


def test_instances_share_the_shards_and_take_over_those_of_one_that_leaves(
    application: Application, instances: list[Instance]
) -> None:
    peers, first = first_of_several(application, instances)
    assert first.status().shards == {"0/0": 0, "0/1": 0}

    # The two names share the two shards.
    second = peers.start(application, "localhost:4")
    instances.append(second)
    await_that(
        lambda: second.is_ready() and "localhost:4" in first.members(),
        "both instances to know each other",
        found=lambda: (second.status(), first.members()),
    )
    (mine,) = second.status().shards
    (shard,) = (each for each in SHARDS if shard_name(each) == mine)
    await_that(
        lambda: first.placement()[shard] == ("localhost:4", "localhost:1"),
        "the first instance to prefer the second",
        found=first.placement,
    )
    # It keeps its copy until the second was ready for long enough.
    assert first.is_shard_ready(shard)
    other = Shard("0", 1 - shard.partition)
    assert second.placement()[other] == ("localhost:1",)

    first.close()
    await_that(
        lambda: second.status().shards == {"0/0": 0, "0/1": 0},
        "the second instance to restore the shard of the first",
        found=second.status,
    )
    assert second.placement()[other] == ("localhost:4",)


def test_while_an_instance_is_added_under_load_the_old_one_answers(
    application: Application, instances: list[Instance]
) -> None:
    peers, first = first_of_several(application, instances)
    second = peers.start(application, "localhost:4")
    instances.append(second)

    number = 0

    def has_joined() -> bool:
        nonlocal number
        number += 1
        application.run(b"a")
        assert all(map(first.is_shard_ready, SHARDS))
        return second.is_ready()

    await_that(has_joined, "the second instance to be ready", found=second.status)
    await_that(
        lambda: set(second.status().shards.values()) == {number},
        "the newest snapshot",
        found=second.status,
    )
    (mine,) = second.status().shards
    (shard,) = (each for each in SHARDS if shard_name(each) == mine)
    assert counts(second, shard) == {b"a": number + 1}


def test_a_name_that_another_live_member_has_is_refused(
    application: Application, instances: list[Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.queries.membership._TAKEN_SECONDS", 0.5)
    peers, first = first_of_several(application, instances)

    second = peers.start(application, "localhost:1")
    instances.append(second)

    await_that(lambda: second.failure() is not None, "the second instance to be refused")
    assert "own `application.server`" in str(second.failure())
    assert not second.is_ready()
    assert first.is_ready()
